"""Floats as their bits, in TIR: what polynomials of either precision, and roundings to narrow types, are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tvm import ir, tirx

_FLOATS = {"int32": "float32", "int64": "float64"}
"""What integers are bound as: where a result is cast to an integer, TVM bounds lets of integers in it twice, and then
fails as the bounds differ."""


class Bindings:
    """Values that a formula uses more than once, to be computed once (`Let`), in order of definition."""

    def __init__(self) -> None:
        self._bound: list[tuple[tirx.Var, ir.Expr]] = []

    def __call__(self, value: ir.Expr) -> ir.Expr:
        dtype = str(value.ty.dtype)
        if dtype in _FLOATS:
            return tirx.reinterpret(dtype, self(tirx.reinterpret(_FLOATS[dtype], value)))
        var = tirx.Var("t", value.ty.dtype)
        self._bound.append((var, value))
        return var

    def around(self, result: ir.Expr) -> ir.Expr:
        for var, value in reversed(self._bound):
            result = tirx.Let(var, value, result)
        return result


@dataclass(frozen=True)
class FloatBits:
    """Expressions of a dtype of floats, and of the integers that are its bits.

    Attributes
    ----------
    dtype, integer : dtypes of its numbers, and of their bits.
    mantissa : bits of the mantissa.
    least_normal : the least normal number; 2^`lift` takes all below to normal ones.
    sqrt_half : the bits of √½.
    """

    dtype: str
    integer: str
    mantissa: int
    least_normal: float
    lift: int
    sqrt_half: int

    def __call__(self, value: float) -> ir.Expr:
        return tirx.const(value, self.dtype)

    def whole(self, value: int) -> ir.Expr:
        return tirx.const(value, self.integer)

    def bits(self, x: ir.Expr) -> ir.Expr:
        return tirx.reinterpret(self.integer, x)

    def of_bits(self, x: ir.Expr) -> ir.Expr:
        return tirx.reinterpret(self.dtype, x)

    def clamp(self, x: ir.Expr, least: float, greatest: float) -> ir.Expr:
        """x limited to [least, greatest]; NaN stays NaN (constants first)."""
        return tirx.max(self(least), tirx.min(self(greatest), x))

    def polynomial(self, coefficients: Sequence[float], x: ir.Expr) -> ir.Expr:
        value = self(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            value = value * x + self(coefficient)
        return value

    def split(self, x: ir.Expr, bind: Bindings) -> tuple[ir.Expr, ir.Expr]:
        """(k, f) with x = 2^k·(1 + f) and 1 + f in [√½, √2), for finite x > 0, denormal or not."""
        denormal, sqrt_half = x < self(self.least_normal), self.whole(self.sqrt_half)
        bits = bind(self.bits(tirx.Select(denormal, x * self(2.0**self.lift), x)) - sqrt_half)
        exponent = (bits >> self.whole(self.mantissa)).astype(self.dtype)
        k = bind(exponent - tirx.Select(denormal, self(self.lift), self(0.0)))
        f = bind(self.of_bits((bits & self.whole((1 << self.mantissa) - 1)) + sqrt_half) - self(1.0))
        return k, f

    def logarithm(self, x: ir.Expr, regular: ir.Expr) -> ir.Expr:
        """`regular` for finite x > 0, and what C's log gives elsewhere: -inf at 0, NaN below, x at +inf and NaN."""
        at_most_zero = tirx.Select(x == self(0.0), self(-math.inf), self(math.nan))
        return tirx.Select(x < self(math.inf), tirx.Select(x > self(0.0), regular, at_most_zero), x)


F32 = FloatBits("float32", "int32", mantissa=23, least_normal=2.0**-126, lift=23, sqrt_half=0x3F3504F3)
F64 = FloatBits("float64", "int64", mantissa=52, least_normal=2.0**-1022, lift=54, sqrt_half=0x3FE6A09E667F3BCD)
