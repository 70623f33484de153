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
        """s·p(s²)."""
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
    """The bits of a float as an integer."""
    text = f"__device__ __forceinline__ int {_BITS}(float x) {{ return __float_as_int(x); }}\n"
    return T.cuda.func_call(_BITS, value, source_code=text, return_type="int32")


def find_near_zero(element_map: sp.Expr) -> NearZero | None:
    """The polynomial form of a map of small scores; None where it has no odd function of a scaled score."""
    for function in sorted(element_map.atoms(sp.Function), key=sp.default_sort_key):
        if len(function.args) != 1:
            continue
        rate = function.args[0].coeff(SCORE)
        if not rate.is_number or rate == 0 or function.args[0] != rate * SCORE or not _is_odd(function.func):
            continue
        fitted = _fit(function.func)
        if fitted is None:
            continue
        reach, coefficients = fitted
        scaled = tuple(c * float(rate) ** (2 * n + 1) for n, c in enumerate(coefficients))
        return NearZero(element_map.xreplace({function: NEAR}), function, scaled, reach / abs(float(rate)))
    return None


def _is_odd(function: type[sp.Function]) -> bool:
    x = sp.Symbol("x", positive=True)
    return bool(function(-x) == -function(x))


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


# 2^x by a polynomial for some elements: the special-function unit has an eighth of the FMA rate.
#
#     x = n + f,  |f| ≤ ½        n by adding 1.5·2²³ + 127, whose last bits then are n + 127: the exponent of 2^n
#     2^x = p(f)·2^n             p(0) = 1; infinite from 128 on, 0 up to −127, NaN of NaN
#
# Source: Shah et al., FlashAttention-4; the reduction is Cody and Waite's (1980).


EIGHTHS = 8
"""A share is so many of eight registers."""

_MAGIC = float(3 << 22) + 127
_COEFFICIENTS = (0.009582853, 0.055906426, 0.24024099, 0.6931242)
"""Of p from the highest power to the first: its relative error is at most 2.9e-6 (minimax, p(0) = 1)."""

_NAME = "exp2_by_polynomial"


def exp2_by_polynomial(exponent: ir.Expr) -> ir.Expr:
    """2^x of a float32, to a relative error of 2.9e-6."""
    return T.cuda.func_call(_NAME, exponent, source_code=_text(), return_type="float32")


def is_chosen(share: int, register: int) -> bool:
    """Whether a register's exponential uses the polynomial: an even spread over every eight."""
    return register * share % EIGHTHS < share


def shared_exp2(exponent: ir.Expr, share: int, step: ir.Expr, of_step: int) -> ir.Expr:
    """2^x of an accumulator register: by the polynomial for some of every eight.

    Parameters
    ----------
    step : eight columns, of which a thread has four registers.
    of_step : which of those.
    """
    even, odd = is_chosen(share, of_step), is_chosen(share, of_step + EIGHTHS // 2)
    if even != odd:
        by_polynomial = tirx.EQ(step % 2, 0 if even else 1)
        return tirx.Select(by_polynomial, exp2_by_polynomial(exponent), tirx.exp2(exponent))
    return exp2_by_polynomial(exponent) if even else tirx.exp2(exponent)


def _text() -> str:
    value = f"{_COEFFICIENTS[0]}f"
    for coefficient in _COEFFICIENTS[1:]:
        value = f"fmaf({value}, f, {coefficient}f)"
    return f"""
__device__ __forceinline__ float {_NAME}(float x) {{
  x = x < -127.0f ? -127.0f : x;
  x = x > 128.0f ? 128.0f : x;
  float shifted = x + {_MAGIC}f, f = x - (shifted - {_MAGIC}f);
  return fmaf({value}, f, 1.0f) * __int_as_float(__float_as_int(shifted) << 23);
}}
"""
