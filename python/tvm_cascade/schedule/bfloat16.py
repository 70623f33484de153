"""bfloat16 emulated by float32 and bit operations, since TVM 0.27 lowers it wrongly.

    v of a parameter         ->  reinterpret("float32", reinterpret("uint16", v) << 16)
    w.astype("bfloat16")     ->  nearest(w), in float32
    a + b, exp(a), …         ->  the same in float32, its result to nearest
    parameter[i] = v         ->  parameter[i] = reinterpret("bfloat16", reinterpret("int32", v) >> 16)
    buffers allocated in it  ->  of float32, as TVM has them too

The faults: a value that is rounded is written out twice, with its lets, though a variable may be bound only once; casts
in the value of a let stay as they were, and become casts of integers; and neither `w.astype("bfloat16")` in a wider
expression nor a store to a buffer that the function allocates is rounded. NaN stays NaN here, which TVM's rounding does
not promise.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.expression import ARITHMETIC, RELATIONS, call_name, selection_of
from tvm_cascade.analysis.tir import dtype_of, uses, within
from tvm_cascade.schedule.float_bits import F32, F64
from tvm_cascade.schedule.stack import serial
from tvm_cascade.symbolic.rounding import FORMATS, Format, round_to

_BFLOAT16 = "bfloat16"
_INFINITY = 0x7F800000  # its bits in float32; those of a NaN are greater, the sign left aside
_QUIET = 1 << 22  # the first bit of a float32's fraction: a NaN that has it keeps it without its lower half
_BINARY = {*ARITHMETIC, *RELATIONS}
_PURE = 1  # TVM's CallEffectKind of functions that depend on nothing but their arguments


def lower_bfloat16(func: tirx.PrimFunc) -> tirx.PrimFunc | None:
    """The function with bfloat16 arithmetic in float32; only loads and stores of its parameters stay bfloat16.

    Parameters
    ----------
    func : a function for a CPU, with its blocks, before or after scheduling; it is not modified.

    Returns
    -------
    func : the same object where nothing is computed in bfloat16; None where it is used in a way that is unknown here:
        kept in a scalar variable, matched to a part of a buffer, given to a call that may have effects.
    """
    concerned = [x for x in within(func.body, ir.Expr) if any(map(_is_bfloat16, [x, *_used(x)]))]
    if all(isinstance(x, ir.TensorLoad) or call_name(x) == "reinterpret" for x in concerned):
        return func
    allocated = [
        buffer
        for block in within(func.body, s_tir.SBlock)
        for buffer in block.alloc_buffers
        if buffer.ty.dtype == _BFLOAT16
    ]
    if not all(_is_known(x, [*func.params, *allocated]) for x in concerned):
        return None
    wide = {buffer: buffer.with_dtype("float32") for buffer in allocated}

    def expression(x: ir.Expr) -> ir.Expr:
        return wide.get(x, x) if isinstance(x, ir.Var) else _lowered(x)

    rules = [(ir.Expr, expression), (tirx.BufferStore, _stored), (tirx.For, _left_to_llvm)]
    return func.with_body(tvm_ffi.structural_map(func.body, rules))


def _is_known(x: ir.Expr, buffers: Sequence[ir.Var]) -> bool:
    """Whether an expression that has to do with bfloat16 is one of those that are lowered here."""
    if isinstance(x, ir.TensorLoad):
        return any(x.source.same_as(buffer) for buffer in buffers)
    return isinstance(x, prim.FloatImm) or bool(selection_of(x) or _operands(x))


def _used(x: ir.Expr) -> list[ir.Expr]:
    if type(x) in _BINARY:
        return [x.a, x.b]
    return list(x.args) if isinstance(x, ir.Call) else [x.value] if isinstance(x, (prim.Cast, prim.Let)) else []


def _operands(x: ir.Expr) -> list[ir.Expr]:
    """The operands of an operation that depends on their values alone; none for any other expression."""
    if isinstance(x, ir.Call) and (call_name(x) in ("", "reinterpret") or x.op.get_attr("TCallEffectKind") != _PURE):
        return []
    return [] if isinstance(x, prim.Let) else _used(x)


def _lowered(x: ir.Expr) -> ir.Expr:
    """An expression whose operands have been lowered: where they were in bfloat16, they are in float32 by now."""
    if isinstance(x, prim.Cast) and x.value.ty.dtype == x.ty.dtype:
        return x.value
    if not _is_bfloat16(x):
        return x
    if isinstance(x, ir.TensorLoad):
        return _loaded(x)
    if isinstance(x, prim.FloatImm):
        return tirx.const(round_to(x.value, _BFLOAT16) if math.isfinite(x.value) else x.value, "float32")
    if parts := selection_of(x):
        return prim.Select(*parts) if isinstance(x, prim.Select) else tirx.if_then_else(*parts)
    if isinstance(x, prim.Cast):
        return _nearest(x.value.astype("float32"))
    return _nearest(
        type(x)(x.a, x.b) if type(x) in _BINARY else ir.Call(x.op, list(x.args), ret_ty=ir.PrimType("float32"))
    )


def _loaded(load: ir.TensorLoad) -> ir.Expr:
    """What stands in a buffer, in float32: in a parameter by its bits; a buffer of the function's own is that wide."""
    if load.source.ty.dtype != _BFLOAT16:
        return tirx.BufferLoad(load.source, list(load.indices))
    return tirx.reinterpret("float32", tirx.reinterpret("uint16", load).astype("int32") << F32.whole(16))


def _stored(store: tirx.BufferStore) -> tirx.Stmt:
    """A store of a value that has been lowered."""
    if store.buffer.ty.dtype != _BFLOAT16:
        return store
    bits = tirx.reinterpret("int32", store.value) >> F32.whole(16)
    return tirx.BufferStore(store.buffer, tirx.reinterpret(_BFLOAT16, bits.astype("uint16")), list(store.indices))


def _left_to_llvm(loop: tirx.For) -> tirx.For:
    """A vectorised loop that stores one bfloat16 to all lanes as a serial one: TVM does not lower such a vector."""
    if loop.kind != tirx.ForKind.VECTORIZED:
        return loop
    lanes = [loop.loop_var]
    for place in within(loop.body, s_tir.SBlockRealize):
        bound = zip(place.block.iter_vars, place.iter_values, strict=True)
        lanes += [axis.var for axis, value in bound if uses(value, lanes)]
    stores = [one for one in within(loop.body, tirx.BufferStore) if one.buffer.ty.dtype == _BFLOAT16]
    return loop if all(uses(one.value, lanes) for one in stores) else serial(loop)


def _nearest(x: ir.Expr) -> ir.Expr:
    """A float32 rounded to bfloat16, ties to even, in float32."""
    value = tirx.Var("w", "float32")
    bits = tirx.reinterpret("int32", value)
    nearest = (bits + ((bits >> F32.whole(16)) & F32.whole(1)) + F32.whole(0x7FFF)) & F32.whole(-(1 << 16))
    number = (bits & F32.whole(0x7FFFFFFF)) <= F32.whole(_INFINITY)  # TVM folds value == value
    return tirx.Let(value, x, tirx.reinterpret("float32", tirx.Select(number, nearest, bits | F32.whole(_QUIET))))


def _is_bfloat16(x: ir.Expr) -> bool:
    return isinstance(x.ty, ir.PrimType) and x.ty.dtype == _BFLOAT16


# Casts to and from float8 in float32 arithmetic, since LLVM has none and TVM 0.27 generates wrong ones.
#
#     v.astype("float8_e4m3fn")  ->  reinterpret("float8_e4m3fn", encoded(rounded(v)))
#     w.astype("float32")        ->  decoded(reinterpret("uint8", w))
#
# `rounded` in the arithmetic of a float32 or float64 value: to nearest, ties to even, once, subnormal numbers included;
# a narrower value is a float32 first. A normal float8's exponent and fraction are those of a float32 of another bias,
# so that both ways are a shift and a sum; a subnormal one is an integer times the smallest. No float32 on the way is
# subnormal, as fast mathematics take such for zero.


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


# Arithmetic of constants in half precision, done before TVM sees it.
#
#     float16(1) / float16(2)  ->  float16(0.5)
#
# TVM folds no constants of half precision. What several kernels of a function compute it computes once, outside of
# them, and passes it by value; and CUDA's launches take no halves by value, so a call of such a function would fail.


_HALVES = ("float16", "bfloat16")
_FOLDED: dict[type, Callable[[float, float], float]] = {
    prim.Add: operator.add,
    prim.Sub: operator.sub,
    prim.Mul: operator.mul,
    prim.Div: operator.truediv,
    prim.Min: min,
    prim.Max: max,
}


def fold_half_constants(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with its arithmetic of constants in float16 and bfloat16 rounded as at run time; not modified."""
    return func.with_body(tvm_ffi.structural_map(func.body, [(kind, _folded) for kind in _FOLDED]))


def _folded(expression: ir.Expr) -> ir.Expr:
    dtype, (a, b) = dtype_of(expression), (expression.a, expression.b)
    constants = isinstance(a, prim.FloatImm) and isinstance(b, prim.FloatImm)
    if dtype not in _HALVES or not constants or (isinstance(expression, prim.Div) and b.value == 0):
        return expression
    return tirx.const(round_to(_FOLDED[type(expression)](a.value, b.value), dtype), dtype)
