"""Expressions of a program in SymPy: loads and conditions are symbols, all else has its algebra.

Casts between floats are left out, but for those to float8: a gradient passes straight through them, and is that of the
program without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import sympy as sp
import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.expression import Forms, selection_of
from tvm_cascade.analysis.index_sets import stay_within
from tvm_cascade.analysis.tir import (
    Extent,
    analyzer_of,
    dtype_of,
    is_float,
    loads_of,
    simplify_index,
    substitute,
    variables_of,
)
from tvm_cascade.symbolic.masks import TRUTH, Condition
from tvm_cascade.transform.printer import Printer, eager_selects


@dataclass
class Terms(Forms):
    """The symbols of loads and conditions; a condition's is 1 where it holds, and 0 elsewhere.

    Attributes
    ----------
    extents : of all variables.
    """

    extents: dict[tirx.Var, Extent] = field(default_factory=dict)

    def computes(self, expression: ir.Expr) -> bool:
        return is_float(dtype_of(expression))

    def passes(self, cast: prim.Cast) -> bool:
        dtype = dtype_of(cast)
        return is_float(dtype) and is_float(dtype_of(cast.value)) and not dtype.startswith("float8")

    def other(self, expression: ir.Expr) -> sp.Expr:
        if is_float(dtype_of(expression)) and (parts := selection_of(expression)) is not None:
            return self.where(parts[0], self.form(parts[1]), self.form(parts[2]))
        return self.leaf(expression)

    def symbol(self, expression: ir.Expr) -> sp.Symbol:
        name = expression.source.name if isinstance(expression, ir.TensorLoad) else "t"
        name = f"{name}_{len(self._leaves)}"
        is_condition = dtype_of(expression) == "bool"
        return Condition(name, **TRUTH) if is_condition else sp.Symbol(name, real=True)

    def where(self, condition: ir.Expr, chosen: sp.Expr, other: sp.Expr = sp.S.Zero) -> sp.Expr:
        """One value where a condition holds, another elsewhere."""
        if isinstance(condition, prim.IntImm):
            return chosen if int(condition) else other
        return sp.Piecewise((chosen, sp.Gt(self.leaf(condition), 0)), (other, True))

    def loads(self, expression: sp.Expr) -> list[tuple[sp.Symbol, ir.TensorLoad]]:
        """The symbols of loads of floats in an expression."""
        found = [(symbol, self.sources[symbol]) for symbol in sorted(expression.free_symbols, key=str)]
        return [(symbol, leaf) for symbol, leaf in found if isinstance(leaf, ir.TensorLoad)]

    def variables(self, expression: sp.Expr) -> list[tirx.Var]:
        """The variables that its leaves read, but for parameters of the function."""
        leaves = (self.sources[symbol] for symbol in sorted(expression.free_symbols, key=str))
        return [v for v in dict.fromkeys(v for leaf in leaves for v in variables_of(leaf)) if v in self.extents]

    def symbols_of(self, expression: sp.Expr, variables: Iterable[tirx.Var]) -> list[sp.Symbol]:
        """The symbols of an expression whose leaves read one of the variables."""
        chosen = {*variables}
        return [s for s in expression.free_symbols if not chosen.isdisjoint(variables_of(self.sources[s]))]

    def at(self, expression: sp.Expr, values: Mapping[tirx.Var, ir.Expr]) -> sp.Expr:
        """The expression at other places; conditions that hold there, or do not, are decided."""
        moved: dict[sp.Symbol, sp.Expr] = {}
        for symbol in self.symbols_of(expression, values):
            leaf = self._simplified(substitute(self.sources[symbol], dict(values)))
            moved[symbol] = sp.Integer(int(leaf)) if isinstance(leaf, prim.IntImm) else self.leaf(leaf)
        return expression.xreplace(moved)

    def _simplified(self, leaf: ir.Expr) -> ir.Expr:
        if isinstance(leaf, ir.TensorLoad):
            return tirx.BufferLoad(leaf.source, [simplify_index(index, self.extents) for index in leaf.indices])
        return simplify_index(leaf, self.extents)

    def printed(self, expression: sp.Expr, dtype: str, homes: Mapping[tirx.Var, tirx.Var]) -> ir.Expr:
        """The expression in TensorIR, computed in a dtype; a branch that reads out of range is not taken.

        Parameters
        ----------
        homes : buffers that are read instead of others.
        """
        leaves = {symbol: self.sources[symbol] for symbol in expression.free_symbols}
        for symbol, load in self.loads(expression):
            if load.source in homes:
                leaves[symbol] = tirx.BufferLoad(homes[load.source], list(load.indices))
        conditions = {s: leaf for s, leaf in leaves.items() if isinstance(s, Condition)}
        written = Printer(leaves, dtype, conditions)(expression)
        lazy = tvm_ffi.structural_map(
            written, (prim.Select, lambda s: tirx.if_then_else(s.condition, s.true_value, s.false_value))
        )
        return eager_selects(lazy, self._in_bounds)

    def _in_bounds(self, load: ir.TensorLoad) -> bool:
        extents = {v: self.extents[v] for i in load.indices for v in variables_of(i) if v in self.extents}
        if any(loads_of(index) for index in load.indices):
            return False
        return stay_within(load.indices, load.source.ty.shape, analyzer_of(extents))
