"""Accesses along an axis as one linear offset: tensor[base(row) + stride·position + lane].

x[i, l]          base i·L, stride 1               a thread reads neighbours at once
points[i, l, 2]  base i·3L, stride 3, lane 2      neighbours are triples
gain[l]          base 0, stride 1

The axis is that of the cascade, or the variables of rows where neighbours are those: x[l, i] has base l·I there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from tvm import ir, sym, tirx
from tvm.ir import prim

from tvm_cascade.analysis.extent import Extent, as_index, product
from tvm_cascade.analysis.tir import dtype_of, substitute
from tvm_cascade.transform.printer import cast

INDEX = "int64"
"""The dtype of offsets into memory."""

VECTOR_BYTES = 16
"""The widest load of a thread."""


@dataclass(frozen=True)
class Axis:
    """An axis that memory is read along: one loop or several, in row-major order of positions.

    Attributes
    ----------
    variables, extents : of the loops, outermost first.
    """

    variables: tuple[tirx.Var, ...]
    extents: tuple[Extent, ...]

    def at(self, position: ir.Expr) -> dict[tirx.Var, ir.Expr]:
        """The loops' variables at a position."""
        if len(self.variables) == 1:
            return {self.variables[0]: position}
        found: dict[tirx.Var, ir.Expr] = {}
        rest = position
        for var, extent in list(zip(self.variables, self.extents, strict=True))[:0:-1]:
            size = as_index(extent, dtype_of(rest))
            found[var] = tirx.floormod(rest, size)
            rest = tirx.floordiv(rest, size)
        return {self.variables[0]: rest, **found}


@dataclass(frozen=True)
class Access:
    """Elements of a tensor along the axis.

    Attributes
    ----------
    buffer : the tensor.
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
        """Of its elements, as they are moved."""
        return moved_dtype(dtype_of(self.buffer))

    @property
    def is_shared(self) -> bool:
        """Whether every row reads the same elements."""
        return isinstance(self.base, prim.IntImm) and int(self.base) == 0

    def beside(self, other: Access) -> bool:
        """Whether both accesses read the same array of structures."""
        same = self.buffer.same_as(other.buffer) and self.stride == other.stride
        return same and bool(sym.Analyzer().can_prove_equal(self.base, other.base))


def moved_dtype(dtype: str) -> str:
    """The dtype in which elements are copied; booleans are bytes, as CUDA has no boolean vectors."""
    return "uint8" if dtype == "bool" else dtype


def is_shifted(access: Access, neighbours: int) -> bool:
    """Whether vectors are not aligned to their widest load; those of 64-bit elements are read singly."""
    size = itemsize(access.dtype)
    whole = access.stride == 1 and neighbours * size % VECTOR_BYTES == 0
    return whole and size <= 4 and load_width(access, neighbours) * size < VECTOR_BYTES


def load_width(access: Access, neighbours: int) -> int:
    """Elements of one aligned load of a vector."""
    elements = neighbours * access.stride
    width = VECTOR_BYTES // itemsize(access.dtype)
    while width > 1 and (elements % width or access.alignment % width):
        width //= 2
    return width


def itemsize(dtype: str) -> int:
    """Bytes of an element."""
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def access_of(load: ir.TensorLoad, axis: Axis) -> Access | None:
    """A load as an access; None where it is not affine in the position, or is loop-invariant."""
    shape = load.source.ty.shape
    strides = _strides([_extent(n) for n in shape])
    stride = _stride(load, strides, axis)
    if stride is None or stride < 1:
        return None
    analyzer = sym.Analyzer()
    zeros = {v: tirx.const(0, dtype_of(v)) for v in axis.variables}
    places = [analyzer.simplify(substitute(index, zeros)) for index in load.indices]
    lane = 0
    if stride > 1:
        last = load.indices[-1]
        if not (isinstance(last, prim.IntImm) and _extent(shape[-1]) == stride):
            return None
        lane, places[-1] = int(last), tirx.const(0, INDEX)
    base: ir.Expr = tirx.const(0, INDEX)
    alignment = 0
    for place, step in zip(places, strides, strict=True):
        base = base + cast(place, INDEX) * as_index(step, INDEX)
        alignment = math.gcd(alignment, factor(place) * (step if isinstance(step, int) else 1))
    return Access(load.source, analyzer.simplify(base), alignment, stride, lane)


def _extent(extent: ir.Expr) -> Extent:
    return int(extent) if isinstance(extent, prim.IntImm) else extent


def _strides(shape: list[Extent]) -> list[Extent]:
    """Elements from one index to the next, by dimension, of a compact tensor."""
    return [product(shape[d + 1 :]) for d in range(len(shape))]


def factor(place: ir.Expr) -> int:
    """A number that divides an index, whatever the variables; 0 for the index 0."""
    found = sym.Analyzer().modular_set(place)
    return math.gcd(int(found.coeff), int(found.base))


def _stride(load: ir.TensorLoad, strides: list[Extent], axis: Axis) -> int | None:
    """Elements between neighbours on the axis, where that is the same everywhere."""
    analyzer = sym.Analyzer()
    found: int | None = None
    steps: Extent = 1
    for var, extent in reversed(list(zip(axis.variables, axis.extents, strict=True))):
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
