"""Emits steps over accumulator fragments of a warp group: symbols as TIR, per row and per register.

A thread has two rows of every accumulator and, in every eight columns, two neighbours (`tile.hopper.wgmma`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import sympy as sp
import tvm_ffi
from tvm import ir, sym, tirx
from tvm.ir import prim

from tvm_cascade.analysis.tir import dtype_of, loads_of, substitute
from tvm_cascade.transform.dead_tiles import inside_magnitude
from tvm_cascade.transform.printer import Printer, cast

# Exponentials in base 2 with loop-invariants hoisted: exp(k·r − c) = 2^((k·log₂e)·r + h), h once a row.
#
# The hardware has 2^x, and one fused multiply-add in front of it is all that an element then costs.


LOG2_E = sp.Float(math.log2(math.e), 17)


class Exp2(sp.Function):
    """2^x."""

    nargs = 1
    is_positive = True


class Clamped(sp.Function):
    """min(x, the largest number of the dtype): −inf·k + this is −inf, where −inf·k + inf would be NaN."""

    nargs = 1


def in_base_two(
    expression: sp.Expr, varies: Callable[[sp.Expr], bool], hoist: Callable[[sp.Expr], sp.Symbol], safe: bool = True
) -> sp.Expr:
    """The expression with every exponential that varies along a row in base 2, where that is safe.

    Parameters
    ----------
    varies : whether a term has a value per position.
    hoist : keeps a value per row and gives its symbol.
    safe : scaling the row's part by log₂e cannot overflow where the element is finite.
    """

    def convert(exponential: sp.Expr) -> sp.Expr:
        exponent = _distributed(exponential.args[0])
        if not varies(exponent) or not safe:  # SymPy would take (r − c)·log₂e apart, and both products may overflow
            return exponential
        terms = sp.Add.make_args(exponent)
        moving = sp.Add(*(t for t in terms if varies(t)))
        fixed = sp.Add(*(t for t in terms if not varies(t)))
        scaled = _distributed(moving * LOG2_E)
        return Exp2(scaled if fixed == 0 else scaled + hoist(Clamped(_distributed(fixed * LOG2_E))))

    return expression.replace(lambda e: isinstance(e, sp.exp), convert)


def _distributed(expression: sp.Expr) -> sp.Expr:
    """k·(r − c) as k·r − k·c; neither (r − c)² nor products of sums, of which the terms may cancel."""
    sums = {term: sum(factor.is_Add for factor in sp.Mul.make_args(term)) for term in sp.Add.make_args(expression)}
    return sp.Add(*(sp.expand_mul(term) if count == 1 else term for term, count in sums.items()))


DTYPE = "float32"
"""In which everything between two products is computed."""

ROWS = (0, 1)
NEIGHBOURS = (0, 1)
COLUMNS_PER_STEP = 8
QUAD = 4
"""Neighbouring lanes that share the columns of a row."""


def register_index(step: ir.Expr | int, row: int, neighbour: int) -> ir.Expr | int:
    return step * 4 + 2 * row + neighbour


class TilePrinter(Printer):
    """A printer with the expressions that only tiles have."""

    def __call__(self, expression: sp.Expr) -> ir.Expr:
        if isinstance(expression, Exp2):
            return tirx.exp2(self(expression.args[0]))
        if isinstance(expression, Clamped):
            return tirx.min(self(expression.args[0]), tirx.max_value(self.dtype))
        number, rest = expression.as_coeff_Mul()
        if number.is_Rational and not number.is_Integer and rest != 1:
            return prim.Mul(self(rest), self._constant(number))  # a fraction would cost a division by its denominator
        return super().__call__(expression)


class Symbols(Mapping[sp.Symbol, ir.Expr]):
    """Symbols by the first of several tables that has them; entries are computed lazily."""

    def __init__(self, *tables: Mapping[sp.Symbol, ir.Expr] | Mapping[sp.Symbol, Callable[[], ir.Expr]]) -> None:
        self.tables = tables

    def __getitem__(self, symbol: sp.Symbol) -> ir.Expr:
        for table in self.tables:
            if symbol in table:
                found = table[symbol]
                return found if isinstance(found, ir.Expr) else found()
        raise KeyError(symbol)

    def __iter__(self) -> Iterator[sp.Symbol]:
        return iter(dict.fromkeys(s for table in self.tables for s in table))

    def __len__(self) -> int:
        return len(list(iter(self)))


def placed(expression: ir.Expr, values: Mapping[tirx.Var, ir.Expr], buffers: Mapping[tirx.Var, Any]) -> ir.Expr:
    """An expression over the frame at a tile's coordinates, with loads from the kernel's own parameters."""

    def replace(load: ir.TensorLoad) -> ir.Expr:
        own = next((new for old, new in buffers.items() if old.same_as(load.source)), None)
        return load if own is None else tirx.BufferLoad(own, list(load.indices))

    at = {var: cast(value, dtype_of(var)) for var, value in values.items()}
    return tvm_ffi.structural_map(substitute(expression, at), (ir.TensorLoad, replace))


def integer_line(expression: ir.Expr, position: tirx.Var) -> int | None:
    """The slope of an integer in the position; None where it is not linear, or reads memory."""
    if not dtype_of(expression).startswith("int") or loads_of(expression):
        return None
    analyzer = sym.Analyzer()
    zero = tirx.const(0, dtype_of(position))
    rest = analyzer.simplify(substitute(expression, {position: zero}))
    slope = analyzer.simplify(substitute(expression, {position: zero + 1}) - rest)
    linear = analyzer.simplify(expression - rest - slope * position)
    if not (isinstance(slope, prim.IntImm) and isinstance(linear, prim.IntImm) and int(linear) == 0):
        return None
    return int(slope)


def as_number(expression: ir.Expr, position: tirx.Var, base: ir.Expr, offset: ir.Expr | int) -> ir.Expr | None:
    """An integer that is linear in the position as float(at base) + float(c·offset), with the conversion done once.

    Exact as long as the integer is below 2²⁴; or its absolute value. None where the expression is of neither kind.
    """
    if isinstance(expression, prim.Cast) and dtype_of(expression) == DTYPE:
        return as_number(expression.value, position, base, offset)
    if (inner := inside_magnitude(expression)) is not None:
        number = as_number(inner, position, base, offset)
        return None if number is None else tirx.abs(number)
    slope = integer_line(expression, position)
    if slope is None:
        return None
    start = substitute(expression, {position: cast(base, dtype_of(position))})
    return start.astype(DTYPE) + (tirx.const(slope, "int32") * offset).astype(DTYPE)
