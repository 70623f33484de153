"""Index maps turned around: at which points of a loop nest an element of a buffer is read.

| index at point v  | is y where                                        | is summed over        |
|-------------------|---------------------------------------------------|-----------------------|
| v                 | v = y                                             |                       |
| e + c, e − c, c − e | e = y − c, y + c, c − y                         |                       |
| c·e               | e = y/c, where c divides y                        |                       |
| e // c            | e = c·y + r                                       | r, from 0 to c − 1    |
| e mod c           | e = c·q + y                                       | q, as far as e goes   |
| c·e + f, 0 ≤ f < c | e = y // c and f = y mod c                       |                       |
| e + f, e − f      | e = y − f, y + f                                  | the variables of f    |
| of no variable, or of those that are known | it equals y, as where y is a class read from a table | |

Variables that no index has are summed over: a broadcast becomes a sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.tir import (
    Extent,
    analyzer_of,
    as_index,
    dtype_of,
    loads_of,
    more_than_one,
    simplify_index,
    substitute,
    uses,
    variables_of,
    zero_of,
)


@dataclass(frozen=True)
class Points:
    """The points at which an element y is read.

    Attributes
    ----------
    values : of the variables that y decides, in y and the variables of `free`.
    free : what y leaves open, with extents: variables of the nest, and new ones.
    condition : under which there is such a point; None where there always is.
    """

    values: dict[tirx.Var, ir.Expr]
    free: dict[tirx.Var, Extent]
    condition: ir.Expr | None


def points_of(
    indices: Sequence[ir.Expr], element: Mapping[tirx.Var, Extent], extents: Mapping[tirx.Var, Extent]
) -> Points | None:
    """Where `indices`, in variables of these extents, are those of an element; None where there is no formula for it.

    Parameters
    ----------
    element : y, a variable for each index, with the extents of the buffer.
    """
    search = _Search(dict(element), dict(extents))
    pending = [(index, y) for index, y in zip(indices, element, strict=True)]
    pending.sort(key=lambda pair: not isinstance(pair[0], ir.Var))
    if not all(search.solve(index, y) for index, y in pending):
        return None
    return search.found()


@dataclass
class _Search:
    element: dict[tirx.Var, Extent]
    open: dict[tirx.Var, Extent]
    values: dict[tirx.Var, ir.Expr] = field(default_factory=dict)
    kept: dict[tirx.Var, None] = field(default_factory=dict)
    conditions: list[ir.Expr] = field(default_factory=list)

    def solve(self, index: ir.Expr, y: ir.Expr) -> bool:
        """Notes what follows from index = y; whether that could be told."""
        index = simplify_index(substitute(index, self.values), {**self.element, **self.open})
        unknown = self._unknown(index)
        if not unknown:
            self._require(tirx.EQ(index, _as(y, index)))
            return True
        if isinstance(index, ir.Var):
            return self._bind(index, _as(y, index))
        if any(uses(load, unknown) for load in loads_of(index)):
            return False
        return self._peel(index, _as(y, index))

    def _peel(self, index: ir.Expr, y: ir.Expr) -> bool:
        """The same of an operation, from its operand."""
        if isinstance(index, (prim.Cast,)):
            return self.solve(index.value, y)
        a, b = (index.a, index.b) if hasattr(index, "a") else (None, None)
        if isinstance(index, (prim.Add, prim.Sub)):
            minus = isinstance(index, prim.Sub)
            if not self._unknown(b):
                return self.solve(a, y + b if minus else y - b)
            if not self._unknown(a):
                return self.solve(b, a - y if minus else y - a)
            if not minus and (self._digits(a, b, y) or self._digits(b, a, y)):
                return True
            self.kept.update(dict.fromkeys(self._unknown(b)))  # a is known where b is, whose variables stay open
            return self.solve(a, y + b if minus else y - b)
        if not isinstance(b, prim.IntImm) or int(b) <= 0:
            return False
        if isinstance(index, prim.Mul):
            self._require(tirx.EQ(tirx.floormod(y, b), tirx.const(0, dtype_of(y))))
            return self.solve(a, tirx.floordiv(y, b))
        if isinstance(index, prim.FloorDiv):
            return self.solve(a, y * b + self._new("r", int(b), dtype_of(y)))
        if isinstance(index, prim.FloorMod):
            most = self._analyzer.const_int_bound(a).max_value
            return self.solve(a, self._new("q", int(most) // int(b) + 1, dtype_of(y)) * b + y)
        return False

    def _digits(self, high: ir.Expr, low: ir.Expr, y: ir.Expr) -> bool:
        """Of c·e + f with 0 ≤ f < c: both sides are known."""
        if not isinstance(high, prim.Mul) or not isinstance(high.b, prim.IntImm):
            return False
        bound = self._analyzer.const_int_bound(low)
        if bound.min_value < 0 or bound.max_value >= int(high.b):
            return False
        return self.solve(high.a, tirx.floordiv(y, high.b)) and self.solve(low, tirx.floormod(y, high.b))

    def _bind(self, var: tirx.Var, value: ir.Expr) -> bool:
        extent = as_index(self.open.pop(var), dtype_of(value))
        self.values = {known: substitute(old, {var: value}) for known, old in self.values.items()} | {var: value}
        self.conditions = [substitute(condition, {var: value}) for condition in self.conditions]
        self._require(value >= tirx.const(0, dtype_of(value)))
        self._require(value < extent)
        return True

    def _unknown(self, expression: ir.Expr) -> list[tirx.Var]:
        return [var for var in variables_of(expression) if var in self.open and var not in self.kept]

    def _new(self, name: str, extent: Extent, dtype: str) -> tirx.Var:
        var = tirx.Var(name, dtype)
        self.open[var] = extent
        return var

    def _require(self, condition: ir.Expr) -> None:
        if not self._analyzer.can_prove(condition):
            self.conditions.append(condition)

    @property
    def _analyzer(self) -> ir.Object:
        return analyzer_of({**self.element, **self.open})

    def found(self) -> Points:
        for var in [var for var, extent in self.open.items() if not more_than_one(extent)]:
            self._bind(var, zero_of(var))
        analyzer = self._analyzer
        values = {var: simplify_index(value, {**self.element, **self.open}) for var, value in self.values.items()}
        conditions = [c for c in map(analyzer.simplify, self.conditions) if not analyzer.can_prove(c)]
        return Points(values, dict(self.open), reduce(tirx.And, conditions) if conditions else None)


def _as(y: ir.Expr, index: ir.Expr) -> ir.Expr:
    return y if dtype_of(y) == dtype_of(index) else y.astype(dtype_of(index))
