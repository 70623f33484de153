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
from collections.abc import Sequence

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.expression import ARITHMETIC, RELATIONS, call_name, selection_of
from tvm_cascade.analysis.statements import serial
from tvm_cascade.analysis.tir import dtype_of, substitute, uses, within
from tvm_cascade.symbolic.rounding import FORMATS, round_to
from tvm_cascade.tvm_faults.float_bits import F32

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
    expressions = within(func.body, ir.Expr)
    if not any(map(_is_bfloat16, expressions)):
        return func
    concerned = [x for x in expressions if any(map(_is_bfloat16, [x, *_used(x)]))]
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
        rounded = round_to(x.value, _BFLOAT16) if math.isfinite(x.value) else x.value
        # As the lowest number that TVM has of the dtype, which is the one of float32.
        beyond = abs(rounded) > FORMATS[_BFLOAT16].largest
        return tirx.const(math.copysign(math.inf, rounded) if beyond else rounded, "float32")
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


def binding(values: Sequence[tuple[tirx.Var, ir.Expr]], then: Sequence[tirx.Stmt]) -> list[tirx.Stmt]:
    """Statements behind variables that are bound to values, of which none stores what these read but the last.

    TVM does not lower bfloat16 in a Bind: a value that is rounded to it is written where it is used.
    """
    written, bound = dict[tirx.Var, ir.Expr](), list[tirx.Stmt]()
    for var, value in values:
        whole = substitute(value, written)
        if any(dtype_of(cast) == _BFLOAT16 for cast in within(whole, prim.Cast)):
            written[var] = whole
        else:
            bound.append(tirx.Bind(var, whole))
    return [*bound, *(substitute(statement, written) for statement in then)]
