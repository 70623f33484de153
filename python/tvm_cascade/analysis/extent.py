"""Extents as integers where they are static, as integer expressions in shape variables elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import tvm_ffi
from tvm import ir, sym, tirx
from tvm.ir import prim

Extent: TypeAlias = int | ir.Expr


def extent_of(expression: ir.Expr | int) -> Extent:
    """A number for a constant, the expression itself otherwise."""
    return int(expression) if isinstance(expression, (int, prim.IntImm)) else expression


def same_extent(left: Extent, right: Extent) -> bool:
    """Whether two extents are equal whatever the shape variables are."""
    if isinstance(left, int) or isinstance(right, int):
        return isinstance(left, int) and isinstance(right, int) and left == right
    return bool(tvm_ffi.structural_equal(left, right)) or bool(sym.Analyzer().can_prove_equal(left, right))


def as_index(extent: Extent, dtype: str) -> ir.Expr:
    """An extent as an expression of a dtype."""
    if isinstance(extent, int):
        return tirx.const(extent, dtype)
    return extent if str(extent.ty.dtype) == dtype else extent.astype(dtype)


def ceil_div(extent: Extent, by: int) -> Extent:
    """How many parts of a size cover an extent."""
    if isinstance(extent, int):
        return -(-extent // by)
    return extent if by == 1 else sym.Analyzer().simplify(tirx.floordiv(extent + (by - 1), by))


def product(extents: Iterable[Extent]) -> Extent:
    """The product of extents; 1 of none."""
    number, rest = 1, None
    for extent in extents:
        if isinstance(extent, int):
            number *= extent
        else:
            rest = extent if rest is None else rest * extent
    return number if rest is None else rest if number == 1 else rest * number


def more_than_one(extent: Extent) -> bool:
    """Whether an extent may be more than 1."""
    return not isinstance(extent, int) or extent > 1
