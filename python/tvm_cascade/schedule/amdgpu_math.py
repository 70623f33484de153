"""Elementary functions on AMD GPUs, without ROCm's device libraries.

    exp(x), log2(x), sqrt(x), …                ->   as they are: LLVM has instructions for them
    tanh(x), sigmoid(x), erf(x) in float32     ->   polynomials, as for vectors of a CPU (`vector_math`)
    the same in float16                        ->   in float32, rounded
    exp(x), log(x), tanh(x), … in float64      ->   polynomials
    pow(x, 3)                                  ->   x * x * x

TVM's own tanh and erf there lose the digits of small arguments. Its other functions call libraries that are not there,
or end the process: LLVM has no float64 exponential for these GPUs.
"""

from __future__ import annotations

import math

import tvm_ffi
from tvm import ir, tirx

from tvm_cascade.analysis.expression import call_name, whole_exponent
from tvm_cascade.analysis.tir import within
from tvm_cascade.errors import InputError
from tvm_cascade.schedule.vector_math import Formula, power_as_product, vectorise_math
from tvm_cascade.tvm_faults.float_bits import F64, Bindings

_EVERYWHERE = frozenset(
    ["floor", "ceil", "trunc", "round", "nearbyint", "fabs", "abs", "sqrt", "rsqrt", "isnan", "isinf", "isfinite"]
)
_NARROW = _EVERYWHERE | {"exp", "exp2", "log", "log2", "log10"}
INSTRUCTIONS = {"float16": _NARROW, "bfloat16": _NARROW, "float32": _NARROW, "float64": _EVERYWHERE}
"""By dtype, the functions that LLVM selects instructions for."""

FORMULAS = frozenset({"tanh", "sigmoid", "erf"})
"""Functions that are computed by polynomials in float32."""

_FORMULA_DTYPES = ("float16", "bfloat16", "float32")

_EXPONENTIAL = frozenset({"exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "pow", "sigmoid", "erf"})
_CIRCULAR = frozenset({"sin", "cos", "tan", "asin", "acos", "atan", "atan2"})
_HYPERBOLIC = frozenset({"sinh", "cosh", "tanh", "asinh", "acosh", "atanh"})
_ELEMENTARY = _EXPONENTIAL | _CIRCULAR | _HYPERBOLIC | {"fmod", "hypot", "nextafter", "copysign", "ldexp"}
"""Functions that TVM calls a library for where it knows no instruction."""


def lower_amdgpu_math(func: tirx.PrimFunc, name: str) -> tuple[tirx.PrimFunc, tuple[str, ...]]:
    """The function with nothing in it that needs a library of elementary functions; and what polynomials replace.

    Parameters
    ----------
    func : before or after scheduling; it is not modified.
    name : its own, for the error.

    Raises
    ------
    InputError
        When a function has neither instructions nor a formula in its dtype.
    """
    for call in within(func.body, ir.Call):
        if call_name(call) in _ELEMENTARY and not _is_computed(call):
            expected = "functions that an AMD GPU computes without ROCm's device libraries"
            hint = f"compute it by {', '.join(sorted(_NARROW - _EVERYWHERE))} of float32, or compile for the CPU"
            raise InputError(expected, f"`{call_name(call)}` of {call.ty.dtype}", f"function `{name}`", hint)
    body = tvm_ffi.structural_map(func.body, (ir.Call, _lowered))
    return vectorise_math(func.with_body(body), FORMULAS)


def _is_computed(call: ir.Call) -> bool:
    function, dtype = call_name(call), str(call.ty.dtype)
    if function == "pow":
        return whole_exponent(call) is not None
    formulas = FLOAT64_FORMULAS if dtype == "float64" else FORMULAS if dtype in _FORMULA_DTYPES else ()
    return function in INSTRUCTIONS.get(dtype, ()) or function in formulas


def _lowered(call: ir.Call) -> ir.Expr:
    function, dtype = call_name(call), str(call.ty.dtype) if isinstance(call.ty, ir.PrimType) else ""
    if function == "pow":
        return power_as_product(call)
    if function in FLOAT64_FORMULAS and dtype == "float64":
        bind = Bindings()
        return bind.around(FLOAT64_FORMULAS[function](call.args[0], bind))
    if function in FORMULAS and dtype == "float16":
        return ir.Call(call.op, [call.args[0].astype("float32")], ret_ty=ir.PrimType("float32")).astype(dtype)
    return call


# Elementary functions of float64 by arithmetic alone, for GPUs whose code generator has none.
#
# exp, exp2
#     2^n·p(f): n the nearest integer to x/ln2, f the rest, p the Taylor polynomial of degree 13. 2^n is two factors, so
#     that results below the least normal number and up to the greatest are reached.
# log, log2, log10
#     x = 2^k·(1 + f), 1 + f in [√½, √2); log(1 + f) = f − f²/2 + s·(f²/2 + Σ 2·s^2j/(2j + 1)) with s = f/(2 + f).
# tanh
#     e/(e + 2) with e = exp(2x) − 1, taken without its first term.
# sigmoid
#     1/(1 + exp(−x)).
#
# Errors are below 4 units in the last place. Specials are those of C's libm, NaN included.


_BIAS = 1023

_LOG2_E = math.log2(math.e)
_LN2_HIGH = 0.6931471803691238  # 32 significant bits, so that n·_LN2_HIGH is exact for every exponent n
_LN2_LOW = 1.9082149292705877e-10

_ROUND = 1.5 * 2.0**52
"""Adding this to |x| < 2^51 rounds x to an integer, which then stands in the low bits."""

_EXP_DEGREE = 13
_LOG_TERMS = 11
_EXP_LEAST, _EXP_GREATEST = -746.0, 710.0
_TANH_SATURATES = 44.0
"""Twice an argument from which on tanh rounds to 1."""


def _power_of_two(exponent: ir.Expr) -> ir.Expr:
    """2^exponent, for an int64 among those of normal numbers."""
    return F64.of_bits((exponent + F64.whole(_BIAS)) << F64.whole(F64.mantissa))


def _reduced(x: ir.Expr, bind: Bindings) -> tuple[ir.Expr, ir.Expr]:
    """(n, f) with x = n·ln2 + f, n the nearest integer to x/ln2, as an int64."""
    # By way of bits, as TVM's simplifier takes float addition to be associative.
    shifted = bind(F64.bits(x * F64(_LOG2_E) + F64(_ROUND)))
    count = bind(F64.of_bits(shifted) - F64(_ROUND))
    return bind(shifted - F64.bits(F64(_ROUND))), bind(x - count * F64(_LN2_HIGH) - count * F64(_LN2_LOW))


def _without_one(f: ir.Expr) -> ir.Expr:
    """exp(f) − 1 for |f| ≤ ln2/2."""
    return f * F64.polynomial([1 / math.factorial(k) for k in range(1, _EXP_DEGREE + 1)], f)


def _exp(x: ir.Expr, bind: Bindings) -> ir.Expr:
    exponent, f = _reduced(bind(F64.clamp(x, _EXP_LEAST, _EXP_GREATEST)), bind)
    half = bind(exponent >> F64.whole(1))
    return (F64(1.0) + _without_one(f)) * _power_of_two(half) * _power_of_two(exponent - half)


def _exp2(x: ir.Expr, bind: Bindings) -> ir.Expr:
    x = bind(F64.clamp(x, _EXP_LEAST * _LOG2_E, _EXP_GREATEST * _LOG2_E))
    shifted = bind(F64.bits(x + F64(_ROUND)))
    exponent, f = bind(shifted - F64.bits(F64(_ROUND))), bind(x - (F64.of_bits(shifted) - F64(_ROUND)))
    half = bind(exponent >> F64.whole(1))
    power = F64(1.0) + _without_one(bind(f * F64(math.log(2.0))))
    return power * _power_of_two(half) * _power_of_two(exponent - half)


def _logarithm(base: float) -> Formula:
    per_unit, per_power = 1 / math.log(base), math.log(2.0) / math.log(base)

    def formula(x: ir.Expr, bind: Bindings) -> ir.Expr:
        x = bind(x)
        k, f = F64.split(x, bind)
        s, half_square = bind(f / (F64(2.0) + f)), bind(f * f * F64(0.5))
        z = bind(s * s)
        series = z * F64.polynomial([2 / (2 * j + 1) for j in range(1, _LOG_TERMS + 1)], z)
        low = bind(s * (half_square + series))
        if base == math.e:
            regular = k * F64(_LN2_HIGH) - ((half_square - (low + k * F64(_LN2_LOW))) - f)
        else:
            regular = k * F64(per_power) + (f - (half_square - low)) * F64(per_unit)
        return F64.logarithm(x, regular)

    return formula


def _tanh(x: ir.Expr, bind: Bindings) -> ir.Expr:
    twice = bind(F64.clamp(x + x, -_TANH_SATURATES, _TANH_SATURATES))
    exponent, f = _reduced(twice, bind)
    scale = bind(_power_of_two(exponent))
    less_one = bind(scale * _without_one(f) + (scale - F64(1.0)))
    return less_one / (less_one + F64(2.0))


def _sigmoid(x: ir.Expr, bind: Bindings) -> ir.Expr:
    return F64(1.0) / (F64(1.0) + _exp(F64(0.0) - x, bind))


FLOAT64_FORMULAS: dict[str, Formula] = {
    "exp": _exp,
    "exp2": _exp2,
    "log": _logarithm(math.e),
    "log2": _logarithm(2.0),
    "log10": _logarithm(10.0),
    "tanh": _tanh,
    "sigmoid": _sigmoid,
}
