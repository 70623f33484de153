"""Casts to float8 that round: LLVM has no float8, and what TVM 0.27 generates in its place passes the value through.

    v.astype("float8_e4m3fn")  ->  rounded(v).astype("float8_e4m3fn")

with `rounded` in float32 arithmetic: to nearest, ties to even, subnormal numbers included.
"""

from __future__ import annotations

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


def _constant(value: float) -> ir.Expr:
    return tirx.const(value, "float32")


def round_float8(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with every cast from float32 to float8 rounding as the type does."""

    def rewrite(cast: prim.Cast) -> prim.Cast:
        kind = FLOAT8.get(str(cast.ty.dtype))
        if kind is None or str(cast.value.ty.dtype) != "float32":
            return cast
        return rounded(cast.value, kind).astype(str(cast.ty.dtype))

    return func.with_body(tvm_ffi.structural_map(func.body, (prim.Cast, rewrite)))
