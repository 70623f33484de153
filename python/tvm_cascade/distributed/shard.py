"""`tvm_cascade.distributed.shard`: a function whose axis is sharded over ranks, by the exchange of the least time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from tvm import tirx
from typing_extensions import Unpack

from tvm_cascade.distributed.backward import Backward
from tvm_cascade.distributed.exchanges import EXCHANGES, Exchange
from tvm_cascade.distributed.extents import OfExtents
from tvm_cascade.distributed.order import ORDERS
from tvm_cascade.distributed.pull import SymmetricMemory, reads_peers
from tvm_cascade.distributed.ranks import Ranks
from tvm_cascade.distributed.sharded import Plan, Sharded
from tvm_cascade.distributed.sharding import Sharding
from tvm_cascade.distributed.transport import Transport
from tvm_cascade.driver.arguments import parameters_of
from tvm_cascade.errors import InputError, OptionError
from tvm_cascade.options import FuseOptions, Options, takes_options
from tvm_cascade.reverse.gradient import Gradient

Group: TypeAlias = "dist.ProcessGroup | DeviceMesh | None"


@takes_options
def shard(
    func: tirx.PrimFunc | Gradient,
    axis: str = "",
    rows: str = "",
    group: Group = None,
    order: str = "blocks",
    exchange: str = "auto",
    **options: Unpack[Options],
) -> Any:
    """The function on tensors of which each rank of a group has a share.

    Every rank calls it, with the same function and options, and then the result with its own tensors. Nothing is
    compiled before the first call; the first rank compiles first, and others find its code in the cache on disk.

    Parameters
    ----------
    func : the function on whole tensors: unscheduled S-TIR with one cascade; or what `tvm_cascade.gradient` gives of
        one whose extents are numbers: its forward function is sharded so, and the backward function with it.
    axis : the loop of its fold, by name; the outermost one by default. Ranks have a share of what is read along it.
    rows : a loop of its rows, by name, of which ranks have a share too: of inputs and of results. By default rows are
        on all ranks, and so are results. A tensor along both is cut along the rows.
    group : a ProcessGroup, or a DeviceMesh of one dimension; all ranks by default.
    order : which positions of the axis and of the rows a rank has. "blocks": contiguous ones, the first ranks one more
        where they do not divide; "chunks": as `torch.chunk` and DTensor cut, the last ranks less; "zigzag": of 2·W
        equal spans the r-th from the start and the r-th from the end, so that causal work is even. `Sharded.local` cuts
        whole tensors so.
    exchange : "inputs", "states", "rows" or "ring", as in the table of `tvm_cascade.distributed.exchanges`; by default
        the one that is estimated to take the least time.
    **options : fields of `tvm_cascade.FuseOptions`, as keywords; unset ones come from TVM_CASCADE_* variables.

    Returns
    -------
    Sharded; ShardedGradient of a gradient; of a function of symbolic extents OfExtents, which is a callable too.

    Raises
    ------
    InputError
        When torch.distributed is not initialised.
    OptionError
        When a loop, an order or an exchange is none of the function's.
    SplitError
        When the function has no fold, or several, or what it reads cannot be cut.
    """
    asked = axis, rows, group, order, exchange, FuseOptions.from_environment(**options)
    if isinstance(func, Gradient):
        forward = _sharded(func.forward, *asked)
        backward = Backward(forward.ranks, func.backward)
        plan = Plan(backward, _seconds(backward, forward.ranks))
        return ShardedGradient(forward, Sharded(forward.ranks, plan, (plan,), backward))
    is_symbolic = isinstance(func, tirx.PrimFunc) and any(one.size is None for one in parameters_of(func))
    return (
        OfExtents(func, Transport(group), lambda one: _sharded(one, *asked)) if is_symbolic else _sharded(func, *asked)
    )


@dataclass(frozen=True)
class ShardedGradient:
    """A sharded function with its gradient, as `tvm_cascade.torch_operator` takes it.

    Attributes
    ----------
    forward : gives what the backward function reads among its outputs.
    backward : from inputs, results and adjoints of results to adjoints of inputs, each cut as what it belongs to.
    """

    forward: Sharded
    backward: Sharded


def _sharded(
    func: tirx.PrimFunc,
    axis: str,
    rows: str,
    group: Group,
    order: str,
    exchange: str,
    options: FuseOptions,
) -> Sharded:
    if order not in ORDERS:
        raise OptionError(f"one of {', '.join(ORDERS)}", repr(order), "shard(order=…)")
    if not isinstance(func, tirx.PrimFunc):
        raise InputError("a tirx.PrimFunc, or a Gradient", type(func).__name__, "shard")
    transport, sharding = Transport(group), Sharding(func, axis, rows, options)
    shares = [
        () if one is None else ORDERS[order](one.length, transport.ranks) for one in (sharding.axis, sharding.rows)
    ]
    memory = (lambda size: SymmetricMemory(size, transport)) if reads_peers(transport) else None
    ranks = Ranks(sharding, transport, shares[0], shares[1], memory)
    unfit = {one.name: why for one in EXCHANGES if (why := _unfit(one, sharding))}
    fitting = [one(ranks) for one in EXCHANGES if one.name not in unfit]
    plans = sorted((Plan(one, _seconds(one, ranks)) for one in fitting), key=lambda plan: plan.seconds)
    asked = [plan for plan in plans if exchange in ("auto", plan.exchange.name)]
    if not asked:
        names = ", ".join(["auto", *(one.name for one in fitting)])
        raise OptionError(f"one of {names}", repr(exchange), "shard(exchange=…)", unfit.get(exchange, ""))
    return Sharded(ranks, asked[0], tuple(plans), sharding, unfit)


def _unfit(one: type[Exchange], sharding: Sharding) -> str:
    """Why an exchange cannot be taken; empty where it can."""
    if one.of_rows not in (None, sharding.rows is not None):
        return "for rows that are sharded, as rows= says" if one.of_rows else "for rows that all ranks have"
    unguarded = sharding.chunked.fold.guarding.unguarded if one.merges else ""
    return f"only with guards='off', where this is not to be feared: {unguarded}" if unguarded else ""


def _seconds(exchange: Exchange | Backward, ranks: Ranks) -> float:
    link = ranks.transport.link
    again = (exchange.again - 1) * ranks.bytes_along(ranks.sharding.axis) / ranks.transport.ranks
    return exchange.bytes / link.bytes_per_second + exchange.steps * link.seconds + again / link.memory_bytes_per_second
