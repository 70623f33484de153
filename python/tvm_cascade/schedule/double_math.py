"""Elementary functions of float64 by arithmetic alone, for GPUs whose code generator has none.

exp, exp2
    2^n·p(f): n the nearest integer to x/ln2, f the rest, p the Taylor polynomial of degree 13. 2^n is two factors, so
    that results below the least normal number and up to the greatest are reached.
log, log2, log10
    x = 2^k·(1 + f), 1 + f in [√½, √2); log(1 + f) = f − f²/2 + s·(f²/2 + Σ 2·s^2j/(2j + 1)) with s = f/(2 + f).
tanh
    e/(e + 2) with e = exp(2x) − 1, taken without its first term.
sigmoid
    1/(1 + exp(−x)).

Errors are below 4 units in the last place. Specials are those of C's libm, NaN included.
"""

from __future__ import annotations

import math

from tvm import ir, tirx

from tvm_cascade.schedule.vector_math import Bindings, Formula

_MANTISSA_BITS, _BIAS = 52, 1023
_MANTISSA_MASK = (1 << _MANTISSA_BITS) - 1
_BITS_OF_SQRT_HALF = 0x3FE6A09E667F3BCD
_LEAST_NORMAL = 2.0**-1022
_DENORMAL_SCALE = 54

_LOG2_E = math.log2(math.e)
_LN2_HIGH = 0.6931471803691238  # 32 significant bits, so that n·_LN2_HIGH is exact for every exponent n
_LN2_LOW = 1.9082149292705877e-10

_ROUND = 1.5 * 2.0**_MANTISSA_BITS
"""Adding this to |x| < 2^51 rounds x to an integer, which then stands in the low bits."""

_EXP_DEGREE = 13
_LOG_TERMS = 11
_EXP_LEAST, _EXP_GREATEST = -746.0, 710.0
_TANH_SATURATES = 44.0
"""Twice an argument from which on tanh rounds to 1."""


def _f64(value: float) -> ir.Expr:
    return tirx.const(value, "float64")


def _i64(value: int) -> ir.Expr:
    return tirx.const(value, "int64")


def _bits(x: ir.Expr) -> ir.Expr:
    return tirx.reinterpret("int64", x)


def _from_bits(x: ir.Expr) -> ir.Expr:
    return tirx.reinterpret("float64", x)


def _power_of_two(exponent: ir.Expr) -> ir.Expr:
    """2^exponent, for an int64 among those of normal numbers."""
    return _from_bits((exponent + _i64(_BIAS)) << _i64(_MANTISSA_BITS))


def _polynomial(terms: list[float], x: ir.Expr) -> ir.Expr:
    value = _f64(terms[-1])
    for term in reversed(terms[:-1]):
        value = value * x + _f64(term)
    return value


def _reduced(x: ir.Expr, bind: Bindings) -> tuple[ir.Expr, ir.Expr]:
    """(n, f) with x = n·ln2 + f, n the nearest integer to x/ln2, as an int64."""
    # By way of bits, as TVM's simplifier takes float addition to be associative.
    shifted = bind(_bits(x * _f64(_LOG2_E) + _f64(_ROUND)))
    count = bind(_from_bits(shifted) - _f64(_ROUND))
    return bind(shifted - _bits(_f64(_ROUND))), bind(x - count * _f64(_LN2_HIGH) - count * _f64(_LN2_LOW))


def _without_one(f: ir.Expr) -> ir.Expr:
    """exp(f) − 1 for |f| ≤ ln2/2."""
    return f * _polynomial([1 / math.factorial(k) for k in range(1, _EXP_DEGREE + 1)], f)


def _exp(x: ir.Expr, bind: Bindings) -> ir.Expr:
    # Constants first: a NaN then stays one.
    exponent, f = _reduced(bind(tirx.max(_f64(_EXP_LEAST), tirx.min(_f64(_EXP_GREATEST), x))), bind)
    half = bind(exponent >> _i64(1))
    return (_f64(1.0) + _without_one(f)) * _power_of_two(half) * _power_of_two(exponent - half)


def _exp2(x: ir.Expr, bind: Bindings) -> ir.Expr:
    x = bind(tirx.max(_f64(_EXP_LEAST * _LOG2_E), tirx.min(_f64(_EXP_GREATEST * _LOG2_E), x)))
    shifted = bind(_bits(x + _f64(_ROUND)))
    exponent, f = bind(shifted - _bits(_f64(_ROUND))), bind(x - (_from_bits(shifted) - _f64(_ROUND)))
    half = bind(exponent >> _i64(1))
    power = _f64(1.0) + _without_one(bind(f * _f64(math.log(2.0))))
    return power * _power_of_two(half) * _power_of_two(exponent - half)


def _logarithm(base: float) -> Formula:
    per_unit, per_power = 1 / math.log(base), math.log(2.0) / math.log(base)

    def formula(x: ir.Expr, bind: Bindings) -> ir.Expr:
        x = bind(x)
        denormal = x < _f64(_LEAST_NORMAL)
        scaled = tirx.Select(denormal, x * _f64(2.0**_DENORMAL_SCALE), x)
        bits = bind(_bits(scaled) - _i64(_BITS_OF_SQRT_HALF))
        exponent = (bits >> _i64(_MANTISSA_BITS)).astype("float64")
        k = bind(exponent - tirx.Select(denormal, _f64(_DENORMAL_SCALE), _f64(0.0)))
        f = bind(_from_bits((bits & _i64(_MANTISSA_MASK)) + _i64(_BITS_OF_SQRT_HALF)) - _f64(1.0))
        s, half_square = bind(f / (_f64(2.0) + f)), bind(f * f * _f64(0.5))
        z = bind(s * s)
        series = z * _polynomial([2 / (2 * j + 1) for j in range(1, _LOG_TERMS + 1)], z)
        low = bind(s * (half_square + series))
        if base == math.e:
            regular = k * _f64(_LN2_HIGH) - ((half_square - (low + k * _f64(_LN2_LOW))) - f)
        else:
            regular = k * _f64(per_power) + (f - (half_square - low)) * _f64(per_unit)
        at_most_zero = tirx.Select(x == _f64(0.0), _f64(-math.inf), _f64(math.nan))
        return tirx.Select(x < _f64(math.inf), tirx.Select(x > _f64(0.0), regular, at_most_zero), x)

    return formula


def _tanh(x: ir.Expr, bind: Bindings) -> ir.Expr:
    twice = bind(tirx.max(_f64(-_TANH_SATURATES), tirx.min(_f64(_TANH_SATURATES), x + x)))
    exponent, f = _reduced(twice, bind)
    scale = bind(_power_of_two(exponent))
    less_one = bind(scale * _without_one(f) + (scale - _f64(1.0)))
    return less_one / (less_one + _f64(2.0))


def _sigmoid(x: ir.Expr, bind: Bindings) -> ir.Expr:
    return _f64(1.0) / (_f64(1.0) + _exp(_f64(0.0) - x, bind))


FLOAT64_FORMULAS: dict[str, Formula] = {
    "exp": _exp,
    "exp2": _exp2,
    "log": _logarithm(math.e),
    "log2": _logarithm(2.0),
    "log10": _logarithm(10.0),
    "tanh": _tanh,
    "sigmoid": _sigmoid,
}
