"""Operators that write at positions, made of writes along one axis, for which there are converters.

x[i, j] = v  →  x of one axis, written at i·m + j        embedding's gradient  →  0, to which rows are added
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

_ATEN = torch.ops.aten


def _index_put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """Along one axis, which positions of several are numbers of; of a mask one value alone."""
    given = {axis: one for axis, one in enumerate(indices) if one is not None}
    axes, count = [*given], len(given)
    if any(one.dtype == torch.bool for one in given.values()):
        (axis, one), *others = given.items()
        if others or values.numel() != 1 or accumulate:
            return NotImplemented
        return torch.where(one.view(*one.shape, *[1] * (x.dim() - axis - one.dim())), values.reshape(()), x)
    first = axes[0] if axes[-1] - axes[0] + 1 == count else 0  # where values have the axes of the positions
    together = [*range(first, first + count)]
    moved = x if axes == together else x.movedim(axes, together)
    extents, places = moved.shape[first : first + count], torch.broadcast_tensors(*given.values())
    shape = (*moved.shape[:first], places[0].numel(), *moved.shape[first + count :])
    written = values.to(x.dtype).expand((*moved.shape[:first], *places[0].shape, *moved.shape[first + count :]))
    at = _numbered(places, extents).to(torch.int64).reshape([-1 if d == first else 1 for d in range(len(shape))])
    flat = moved.flatten(first, first + count - 1) if count > 1 else moved
    write = flat.scatter_add if accumulate else flat.scatter
    found = write(first, at.expand(shape), written.reshape(shape)).reshape(moved.shape)
    return found if axes == together else found.movedim(together, axes)


def _numbered(places: Sequence[Tensor], extents: Sequence[int]) -> Tensor:
    """The numbers of places in the order of memory; of one axis the positions as they are."""
    if len(places) == 1:
        return places[0]
    number: Any = 0
    for place, extent in zip(places, extents, strict=True):
        inside = place.clamp(-extent, extent - 1)
        number = number * extent + torch.where(inside < 0, inside + extent, inside)
    return number


def _scatter_number(x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    return x.scatter(dim, index, torch.full(index.shape, value, dtype=x.dtype, device=x.device))


def _fitted(write: Callable[..., Tensor], x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A write to the part of x, and of the part of src, that are as long as the positions along each other axis."""
    if 0 in [one for one in index.shape if isinstance(one, int)]:
        return x.clone()
    for d, (whole, extent) in enumerate(zip(x.shape, index.shape, strict=False)):
        if d != dim % x.dim() and not statically_known_true(whole == extent):
            return x.slice_scatter(write(x.narrow(d, 0, extent), dim, index, src), d, 0, extent)
    for d, (whole, extent) in enumerate(zip(src.shape, index.shape, strict=False)):
        if not statically_known_true(whole == extent):
            return write(x, dim, index, src.narrow(d, 0, extent))
    return NotImplemented


_STARTS: Mapping[str, Callable[[Any], Any]] = {
    "sum": lambda _: 0,
    "prod": lambda _: 1,
    "amax": lambda info: -math.inf if isinstance(info, torch.finfo) else info.min,
    "amin": lambda info: math.inf if isinstance(info, torch.finfo) else info.max,
}


def _scatter_reduce(
    x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """By reductions that include what is written to, which are the converter's, and sums."""
    again = _ATEN.scatter_reduce.two
    if reduce == "mean" and x.is_floating_point():
        total = again(x, dim, index, src, "sum", include_self=include_self)
        count = torch.full_like(x, float(include_self)).scatter_add(dim, index, torch.ones_like(src))
        return total / count.clamp(min=1)
    if not include_self and reduce != "mean":
        info = torch.finfo(x.dtype) if x.is_floating_point() else torch.iinfo(x.dtype)
        return again(x.scatter(dim, index, _STARTS[reduce](info)), dim, index, src, reduce)
    if reduce == "sum":
        return x.scatter_add(dim, index, src)
    return _fitted(partial(again, reduce=reduce), x, dim, index, src)


def _maxima_backward(gradients: Tensor, x: Tensor, *given: Any) -> Tensor:
    """Each gradient is added where the maximum stood, a number of a plane."""
    planes = gradients.new_zeros((*x.shape[:-2], x.shape[-2] * x.shape[-1]))
    return planes.scatter_add(-1, given[-1].flatten(-2), gradients.flatten(-2)).reshape(x.shape)


WRITES: Mapping[Any, Callable[..., Any]] = {
    _ATEN.scatter.src: partial(_fitted, _ATEN.scatter.src),
    _ATEN.scatter.value: _scatter_number,
    _ATEN.scatter_add.default: partial(_fitted, _ATEN.scatter_add.default),
    _ATEN.scatter_reduce.two: _scatter_reduce,
    _ATEN.index_put.default: _index_put,
    _ATEN.max_pool2d_with_indices_backward.default: _maxima_backward,
}
