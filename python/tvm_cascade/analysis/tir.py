"""Helpers on TensorIR expressions: dtype, loads, substitution, simplification of indices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import tvm
import tvm_ffi
from tvm import ir, sym, tirx
from tvm.ir import prim

DATA_PARALLEL, REDUCTION = tirx.IterVar.DataPar, tirx.IterVar.CommReduce

_LEAVES = (ir.Var, prim.IntImm, prim.FloatImm)
"""Most indices are one, which takes far less to look at than to walk."""

_WALK = tvm_ffi.get_global_func("ffi.StructuralWalk")
"""What `tvm_ffi.structural_walk` calls with numbers of types, which take it longer to find than most walks last."""

_LOADS, _VARIABLES = (
    tvm_ffi.core.TypeSchema.from_annotation(kind).origin_type_index for kind in (ir.TensorLoad, ir.Var)
)
_OUTERMOST_FIRST = int(tvm_ffi.structural.WalkOrder.PREORDER)


def same(left: ir.Expr, right: ir.Expr) -> bool:
    """Structural equality."""
    return bool(tvm_ffi.structural_equal(left, right))


def dtype_of(expression: ir.Expr) -> str:
    """The dtype of a scalar expression or of a buffer's elements."""
    ty = expression.ty
    return str(ty.dtype)


def loads_of(expression: ir.Expr) -> list[ir.TensorLoad]:
    """Every buffer load in an expression, outermost first."""
    if isinstance(expression, _LEAVES):
        return []
    found: list[ir.TensorLoad] = []
    _WALK(expression, ((_LOADS, found.append),), (), _OUTERMOST_FIRST)
    return found


def without_casts(expression: ir.Expr) -> ir.Expr:
    """What is cast, if the expression is a cast."""
    while isinstance(expression, prim.Cast):
        expression = expression.value
    return expression


def reads_buffer(expression: ir.Expr, buffer: tirx.Var) -> bool:
    """Whether the expression loads from the buffer."""
    return any(load.source.same_as(buffer) for load in loads_of(expression))


def variables_of(expression: ir.Expr) -> list[tirx.Var]:
    """The scalar variables of an expression."""
    if isinstance(expression, _LEAVES):
        return [expression] if isinstance(expression, ir.Var) and not tirx.is_buffer_var(expression) else []
    found: list[tirx.Var] = []

    def note(var: tirx.Var) -> None:
        if not tirx.is_buffer_var(var) and not any(var.same_as(other) for other in found):
            found.append(var)

    _WALK(expression, ((_VARIABLES, note),), (), _OUTERMOST_FIRST)
    return found


def uses(expression: ir.Expr, variables: Sequence[tirx.Var]) -> bool:
    """Whether any of the variables occurs in the expression."""
    return any(var.same_as(other) for var in variables_of(expression) for other in variables)


def substitute(expression: ir.Expr, values: dict[tirx.Var, ir.Expr]) -> ir.Expr:
    """The expression with variables replaced, all at once."""
    if isinstance(expression, (prim.IntImm, prim.FloatImm)):
        return expression

    def replace(var: tirx.Var) -> ir.Expr:
        return next((value for key, value in values.items() if key.same_as(var)), var)

    if isinstance(expression, ir.Var):
        return replace(expression)
    return tvm_ffi.structural_map(expression, (ir.Var, replace))


def simplify_index(expression: ir.Expr, extents: dict[tirx.Var, Extent]) -> ir.Expr:
    """An integer expression simplified, with each variable in [0, extent).

    A variable of extent 1 is kept, as if it had two values: which axis an index runs along must still be seen.
    """
    analyzer = tvm.sym.Analyzer()
    for var, extent in extents.items():
        last = as_index(max(extent, 2) if isinstance(extent, int) else extent, dtype_of(var))
        analyzer.bind(var, ir.Range(tirx.const(0, dtype_of(var)), last))
    return analyzer.simplify(expression)


# Extents as integers where they are static, as integer expressions in shape variables elsewhere.


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
