"""Access layouts: loads along an axis as one linear offset, and the axis that memory is contiguous along.

    tensor[base(row) + stride·position + lane]

    x[i, l]          base i·L, stride 1               a thread reads neighbours at once
    points[i, l, 2]  base i·3L, stride 3, lane 2      neighbours are triples
    gain[l]          base 0, stride 1

The axis is that of the cascade, x[row, l], where threads that share a row read neighbouring positions; or the
variables of rows, x[l, row], where they read neighbouring rows and each folds its own. What is read once a row says
nothing of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tvm import ir, sym, tirx
from tvm.ir import prim

from tvm_cascade.analysis.tir import (
    Extent,
    as_index,
    dtype_of,
    extent_of,
    loads_of,
    more_than_one,
    product,
    same_extent,
    substitute,
    uses,
)
from tvm_cascade.tile.memory import INDEX, VECTOR_BYTES, itemsize, moved_dtype
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.product.lines import Line, line_of, runs
from tvm_cascade.transform.printer import cast


@dataclass(frozen=True)
class Access:
    """Elements of a tensor along the axis.

    Attributes
    ----------
    base : the offset of position 0, over the variables of rows; int64.
    alignment : elements that the base is a multiple of, whatever the row; 0 where the base is 0.
    stride : elements from one position to the next.
    lane : beside the base; less than the stride, where that is more than 1.
    """

    buffer: tirx.Var
    base: ir.Expr
    alignment: int
    stride: int
    lane: int = 0

    @property
    def dtype(self) -> str:
        return moved_dtype(dtype_of(self.buffer))

    @property
    def is_shared(self) -> bool:
        return isinstance(self.base, prim.IntImm) and int(self.base) == 0

    def beside(self, other: Access) -> bool:
        same = self.buffer.same_as(other.buffer) and self.stride == other.stride
        return same and bool(sym.Analyzer().can_prove_equal(self.base, other.base))


def is_shifted(access: Access, neighbours: int) -> bool:
    """Whether vectors are not aligned to their widest load; those of 64-bit elements are read singly."""
    size = itemsize(access.dtype)
    whole = access.stride == 1 and neighbours * size % VECTOR_BYTES == 0
    return whole and size <= 4 and load_width(access, neighbours) * size < VECTOR_BYTES


def load_width(access: Access, neighbours: int) -> int:
    elements = neighbours * access.stride
    width = VECTOR_BYTES // itemsize(access.dtype)
    while width > 1 and (elements % width or access.alignment % width):
        width //= 2
    return width


def access_of(load: ir.TensorLoad, axis: Line) -> Access | None:
    """A load as an access; None where it is not affine in the position, or is loop-invariant."""
    shape = [extent_of(n) for n in load.source.ty.shape]
    strides = [product(shape[d + 1 :]) for d in range(len(shape))]
    stride = _stride(load, strides, axis)
    if stride is None or stride < 1:
        return None
    analyzer = sym.Analyzer()
    zeros = {v: tirx.const(0, dtype_of(v)) for v in axis.parts}
    places = [analyzer.simplify(substitute(index, zeros)) for index in load.indices]
    lane = 0
    if stride > 1:
        last = load.indices[-1]
        if not (isinstance(last, prim.IntImm) and shape[-1] == stride):
            return None
        lane, places[-1] = int(last), tirx.const(0, INDEX)
    base: ir.Expr = tirx.const(0, INDEX)
    alignment = 0
    for place, step in zip(places, strides, strict=True):
        base = base + cast(place, INDEX) * as_index(step, INDEX)
        alignment = math.gcd(alignment, factor(place) * (step if isinstance(step, int) else 1))
    return Access(load.source, analyzer.simplify(base), alignment, stride, lane)


def factor(place: ir.Expr) -> int:
    """A number that divides an index, whatever the variables; 0 for the index 0."""
    found = sym.Analyzer().modular_set(place)
    return math.gcd(int(found.coeff), int(found.base))


def _stride(load: ir.TensorLoad, strides: list[Extent], axis: Line) -> int | None:
    """Elements between neighbours on the axis, where that is the same everywhere."""
    analyzer = sym.Analyzer()
    found: int | None = None
    steps: Extent = 1
    for var, extent in reversed(list(zip(axis.parts, axis.extents, strict=True))):
        total: Extent = 0
        for index, step in zip(load.indices, strides, strict=True):
            difference = analyzer.simplify(substitute(index, {var: var + 1}) - index)
            if not isinstance(difference, prim.IntImm):
                return None
            if int(difference) and not (isinstance(step, int) and isinstance(total, int)):
                return None
            total = total + int(difference) * step if int(difference) else total
        if extent == 1:
            continue
        if found is None:
            found = total
        elif not isinstance(steps, int) or total != found * steps:
            return None
        steps = product([steps, extent])
    return found


NO_LANES = line_of((), {})
"""Neighbours in memory are positions of the axis."""


def read_lanes(loads: list[ir.TensorLoad], axis: Line, rows: dict[tirx.Var, Extent]) -> Line:
    """The row variables along which memory is contiguous; none where the reduction axis is.

    Unfit where neighbours are neither.

    Parameters
    ----------
    loads : of the fold and of its outputs.
    rows : variables of rows -> extents.
    """
    apart = [load for load in loads if _lies_apart(load, axis)]
    for load in apart:
        trailing = _trailing(load, rows)
        for first in range(len(trailing)):
            lanes = line_of(trailing[first:], rows)
            # Or alike for all neighbours, as the weight of a position is for the features of a row.
            if all(access_of(other, lanes) is not None or not runs(other, *lanes.parts) for other in apart):
                return lanes
    for load in apart:
        if not _gathers(load, axis):
            raise Unfit(f"{load}: {axis.parts[-1].name} is not contiguous in memory, and no axis is one of rows")
    return NO_LANES


def streams_of(
    loads: list[ir.TensorLoad], axis: Line, lanes: Line, extents: dict[tirx.Var, Extent]
) -> tuple[Access, ...]:
    """One access for each array of structures that varies with the position, along the axis or along the lanes.

    Streams are read ahead at every point, whatever conditions say: what may lie outside of its tensor is none.

    Unfit where some run along rows, and another along the axis.

    Parameters
    ----------
    extents : of all variables.
    """
    found: list[Access] = []
    for load in loads:
        if not runs(load, *axis.parts):
            continue
        access = access_of(load, lanes if lanes.parts else axis)
        if access is None:
            _check_apart(load, lanes)
        elif _is_inside(load, extents) and not any(access.beside(other) for other in found):
            found.append(access)
    return tuple(found)


def is_whole(index: ir.Expr, size: ir.Expr, extents: Mapping[tirx.Var, Extent]) -> bool:
    """Whether an index into a dimension is a variable that runs over all of it."""
    return any(index.same_as(v) and same_extent(extents[v], extent_of(size)) for v in extents)


def _is_inside(load: ir.TensorLoad, extents: dict[tirx.Var, Extent]) -> bool:
    analyzer = sym.Analyzer()
    for var, extent in extents.items():
        analyzer.bind(var, ir.Range(tirx.const(0, dtype_of(var)), as_index(extent, dtype_of(var))))
    return all(
        loads_of(index)
        or is_whole(index, size, extents)
        or (analyzer.can_prove(index >= 0) and analyzer.can_prove(index < size))
        for index, size in zip(load.indices, load.source.ty.shape, strict=True)
    )


def _check_apart(load: ir.TensorLoad, lanes: Line) -> None:
    """Refuses lanes whose separate loads are far apart in memory."""
    last = len(load.indices) - 1
    if any(uses(index, lanes.parts) for index in load.indices[:last]) and not _gathers(load, lanes):
        raise Unfit(f"{load}: {lanes.parts[-1].name} is not contiguous in memory, as it is for other loads")


def _lies_apart(load: ir.TensorLoad, axis: Line) -> bool:
    along = [uses(index, axis.parts) for index in load.indices]
    return any(along) and not along[-1] and access_of(load, axis) is None


def _gathers(load: ir.TensorLoad, axis: Line) -> bool:
    return any(uses(inner, axis.parts) for index in load.indices for inner in loads_of(index))


def _trailing(load: ir.TensorLoad, rows: dict[tirx.Var, Extent]) -> tuple[tirx.Var, ...]:
    """The variables of rows that a load's last indices are, in their order in memory."""
    found: list[tirx.Var] = []
    for index, extent in reversed(list(zip(load.indices, load.source.ty.shape, strict=True))):
        if any(index.same_as(v) for v in rows) and not any(index.same_as(f) for f in found):
            found.insert(0, index)
        elif more_than_one(extent_of(extent)):
            break
    return tuple(found)
