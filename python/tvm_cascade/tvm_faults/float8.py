"""Casts to and from float8 in float32 arithmetic, since LLVM has none and TVM 0.27 generates wrong ones.

    v.astype("float8_e4m3fn")  ->  reinterpret("float8_e4m3fn", encoded(rounded(v)))
    w.astype("float32")        ->  decoded(reinterpret("uint8", w))

The faults: TVM's own arithmetic of bits knows neither zeros, subnormal numbers, infinities nor NaN, so that the 0 that
is loaded is 2^-7; and what a function allocates as float8 it keeps in float32, and rounds nothing.

`rounded` in the arithmetic of a float32 or float64 value: to nearest, ties to even, once, subnormal numbers included;
a narrower value is a float32 first. A normal float8's exponent and fraction are those of a float32 of another bias,
so that both ways are a shift and a sum; a subnormal one is an integer times the smallest. No float32 on the way is
subnormal, as fast mathematics take such for zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.expression import selection_of
from tvm_cascade.symbolic.rounding import FORMATS, Format
from tvm_cascade.tvm_faults.float_bits import F32, F64

_COMPUTED = {"float32": F32, "float64": F64}
"""Floats in which values are rounded."""

_FLOATS = ("float16", "bfloat16", "float32", "float64")

FLOAT8: dict[str, Format] = {name: kind for name, kind in FORMATS.items() if name.startswith("float8")}


def rounded(value: ir.Expr, kind: Format) -> ir.Expr:
    """A value of a wider float rounded to a float8 type, in float32."""
    constant = _COMPUTED.get(dtype := str(value.ty.dtype))
    if constant is None:
        return rounded(value.astype("float32"), kind)
    exponent = tirx.bitwise_and(constant.bits(value), constant.whole(-(1 << constant.mantissa)))
    scale = tirx.abs(constant.of_bits(exponent))
    step = tirx.max(prim.Mul(scale, constant(2.0 ** (1 - kind.bits))), constant(2.0**kind.smallest))
    nearest = prim.Mul(tirx.nearbyint(prim.Div(value, step)), step)
    beyond = tirx.Select(value > constant(0), constant(kind.overflow), constant(-kind.overflow))
    # A NaN fails the comparison with 0 as well, and must stay one.
    beyond = tirx.Select(tirx.isnan(value), value, beyond)
    result = tirx.Select(tirx.LE(tirx.abs(nearest), constant(kind.largest)), nearest, beyond)
    return result if dtype == "float32" else result.astype("float32")


def encoded(value: ir.Expr, kind: Format) -> ir.Expr:
    """The bits of a float32 value that the type can represent, as uint8."""
    sign = tirx.bitwise_and(prim.RShift(tirx.reinterpret("int32", value), F32.whole(24)), F32.whole(0x80))
    size = tirx.abs(value)
    subnormal = prim.Mul(size, F32(2.0**-kind.smallest)).astype("int32")
    exponents = prim.RShift(tirx.reinterpret("int32", size), F32.whole(24 - kind.bits))
    normal = prim.Sub(exponents, F32.whole(_rebias(kind) << (kind.bits - 1)))
    bits = tirx.Select(size < F32(2.0 ** (kind.smallest + kind.bits - 1)), subnormal, normal)
    bits = tirx.Select(tirx.LE(tirx.abs(value), F32(kind.largest)), bits, F32.whole(_special(kind)))
    if _special(kind) != _NAN:
        bits = tirx.Select(tirx.isnan(value), F32.whole(_NAN), bits)
    return tirx.bitwise_or(bits, sign).astype("uint8")


def decoded(bits: ir.Expr, kind: Format) -> ir.Expr:
    """The value of a float8's bits (uint8), in float32."""
    whole = bits.astype("int32")
    size = tirx.bitwise_and(whole, F32.whole(0x7F))
    subnormal = prim.Mul(size.astype("float32"), F32(2.0**kind.smallest))
    exponents = prim.Add(prim.LShift(size, F32.whole(24 - kind.bits)), F32.whole(_rebias(kind) << 23))
    grown = tirx.Select(size < F32.whole(1 << (kind.bits - 1)), subnormal, tirx.reinterpret("float32", exponents))
    value = tirx.Select(tirx.GE(size, F32.whole(_special(kind))), F32(kind.overflow), grown)
    if _special(kind) != _NAN:
        value = tirx.Select(size > F32.whole(_special(kind)), F32(math.nan), value)
    return tirx.Select(tirx.GE(whole, F32.whole(0x80)), prim.Mul(F32(-1.0), value), value)


def _special(kind: Format) -> int:
    """The bits of what overflow gives: a NaN has all of them, an infinity those of the exponent."""
    return _NAN if math.isnan(kind.overflow) else _NAN & -(1 << (kind.bits - 1))


def _rebias(kind: Format) -> int:
    """By how much the biases of the exponents differ: 2^-126 is the smallest normal float32."""
    return 126 + kind.smallest + kind.bits - 1


_NAN = 0x7F


def round_float8(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with every cast between float8 and another float rounded in float32 arithmetic.

    What the function allocates itself TVM keeps in float32, where a rounded value needs no bits.
    """

    def is_param(buffer: tirx.Var) -> bool:
        return any(buffer.same_as(param) for param in func.params)

    def rewrite(cast: prim.Cast) -> ir.Expr:
        source, target = str(cast.value.ty.dtype), str(cast.ty.dtype)
        if target in FLOAT8 and source in _FLOATS:
            return rounded(cast.value, FLOAT8[target]).astype(target)
        if source in FLOAT8 and target in _FLOATS:
            return _widened(cast, source, target, is_param)
        return cast

    def store(statement: tirx.BufferStore) -> tirx.Stmt:
        value = tvm_ffi.structural_map(statement.value, (prim.Cast, rewrite))
        value = _as_stored(value) if is_param(statement.buffer) else value
        return tirx.BufferStore(statement.buffer, value, list(statement.indices))

    def bind(statement: tirx.Bind) -> tirx.Stmt:
        return tirx.Bind(statement.var, tvm_ffi.structural_map(statement.value, (prim.Cast, rewrite)))

    return func.with_body(tvm_ffi.structural_map(func.body, [(tirx.BufferStore, store), (tirx.Bind, bind)]))


def _as_stored(value: ir.Expr) -> ir.Expr:
    """A value for the caller's buffer: what was just rounded to float8, by its bits."""
    kind = str(value.ty.dtype)
    if kind not in FLOAT8:
        return value
    if isinstance(value, prim.Cast):
        return tirx.reinterpret(kind, encoded(value.value, FLOAT8[kind]))
    if parts := selection_of(value):
        return tirx.Select(parts[0], _as_stored(parts[1]), _as_stored(parts[2]))
    return value


def _widened(cast: prim.Cast, source: str, target: str, is_param: Callable[[tirx.Var], bool]) -> ir.Expr:
    """A float8 in a wider dtype: from its bits where the caller stored it, and as it was rounded anywhere else."""
    inner = cast.value
    if isinstance(inner, ir.TensorLoad) and is_param(inner.source):
        value = decoded(tirx.reinterpret("uint8", inner), FLOAT8[source])
    elif isinstance(inner, prim.Cast):  # rounded in float32 a moment ago
        value = inner.value
    else:
        return cast
    return value if target == "float32" else value.astype(target)
