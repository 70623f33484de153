"""When the fused value of a guarded result may not be used, as an expression over results and the state.

    failed_d = d_fused may not be used, or a result that d reads has failed

A value may not be used where it, what it is finished from, or a result that its elements read, is infinite or NaN;
where a sum that it is finished from is so small that its terms may have vanished; and where the terms of its finish
cancel all but a few of their digits, or are exponentials of large exponents. Nor may it where a result that cancels in
its element is zero or not finite. Of a result that is bounded, but of
another class than the program's at infinities (`obligations.ends`), the first is all that decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import ml_dtypes
import sympy as sp
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.algebra.reducer import PROD, SUM
from tvm_cascade.analysis.extract import Group, Member
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.symbolic.functions import StickyInfinity
from tvm_cascade.transform.guarding import Guarding, cancelled_in, read_by
from tvm_cascade.transform.scope import accumulator_dtype

CANCELLED = 16.0
"""How many times smaller than its terms a sum of them may be, beyond the digits that its result does not keep."""

VANISHED = {"float32": 2.0**-100, "float64": 2.0**-960}
"""Below this a sum may have lost terms: the products of two that large are normal numbers of the dtype."""


def fails(
    guarded: Guarding,
    group: Group,
    member: Member,
    values: Mapping[sp.Symbol, ir.Expr],
    printer: Callable[[str], Callable[[sp.Expr], ir.Expr]],
) -> ir.Expr:
    """Whether the fused value of a member may not be used, by itself; see the table above.

    Parameters
    ----------
    group : with the fold that is computed.
    values : of its results, as they are stored, and of its components.
    printer : by dtype, what writes expressions of the fold's finish.
    """
    fold, fused, dtype = group.fold, values[member.result], _dtype_of(member)
    own = [fused] if _is_float(fused) else []  # a truth value and an integer are always in range
    expression, results = fold.finish[member.result], [values[result] for result in read_by(member, group.members)]
    results = [value for value in results if _is_float(value)]
    parts = [c for c in fold.components if c.symbol in expression.free_symbols and c.reducer in (SUM, PROD)]
    sums = [(one.reducer, value) for one in parts if _is_float(value := values[one.symbol])]
    divided = [value for result in cancelled_in(member, group) if _is_float(value := values[result])]
    zeros = [tirx.EQ(value, tirx.const(0, dtype_of(value))) for value in divided]
    if (told := guarded.at_infinities.get(member.result)) is not None:
        read = own if told and own else [*own, *(value for _, value in sums), *results]
        return reduce(tirx.Or, zeros, _leaves_range(_size(read, dtype)) if read else tirx.const(False, "bool"))
    failed: ir.Expr = tirx.const(False, "bool")
    for number, value in enumerate((*own, *results)):
        failed = tirx.Or(failed, _leaves_range(value)) if number else _leaves_range(value)
    for reducer, value in sums:
        failed, kept = tirx.Or(failed, _leaves_range(value)), dtype_of(value)
        if reducer is PROD or member.result in fold.deferred:
            failed = tirx.Or(failed, tirx.LT(tirx.abs(value), tirx.const(VANISHED[kept], kept)))
    if expression.has(sp.Add, sp.exp) and own:
        digits = float(ml_dtypes.finfo(dtype_of(fused)).eps) / float(ml_dtypes.finfo(dtype).eps)
        ends = {one.symbol: one.tracks for one in fold.references if one.tracks.as_coeff_Mul()[1].is_Symbol}
        least = printer(dtype)(size_of(expression, ends)) * tirx.const(1.0 / (CANCELLED * digits), dtype)
        failed = tirx.Or(failed, tirx.LT(tirx.abs(fused.astype(dtype)), least))
    return reduce(tirx.Or, zeros, failed)


def size_of(expression: sp.Expr, ends: Mapping[sp.Symbol, sp.Expr] = {}) -> sp.Expr:
    """The sum of the magnitudes of the terms that an expression adds up, products and powers taken apart.

    A rounding of a in exp(a) is one of a·exp(a): an exponential counts as often.

    Parameters
    ----------
    ends : what each reference stands in for, where that is a result or a multiple of one. Their difference is a step,
        and not two terms: the program's own elements read the quantity as it is.
    """

    def size(part: sp.Expr) -> sp.Expr:
        return size_of(part, ends)

    if isinstance(expression, sp.Add) and ends and expression.xreplace(dict(ends)) == 0:
        return sp.Abs(expression, evaluate=False)
    if isinstance(expression, (sp.Add, sp.Mul)):
        return expression.func(*map(size, expression.args))
    if isinstance(expression, sp.Piecewise):
        return sp.Piecewise(*((size(value), condition) for value, condition in expression.args), evaluate=False)
    if isinstance(expression, StickyInfinity):
        return size(expression.written_out)
    if isinstance(expression, sp.Pow) and expression.exp.is_integer and expression.exp.is_positive:
        return size(expression.base) ** expression.exp
    if isinstance(expression, sp.exp):
        return expression * (1 + sp.Abs(expression.args[0], evaluate=False))
    if isinstance(expression, sp.Pow):
        return sp.Abs(expression.base, evaluate=bool(expression.base.is_number)) ** expression.exp
    if expression.is_nonnegative:
        return expression
    return sp.Abs(expression, evaluate=bool(expression.is_number))  # SymPy may take what is in it for complex


def _dtype_of(member: Member) -> str:
    """The dtype in which the size of what a guard reads is computed."""
    dtype = dtype_of(member.stage.buffer)
    return accumulator_dtype(dtype) if "float" in dtype else "float32"


def _is_float(value: ir.Expr) -> bool:
    return "float" in dtype_of(value)


def _size(values: Sequence[ir.Expr], dtype: str) -> ir.Expr:
    """The sum of their magnitudes, which is finite where all are."""
    return reduce(prim.Add, (tirx.abs(value.astype(dtype)) for value in values))


def _leaves_range(value: ir.Expr) -> ir.Expr:
    """Whether a value is NaN, infinite or extreme; TVM takes the negation of a < b for a ≥ b, which no NaN is."""
    dtype = dtype_of(value)
    wide = accumulator_dtype(dtype)
    most = tirx.max_value(dtype) if wide == dtype else tirx.const(float(ml_dtypes.finfo(dtype).max), wide)
    value = value.astype(wide)
    return tirx.Or(tirx.isnan(value), tirx.GE(tirx.abs(value), most))
