"""Elementary functions that LLVM can vectorise, at a stated error.

LLVM turns `T.exp` inside a vectorised loop into one scalar libm call per lane. `vectorise_math` replaces such calls on
float32 by branch-free arithmetic: min, max, multiply-add, shift, reinterpret, select and at most one division. float64
and float16 are left alone: the one is where people want libm's accuracy, the other has its own lowering. bfloat16 is
computed in float32 (`lower_bfloat16`), so that its functions are replaced as well.

Methods
-------
exp, exp2
    Cody and Waite's range reduction x = n·ln2 + f, n the nearest integer and ln2 in two parts as in Cephes. The result
    is 2^(n-1)·p(f), p a polynomial of degree 5 for 2·e^f (exp2: 2·2^f) with p(0) = 2: halving the power and doubling
    the polynomial makes the product reach inf exactly where exp does, so the two infinities need no select.
log, log2
    As Cephes logf: x = 2^k·(1 + f) with 1 + f in [√½, √2), log(1 + f) = f − f²/2 + f³·p(f), p of degree 7.
tanh, erf
    x·P(x²)/Q(x²) on the interval where the function has not yet rounded to ±1, clamped outside.
sigmoid
    1 / (1 + exp(−x)).

Every polynomial minimises the greatest error of its function, in units in the last place (Remez exchange; linear
programming), with the coefficients rounded to float32 one after the other and the rest fitted again after each.

Specials are those of C's libm, NaN included. Results of exp and exp2 below 2^-125.5 (1.7e-38, just above the least
normal float32) are 0; log and log2 take denormal arguments.

Two things the code relies on. `tirx.max(c, x)` and `tirx.min(c, x)` give x when x is NaN: LLVM selects on an ordered
comparison, so the constant must come first. And TVM's simplifier treats float addition as associative, so a sum whose
rounding matters passes through integer bits (`_rounded`), which costs no instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import tvm_ffi
from tvm import ir, tirx

from tvm_cascade.analysis.expression import whole_exponent
from tvm_cascade.tvm_faults.bfloat16 import lower_bfloat16
from tvm_cascade.tvm_faults.float_bits import F32, Bindings

__all__ = ["ULP_BOUNDS", "VectorMath", "power_as_product", "powers_as_products", "vectorise_math"]

# Bound of the error against float64, in units in the last place of the float32 result, on CPUs with and without fused
# multiply-add (which LLVM forms wherever the target has it; errors are then up to a fifth smaller).
ULP_BOUNDS: dict[str, float] = {
    "exp": 2.25,
    "exp2": 2.25,
    "log": 1.0,
    "log2": 2.0,
    "tanh": 7.0,
    "sigmoid": 4.0,
    "erf": 8.0,
}

# Coefficients are in ascending order of power.
_TWICE_EXP = (2.0, 1.999998927116394, 0.9999828934669495, 0.3333635926246643, 0.08379700779914856, 0.016523972153663635)
_TWICE_EXP2 = (
    2.0,
    1.386293649673462,
    0.4804447591304779,
    0.11101792007684708,
    0.01934344321489334,
    0.002644912339746952,
)
_LOG_TAIL = (
    0.3333333134651184,
    -0.2500081956386566,
    0.2000124156475067,
    -0.1662341058254242,
    0.14201585948467255,
    -0.13159598410129547,
    0.12762142717838287,
    -0.07636362314224243,
)
_TANH_NUMERATOR = (1.0, 0.1338268667459488, 0.003497461089864373, 2.0635745386243798e-05, 1.3385053065917418e-08)
_TANH_DENOMINATOR = (1.0, 0.46716010570526123, 0.025884363800287247, 0.0003288518637418747, 7.79025526753685e-07)
_ERF_NUMERATOR = (
    1.128379225730896,
    0.19024580717086792,
    0.05271947383880615,
    0.003756242571398616,
    0.0002842461399268359,
    2.0455390767892823e-06,
)
_ERF_DENOMINATOR = (
    1.0,
    0.5019341707229614,
    0.11403514444828033,
    0.014951187185943127,
    0.0011594570241868496,
    3.8012596633052453e-05,
)
# Both functions round to 1 before these arguments. Their fits are a few ulp above 1 there, so that, whatever rounding
# does, a clamp of the result makes every larger argument give exactly 1.
_TANH_SATURATES = 9.3
_ERF_SATURATES = 4.05

_LOG2_E = 1.4426950408889634
_LN2_HIGH = 0.693359375  # nine significant bits, so n·_LN2_HIGH is exact for every exponent n
_LN2_LOW = -2.12194440e-4

# Adding this to |x| < 2^22 rounds x to an integer n and leaves n + 126 in the low bits: the exponent field of 2^(n-1).
_ROUND_TO_EXPONENT = 1.5 * 2.0**23 + 127 - 1
# Arguments outside give the same result as these: n = -126 gives 2^-127, whose bits are those of 0; 128 gives inf.
_EXP_LEAST, _EXP_GREATEST = -87.5, 89.0
_EXP2_LEAST, _EXP2_GREATEST = -126.0, 128.0


Formula = Callable[[ir.Expr, Bindings], ir.Expr]
"""(argument, where to bind what is used more than once) -> the function's value."""


def _rounded(x: ir.Expr) -> ir.Expr:
    """x, opaque to TVM's simplifier, which would cancel (x + c) - c."""
    return F32.of_bits(F32.bits(x))


def _half_power_of_two(shifted: ir.Expr) -> ir.Expr:
    """2^(n-1) from n + _ROUND_TO_EXPONENT, and 0 for n = -126."""
    return F32.of_bits(F32.bits(shifted) << F32.whole(F32.mantissa))


def _exp(x: ir.Expr, bind: Bindings) -> ir.Expr:
    x = bind(F32.clamp(x, _EXP_LEAST, _EXP_GREATEST))
    shifted = bind(_rounded(x * F32(_LOG2_E) + F32(_ROUND_TO_EXPONENT)))
    n = bind(shifted - F32(_ROUND_TO_EXPONENT))
    f = bind(x - n * F32(_LN2_HIGH) - n * F32(_LN2_LOW))
    return F32.polynomial(_TWICE_EXP, f) * _half_power_of_two(shifted)


def _exp2(x: ir.Expr, bind: Bindings) -> ir.Expr:
    x = bind(F32.clamp(x, _EXP2_LEAST, _EXP2_GREATEST))
    shifted = bind(_rounded(x + F32(_ROUND_TO_EXPONENT)))
    f = bind(x - (shifted - F32(_ROUND_TO_EXPONENT)))
    return F32.polynomial(_TWICE_EXP2, f) * _half_power_of_two(shifted)


def _sigmoid(x: ir.Expr, bind: Bindings) -> ir.Expr:
    return F32(1.0) / (F32(1.0) + _exp(-x, bind))


def _log(x: ir.Expr, bind: Bindings) -> ir.Expr:
    x = bind(x)
    k, f = F32.split(x, bind)
    correction = f * f * (f * F32.polynomial(_LOG_TAIL, f) - F32(0.5)) + k * F32(_LN2_LOW)
    return F32.logarithm(x, k * F32(_LN2_HIGH) + (f + correction))


def _log2(x: ir.Expr, bind: Bindings) -> ir.Expr:
    x = bind(x)
    k, f = F32.split(x, bind)
    log_of_mantissa = f + f * f * (f * F32.polynomial(_LOG_TAIL, f) - F32(0.5))
    return F32.logarithm(x, log_of_mantissa * F32(_LOG2_E) + k)


def _odd_rational(numerator: tuple[float, ...], denominator: tuple[float, ...], saturates: float) -> Formula:
    def formula(x: ir.Expr, bind: Bindings) -> ir.Expr:
        x = bind(F32.clamp(x, -saturates, saturates))
        square = bind(x * x)
        return F32.clamp(x * F32.polynomial(numerator, square) / F32.polynomial(denominator, square), -1.0, 1.0)

    return formula


_FORMULAS: dict[str, Formula] = {
    "exp": _exp,
    "exp2": _exp2,
    "log": _log,
    "log2": _log2,
    "tanh": _odd_rational(_TANH_NUMERATOR, _TANH_DENOMINATOR, _TANH_SATURATES),
    "sigmoid": _sigmoid,
    "erf": _odd_rational(_ERF_NUMERATOR, _ERF_DENOMINATOR, _ERF_SATURATES),
}

_POWERS = {"float16": "float32", "bfloat16": "float32", "float32": "float32", "float64": "float64"}
"""By dtype of a power, the dtype of its products."""

_NAMESPACES = ("tirx", "prim")  # TVM 0.27 has tirx.exp, but prim.log2


def vectorise_math(
    func: tirx.PrimFunc, names: Collection[str] = frozenset(ULP_BOUNDS)
) -> tuple[tirx.PrimFunc, tuple[str, ...]]:
    """Replace the float32 calls of exp, exp2, log, log2, tanh, sigmoid and erf by arithmetic that vectorises.

    Meant for functions that LLVM will compile; the result can be scheduled further.

    Parameters
    ----------
    func : tirx.PrimFunc
        Any PrimFunc, before or after scheduling. It is not modified.
    names : collection of str
        Functions among those that are replaced.

    Returns
    -------
    func : tirx.PrimFunc
        The rewritten function, or the same object when it has no such call.
    replaced : tuple of str
        Names of the functions that were replaced, sorted: keys of `ULP_BOUNDS`, which states their error.
    """
    replaced: set[str] = set()

    def rewrite(call: ir.Call) -> ir.Expr:
        namespace, _, name = call.op.name.partition(".") if isinstance(call.op, ir.Op) else ("", "", "")
        if namespace not in _NAMESPACES or name not in names or call.args[0].ty.dtype != "float32":
            return call
        replaced.add(name)
        bind = Bindings()
        return bind.around(_FORMULAS[name](call.args[0], bind))

    lowered = lower_bfloat16(func)
    if lowered is None:  # TVM's lowering of bfloat16 takes no lets
        return func, ()
    body = tvm_ffi.structural_map(lowered.body, (ir.Call, rewrite))
    return (func.with_body(body) if replaced else func), tuple(sorted(replaced))


def powers_as_products(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with x·x for pow(x, 2), and alike for all few factors, as folds have them; not modified.

    Parameters
    ----------
    func : a function that is not scheduled any more: schedule primitives do not know lets.
    """
    return func.with_body(tvm_ffi.structural_map(func.body, (ir.Call, power_as_product)))


def power_as_product(call: ir.Call) -> ir.Expr:
    """A power of few factors by squares and products, of a half in float32 and rounded once; another call as it is."""
    exponent = whole_exponent(call)
    if exponent is None or (dtype := str(call.ty.dtype)) not in _POWERS:
        return call
    factor = tirx.Var("factor", _POWERS[dtype])
    product: ir.Expr = factor
    for digit in bin(abs(exponent))[3:]:  # those after the first: each squares, and a one multiplies
        product = product * product if digit == "0" else product * product * factor
    if exponent < 0:
        product = tirx.const(1.0, _POWERS[dtype]) / product
    return tirx.Let(factor, call.args[0].astype(_POWERS[dtype]), product).astype(dtype)


@tirx.transform.prim_func_pass(opt_level=0, name="tvm_cascade.VectorMath")
class VectorMath:
    """`vectorise_math` on every PrimFunc of a module, as a pass."""

    def transform_function(self, func: tirx.PrimFunc, _module: ir.IRModule, _context: object) -> tirx.PrimFunc:
        """`func` rewritten, or the same object; called by TVM."""
        return vectorise_math(func)[0]
