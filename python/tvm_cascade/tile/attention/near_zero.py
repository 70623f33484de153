"""Odd functions of scores as polynomials where a warp's scores are small, to save special functions.

    tanh(k·s)  =  s·p(s²)       |k·s| ≤ X,  p of three coefficients, to a relative error of 2⁻¹⁵

The largest |s| + |s′| of two neighbours in a tile tells which it is: sums are cheaper than maxima. Where one is
NaN or infinite, they are not small. Nothing here goes by name: a function is fitted where it is odd, and X is as far as
three coefficients reach.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import sympy as sp
from numpy.polynomial import Chebyshev, Polynomial
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.element import SCORE

NEAR = sp.Symbol("near", real=True)
"""The function of a small score."""

_TERMS = 3
_ERROR = 2.0**-15
"""Relative, of the polynomial; the hardware's own tanh has 2⁻¹¹."""

_FURTHEST, _NEAREST, _STEP = 4.0, 0.125, 2.0**-0.125
_BITS = "bits_of_float"


@dataclass(frozen=True)
class NearZero:
    """A map of scores whose function is a polynomial where scores are small.

    Attributes
    ----------
    map : in terms of `NEAR` in place of the function, and else as it was.
    function : what `NEAR` is, in terms of `SCORE`.
    coefficients : of s·p(s²), from the lowest power on.
    largest : of |s|.
    """

    map: sp.Expr
    function: sp.Expr
    coefficients: tuple[float, ...]
    largest: float

    def value(self, score: ir.Expr) -> ir.Expr:
        square, found = score * score, tirx.const(self.coefficients[-1], "float32")
        for coefficient in self.coefficients[-2::-1]:
            found = found * square + tirx.const(coefficient, "float32")
        return score * found

    @property
    def largest_bits(self) -> int:
        """The bits of the largest |s|: those of numbers that are not negative are ordered as these are, NaN last."""
        return int(np.float32(self.largest).view(np.int32))

    def __str__(self) -> str:
        return f"near zero {self.function} by {len(self.coefficients)} coefficients where |score| ≤ {self.largest:.3g}"


def bits_of(value: ir.Expr) -> ir.Expr:
    text = f"__device__ __forceinline__ int {_BITS}(float x) {{ return __float_as_int(x); }}\n"
    return T.cuda.func_call(_BITS, value, source_code=text, return_type="int32")


def find_near_zero(element_map: sp.Expr) -> NearZero | None:
    """The polynomial form of a map of small scores; None where it has no odd function of a scaled score."""
    x = sp.Symbol("x", positive=True)
    for function in sorted(element_map.atoms(sp.Function), key=sp.default_sort_key):
        if len(function.args) != 1:
            continue
        rate = function.args[0].coeff(SCORE)
        if not rate.is_number or rate == 0 or function.args[0] != rate * SCORE:
            continue
        is_odd = function.func(-x) == -function.func(x)
        fitted = _fit(function.func) if is_odd else None
        if fitted is None:
            continue
        reach, coefficients = fitted
        scaled = tuple(c * float(rate) ** (2 * n + 1) for n, c in enumerate(coefficients))
        return NearZero(element_map.xreplace({function: NEAR}), function, scaled, reach / abs(float(rate)))
    return None


@functools.cache
def _fit(function: type[sp.Function]) -> tuple[float, tuple[float, ...]] | None:
    """(X, coefficients of p) with f(x) = x·p(x²) for |x| ≤ X, as far as the error allows; None if not far."""
    x = sp.Symbol("x", positive=True)
    value = np.vectorize(sp.lambdify(x, function(x), "math"), otypes=[float])
    reach = _FURTHEST
    while reach >= _NEAREST:
        with np.errstate(all="ignore"):
            polynomial = _interpolated(value, reach)
            points = np.linspace(reach / 256, reach, 256)
            errors = np.abs(polynomial(points**2) * points / value(points) - 1)
        if np.isfinite(errors).all() and errors.max() <= _ERROR:
            return reach, tuple(float(c) for c in polynomial.coef)
        reach *= _STEP
    return None


def _interpolated(value: np.vectorize, reach: float) -> Polynomial:
    """p through f(x)/x at the Chebyshev nodes of x² in [0, reach²]."""

    def quotient(square: np.ndarray) -> np.ndarray:
        return value(np.sqrt(square)) / np.sqrt(square)

    return Chebyshev.interpolate(quotient, _TERMS - 1, [0, reach**2]).convert(kind=Polynomial)
