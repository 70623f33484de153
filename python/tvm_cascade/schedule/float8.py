"""Casts to and from float8: LLVM has none, and what TVM 0.27 generates rounds nothing, and reads a stored 0 as 1/128.

    v.astype("float8_e4m3fn")  ->  reinterpret("float8_e4m3fn", encoded(rounded(v)))
    w.astype("float32")        ->  decoded(reinterpret("uint8", w))

`rounded` in float32 arithmetic: to nearest, ties to even, subnormal numbers included. A float8's exponent and fraction
are those of a float32 of another bias, so that both ways are a shift and a multiplication by a power of two.
"""

from __future__ import annotations

import math

import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.algebra.rounding import FORMATS, Format

_EXPONENT_BITS = -(1 << 23)  # of a float32: its sign and its exponent


FLOAT8: dict[str, Format] = {name: kind for name, kind in FORMATS.items() if name.startswith("float8")}


def rounded(value: ir.Expr, kind: Format) -> ir.Expr:
    """A float32 value rounded to a float8 type, in float32."""
    exponent = tirx.bitwise_and(tirx.reinterpret("int32", value), tirx.const(_EXPONENT_BITS, "int32"))
    scale = tirx.abs(tirx.reinterpret("float32", exponent))
    step = tirx.max(prim.Mul(scale, _constant(2.0 ** (1 - kind.bits))), _constant(2.0**kind.smallest))
    nearest = prim.Mul(tirx.nearbyint(prim.Div(value, step)), step)
    beyond = tirx.Select(value > _constant(0), _constant(kind.overflow), _constant(-kind.overflow))
    # A NaN fails the comparison with 0 as well, and must stay one.
    beyond = tirx.Select(tirx.isnan(value), value, beyond)
    return tirx.Select(tirx.LE(tirx.abs(nearest), _constant(kind.largest)), nearest, beyond)


def encoded(value: ir.Expr, kind: Format) -> ir.Expr:
    """The bits of a float32 value that the type can represent, as uint8."""
    sign = tirx.bitwise_and(prim.RShift(tirx.reinterpret("int32", value), _integer(24)), _integer(0x80))
    shrunk = prim.Mul(tirx.abs(value), _constant(2.0 ** -_rebias(kind)))
    bits = prim.RShift(tirx.reinterpret("int32", shrunk), _integer(24 - kind.bits))
    bits = tirx.Select(tirx.LE(tirx.abs(value), _constant(kind.largest)), bits, _integer(_special(kind)))
    if _special(kind) != _NAN:
        bits = tirx.Select(tirx.isnan(value), _integer(_NAN), bits)
    return tirx.bitwise_or(bits, sign).astype("uint8")


def decoded(bits: ir.Expr, kind: Format) -> ir.Expr:
    """The value of a float8's bits (uint8), in float32."""
    whole = bits.astype("int32")
    size = tirx.bitwise_and(whole, _integer(0x7F))
    grown = prim.Mul(
        tirx.reinterpret("float32", prim.LShift(size, _integer(24 - kind.bits))), _constant(2.0 ** _rebias(kind))
    )
    value = tirx.Select(tirx.GE(size, _integer(_special(kind))), _constant(kind.overflow), grown)
    if _special(kind) != _NAN:
        value = tirx.Select(size > _integer(_special(kind)), _constant(math.nan), value)
    return tirx.Select(tirx.GE(whole, _integer(0x80)), prim.Mul(_constant(-1.0), value), value)


def _special(kind: Format) -> int:
    """The bits of what overflow gives: a NaN has all of them, an infinity those of the exponent."""
    return _NAN if math.isnan(kind.overflow) else _NAN & -(1 << (kind.bits - 1))


def _rebias(kind: Format) -> int:
    """By how much the biases of the exponents differ: 2^-126 is the smallest normal float32."""
    return 126 + kind.smallest + kind.bits - 1


_NAN = 0x7F


def _integer(value: int) -> ir.Expr:
    return tirx.const(value, "int32")


def _constant(value: float) -> ir.Expr:
    return tirx.const(value, "float32")


def round_float8(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with every cast between float8 and another float as the type has it."""

    def rewrite(cast: prim.Cast) -> ir.Expr:
        source, target = str(cast.value.ty.dtype), str(cast.ty.dtype)
        if target in FLOAT8 and source == "float32":
            return tirx.reinterpret(target, encoded(rounded(cast.value, FLOAT8[target]), FLOAT8[target]))
        if source in FLOAT8 and target in ("float16", "bfloat16", "float32", "float64"):
            value = decoded(tirx.reinterpret("uint8", cast.value), FLOAT8[source])
            return value if target == "float32" else value.astype(target)
        return cast

    return func.with_body(tvm_ffi.structural_map(func.body, (prim.Cast, rewrite)))
