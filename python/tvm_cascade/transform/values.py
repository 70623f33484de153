"""TIR as a kind of value for the move of references, in one dtype."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import ir, tirx
from tvm.ir import prim

VANISHING_EXPONENT = {"float32": 256.0, "float64": 2048.0}
"""exp of minus this is zero even times the largest number of the dtype."""

SMALLEST_SCALE = {"float32": 1e-37, "float64": 1e-300}
"""Scales below this have no finite reciprocal."""


@dataclass(frozen=True)
class TirValues:
    """See `steps.move.Kind`; conditions are TIR, or known when the program is written."""

    dtype: str

    def number(self, value: float) -> ir.Expr:
        return tirx.const(value, self.dtype)

    def usable(self, value: ir.Expr, scale: bool) -> ir.Expr:
        """Whether a value is usable as a reference: finite, and for a scale with a finite reciprocal.

        The dtype's lowest and highest number are not: they are the values of an empty max or min.
        """
        finite = tirx.LT(tirx.abs(value), tirx.max_value(self.dtype))
        smallest = self.number(SMALLEST_SCALE[self.dtype])
        return tirx.And(finite, tirx.GE(tirx.abs(value), smallest)) if scale else finite

    def near(self, value: ir.Expr, other: ir.Expr, distance: int) -> ir.Expr:
        return tirx.LE(tirx.abs(prim.Sub(value, other)), self.number(distance))

    def but_not(self, condition: ir.Expr, excluded: ir.Expr | bool) -> ir.Expr:
        if isinstance(excluded, bool):
            return tirx.const(False, "bool") if excluded else condition
        return tirx.And(tirx.Not(excluded), condition)

    def choose(self, condition: ir.Expr | bool, value: ir.Expr, otherwise: ir.Expr) -> ir.Expr:
        if isinstance(condition, bool):
            return value if condition else otherwise
        return tirx.Select(condition, value, otherwise)

    def difference(self, new: ir.Expr, old: ir.Expr, decay: float | None) -> ir.Expr:
        """new − old; under a decay exp(±k·Δ), no further from zero than where that vanishes."""
        step = prim.Sub(new, old)
        if decay is None:
            return step
        furthest = VANISHING_EXPONENT[self.dtype] / decay
        return tirx.max(tirx.min(step, self.number(furthest)), self.number(-furthest))
