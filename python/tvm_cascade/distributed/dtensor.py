"""Functions of PyTorch on DTensors that are sharded along the axis of a fold, whose merge joins what ranks have.

    with tvm_cascade.distributed.DTensorFolds():
        loss = model(tokens)

| function                       | sharded along                          | results                                |
|--------------------------------|----------------------------------------|----------------------------------------|
| `scaled_dot_product_attention` | keys; queries too, or on all ranks     | as the query                           |
| `cross_entropy`                | classes                                | on all ranks                           |

The functions are taken whole: a Partial placement of DTensor reduces one tensor at a time, by a function of
torch.distributed, where a state is several tensors that only the fold knows how to merge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import count
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from tvm import te, tirx

from tvm_cascade.distributed.shard import shard
from tvm_cascade.distributed.sharded import Sharded
from tvm_cascade.reverse.gradient import Gradient, gradient
from tvm_cascade.te import cross_entropy
from tvm_cascade.torch.attention import attention_of, with_log_sums
from tvm_cascade.torch.operator import torch_operator
from tvm_cascade.torch.site import dtype_name

Shapes = tuple[tuple[str, tuple[int, ...], str], ...]
"""Names, shapes and dtypes of inputs."""

Formula = Callable[[Mapping[str, Any], Sequence[te.Tensor], bool], tirx.PrimFunc | Gradient]
"""From options by name, and placeholders of inputs, to the function, with its gradient where that is asked for; its
first output is the result."""


class DTensorFolds(TorchFunctionMode):
    """While this lasts, the functions of the table are ours where DTensors are sharded so; all else is as it was.

    Every rank has to call them alike. Positions are those of DTensor, blocks in the order of ranks: a causal mask gives
    later ranks more work.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by PyTorch in place of each of its functions."""
        given = kwargs or {}
        taken = _TAKEN.get(func)
        found = NotImplemented if taken is None else taken(*args, **given)
        return func(*args, **given) if found is NotImplemented else found


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    if dropout_p:
        return NotImplemented
    inputs = {"query": query, "key": key, "value": value} | ({} if attn_mask is None else {"mask": attn_mask})
    options = {"scale": scale, "is_causal": is_causal, "enable_gqa": enable_gqa}
    return _merged(_attended, options, inputs, ("key", key.dim() - 2), query.dim() - 2)


def _attended(options: Mapping[str, Any], given: Sequence[te.Tensor], learns: bool) -> tirx.PrimFunc | Gradient:
    """As PyTorch has it, but that of one query of grouped heads, masked everywhere, the gradient is NaN."""
    found = with_log_sums(options, given)
    if not learns:
        return te.create_prim_func([*given, found[0]])
    plain = gradient(te.create_prim_func([*given, attention_of(options, given, guarded=False).result]))
    is_saved = {*plain.saved} == {one.op.name for one in found}
    return replace(plain, forward=te.create_prim_func([*given, *found])) if is_saved else plain


def _cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    of_classes = input.dim() == 2 and target.dim() == 1 and weight is None and not label_smoothing
    if not of_classes or size_average is not None or reduce is not None:
        return NotImplemented
    known = target != ignore_index
    inputs = {"logits": input, "target": torch.where(known, target, torch.zeros_like(target))}
    losses = _merged(_losses, {}, inputs, ("logits", 1), None)
    if losses is NotImplemented:
        return NotImplemented
    losses = (losses * known).to(input.dtype)
    if reduction == "none":
        return losses
    return losses.sum() / known.sum() if reduction == "mean" else losses.sum()


def _losses(_: Mapping[str, Any], given: Sequence[te.Tensor], learns: bool) -> tirx.PrimFunc | Gradient:
    func = te.create_prim_func([*given, cross_entropy(*given)])
    return gradient(func) if learns else func


_TAKEN: dict[Any, Callable[..., Any]] = {
    F.scaled_dot_product_attention: _attention,
    F.cross_entropy: _cross_entropy,
}


def _merged(
    formula: Formula, options: Mapping[str, Any], inputs: Mapping[str, Any], axis: tuple[str, int], rows: int | None
) -> Any:
    """The result of a formula on DTensors; NotImplemented where they are not sharded along its axis.

    Parameters
    ----------
    axis : an input, and its dimension that is the axis.
    rows : the dimension of the first input that may be sharded with it, on the same dimension of the mesh.
    """
    first, along = next(iter(inputs.values())), inputs[axis[0]]
    if not all(isinstance(one, DTensor) and one.device_mesh == first.device_mesh for one in inputs.values()):
        return NotImplemented
    sharded = [m for m, placement in enumerate(along.placements) if placement.is_shard(axis[1])]
    if len(sharded) != 1:
        return NotImplemented
    (m,) = sharded
    of_rows = rows is not None and first.placements[m].is_shard(rows)
    whole_rows = first is along or of_rows or first.placements[m].is_replicate()
    if not whole_rows or any(_elsewhere(one, m) != _elsewhere(first, m) for one in inputs.values()):
        return NotImplemented
    shapes = tuple((name, _whole_over(one, m), dtype_name(one.dtype)) for name, one in inputs.items())
    learns = torch.is_grad_enabled() and any(one.requires_grad for one in inputs.values())
    group = first.device_mesh.get_group(m)
    own, run = _made(formula, tuple(options.items()), shapes, f"i{rows}" if of_rows else "", group, learns)
    placed = (one.redistribute(placements=_placed(own, name, one, m)) for name, one in inputs.items())
    found = run(*(one.to_local().contiguous() for one in placed))
    result = next(one.name for one in own.signature.parameters if one.written)
    placements = _placed(own, result, first, m)
    cut = [d for one in _elsewhere(first, m) for d in range(first.dim()) if one.is_shard(d)]
    shape = [first.shape[d] if d in cut else extent for d, extent in enumerate(own.whole(result))]
    like = torch.empty(shape, device="meta")
    local = found[0] if isinstance(found, tuple) else found
    return DTensor.from_local(local, first.device_mesh, placements, shape=like.shape, stride=like.stride())


def _elsewhere(one: DTensor, m: int) -> list[Placement]:
    """Placements over the other dimensions of the mesh."""
    return [placement for place, placement in enumerate(one.placements) if place != m]


def _whole_over(one: DTensor, m: int) -> tuple[int, ...]:
    """The shape of what ranks along a dimension of the mesh have together."""
    local = one.to_local().shape
    return tuple(one.shape[d] if one.placements[m].is_shard(d) else extent for d, extent in enumerate(local))


def _placed(own: Sharded, name: str, one: DTensor, m: int) -> list[Placement]:
    """Where the sharded function has a tensor, and over the other dimensions of the mesh as a DTensor has it."""
    d = own.cut(name)
    return [(Replicate() if d is None else Shard(d)) if place == m else p for place, p in enumerate(one.placements)]


_NUMBERS = count()


@cache
def _made(
    formula: Formula,
    options: tuple[tuple[str, Any], ...],
    shapes: Shapes,
    rows: str,
    group: dist.ProcessGroup,
    learns: bool,
) -> tuple[Sharded, Callable[..., Any]]:
    """The sharded function, and an operator that runs it on tensors of this rank: made once for all calls."""
    given = [te.placeholder(shape, dtype, name=name) for name, shape, dtype in shapes]
    made = shard(formula(dict(options), given, learns), rows=rows, group=group, order="chunks")
    own: Sharded = made.forward if learns else made
    run = torch_operator(made, f"tvm_cascade_of_ranks::fold_{next(_NUMBERS)}")
    return own, run
