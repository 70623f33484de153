"""The backward function of a sharded function: each rank runs its part of one axis, and what is summed over it adds up.

    attention, rows i and keys j sharded    d_q[i] of its own rows, from all k and v; d_k and d_v are sums of ranks
    cross-entropy, vocabulary j sharded     d_x[i, j] of its own j, from its own x

What runs along another sharded axis is gathered before. Where a rank's part is no function of its own, as of a norm
over a sharded width, whose adjoint is a sum over all of it, everything is, and each rank keeps its share.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import torch
from tvm import tirx

from tvm_cascade.distributed.exchanges import of_share
from tvm_cascade.distributed.order import Share
from tvm_cascade.distributed.ranks import Call, Flags, Ranks, Tensors, lengths_of
from tvm_cascade.distributed.sharding import Along
from tvm_cascade.distributed.transport import Cut
from tvm_cascade.driver.arguments import Parameter, parameters_of
from tvm_cascade.errors import SplitError


class Backward:
    """A backward function on the ranks of its forward function; see `exchanges.Exchange`.

    Parameters
    ----------
    ranks : of the forward function, whose inputs and results `func` reads by their names, and their adjoints as `d_x`.
    """

    name, merges, again = "backward", False, 1

    def __init__(self, ranks: Ranks, func: tirx.PrimFunc) -> None:
        self.ranks, self.func, self.parameters = ranks, func, parameters_of(func)

    @property
    def _moved(self) -> list[Parameter]:
        """Inputs that are gathered, and results that are sums over ranks."""
        own = None if self.along is None else self.along.name
        cut = [(one, self.cut_along(one)) for one in self.parameters]
        read = [one for one, along in cut if not one.written and along is not None and along.name != own]
        return [*read, *(one for one in self.parameters if one.name in self.summed)]

    @property
    def bytes(self) -> int:
        """That a rank receives."""
        return int(sum(one.size or 0 for one in self._moved) * self.ranks.others)

    @property
    def steps(self) -> int:
        """Collectives, one after another."""
        return len(self.summed) + any(not one.written for one in self._moved)

    def cut_along(self, one: Parameter) -> Along | None:
        """The axis along which ranks have a share of a tensor, with that of what it is the adjoint of."""
        known = {own.name: own for own in self.ranks.sharding.parameters}
        name = one.name if one.name in known else one.name.removeprefix("d_")
        return self.ranks.sharding.cut_along(known[name]) if name in known else None

    def dimension(self, name: str, along: Along) -> int:
        """The dimension of a tensor along an axis."""
        return along.dimensions[name if name in along.dimensions else name.removeprefix("d_")]

    @cached_property
    def along(self) -> Along | None:
        """The axis of which each rank runs its part; None where it runs all of it."""
        return self._part[0]

    @property
    def summed(self) -> frozenset[str]:
        """The results that are sums over that axis."""
        return self._part[1]

    @cached_property
    def _part(self) -> tuple[Along | None, frozenset[str]]:
        sharding = self.ranks.sharding
        chosen = sharding.rows or sharding.axis
        cut = [one.name for one in self.parameters if self.cut_along(one) is chosen]
        along = Along(chosen.name, chosen.length, {name: self.dimension(name, chosen) for name in cut})
        try:
            summed = frozenset(buffer.name for buffer in sharding.rows_in(self.func, along).summed)
            for length in lengths_of(self.ranks.shares(chosen)):
                sharding.over(self.func, along, length)
        except SplitError:
            return None, frozenset()
        return (along, summed) if cut else (None, frozenset())

    def functions(self) -> Iterator[tirx.PrimFunc]:
        """All that any rank calls."""
        if self.along is None:
            yield self.func
        else:
            yield from (self.ranks.sharding.over(self.func, self.along, n) for n in lengths_of(self._shares))

    @property
    def _shares(self) -> tuple[Share, ...]:
        return self.ranks.rows if self.ranks.sharding.rows else self.ranks.axis

    def run(self, given: Tensors, call: Call) -> Flags:
        """Fills the results among the tensors of this rank."""
        values, wholes = dict(given), dict[str, tuple[Parameter, Along | None]]()
        gathered: dict[str, Cut] = {}
        for one in self.parameters:
            cut = self.cut_along(one)
            own = self.along is not None and cut is not None and cut.name == self.along.name
            if one.written and (one.name in self.summed or (cut is not None and not own)):
                wholes[one.name] = one, cut
            elif not one.written and cut is not None and not own:
                d = self.dimension(one.name, cut)
                gathered[one.name] = Cut(given[one.name], d, self.ranks.shares(cut))
        values.update(zip(gathered, self.ranks.transport.whole(list(gathered.values())), strict=True))
        totals = {name: self._zeros(one, given) for name, (one, _) in wholes.items()}
        for func, arguments in self.ranks.over_spans(self.func, self.along, values):
            found = {name: torch.empty_like(total) for name, total in totals.items()}
            call(func, {**arguments, **found})
            for name, total in totals.items():
                total += found[name]
        for name, (_, cut) in wholes.items():
            given[name].copy_(self._shared(name, totals[name], cut))
        return []

    def _zeros(self, one: Parameter, given: Tensors) -> torch.Tensor:
        return given[one.name].new_zeros([int(extent) for extent in one.shape or ()])

    def _shared(self, name: str, total: torch.Tensor, cut: Along | None) -> torch.Tensor:
        """What this rank has of a result: its share of the sum over ranks, in their order, or of what all have."""
        transport = self.ranks.transport
        if cut is None:
            return transport.gathered(total).sum(0, dtype=_wide(total))
        d, shares = self.dimension(name, cut), self.ranks.shares(cut)
        if name not in self.summed:
            return of_share(total, d, shares[transport.rank])
        parts = [[of_share(total, d, share)] for share in shares]
        return transport.exchanged(parts, parts[transport.rank])[0].sum(0, dtype=_wide(total))


def _wide(tensor: torch.Tensor) -> torch.dtype:
    """The dtype in which parts of a sum are added."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32
