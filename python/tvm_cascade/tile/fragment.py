"""Emits steps over accumulator fragments of a warp group: symbols as TIR, per row and per register.

A thread has two rows of every accumulator and, in every eight columns, two neighbours (`tile.hopper.wgmma`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import sympy as sp
import tvm_ffi
from tvm import ir, sym, tirx
from tvm.ir import prim

from tvm_cascade.analysis.tir import dtype_of, loads_of, substitute
from tvm_cascade.tile.binary import Clamped, Exp2
from tvm_cascade.transform.printer import Printer, cast

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
    """An expression over the frame at a tile's coordinates, with loads from the kernel's own parameters.

    Parameters
    ----------
    values : of the frame's variables, in any integer dtype.
    buffers : the program's tensors -> the kernel's own.
    """

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

    Exact as long as the integer is below 2²⁴. None where the expression is not of that kind.
    """
    slope = integer_line(expression, position)
    if slope is None:
        return None
    start = substitute(expression, {position: cast(base, dtype_of(position))})
    return start.astype(DTYPE) + (tirx.const(slope, "int32") * offset).astype(DTYPE)
