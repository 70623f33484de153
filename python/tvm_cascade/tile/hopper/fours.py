"""Stores of neighbouring elements at once: a thread's stores of one each would write a sector piece by piece."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import ir, tirx

from tvm_cascade.analysis.tir import dtype_of, uses
from tvm_cascade.tile.emit import ptx, registers
from tvm_cascade.tile.fragment import DTYPE
from tvm_cascade.tile.operand import MATRIX_DTYPES, STORED_BYTES, runs_along
from tvm_cascade.tile.output import Output


def are_neighbours(tensor: tirx.Var, indices: Sequence[ir.Expr], free: tirx.Var, count: int) -> bool:
    """Whether so many columns of a tensor, from a multiple of that on, are neighbours in memory, and aligned."""
    width = tensor.ty.shape[-1]
    plain = runs_along(indices[-1], free) and not any(uses(index, [free]) for index in indices[:-1])
    return plain and isinstance(width, ir.prim.IntImm) and int(width) % count == 0


def are_stored_at_once(output: Output, free: tirx.Var, count: int) -> bool:
    """Whether so many such columns of an output are stored at once."""
    dtype = dtype_of(output.buffer)
    stored = dtype == DTYPE or (dtype in MATRIX_DTYPES and MATRIX_DTYPES[dtype].size == STORED_BYTES)
    return stored and are_neighbours(output.buffer, output.indices, free, count)


def store_pair(target: ir.Expr, values: Sequence[ir.Expr], dtype: str) -> None:
    """Stores two values of a dtype at an address."""
    if dtype == DTYPE:
        ptx("st.global.v2.f32", target, *values)
        return
    word = registers("stored_word", 1, "uint32")
    ptx(f"cvt.rn.{MATRIX_DTYPES[dtype].name}x2.f32", word[0], *(_wide(value) for value in reversed(values)))
    ptx("st.global.b32", target, word[0])


def store_four(targets: Sequence[ir.Expr], values: Sequence[ir.Expr], dtype: str) -> None:
    """Stores four values of a dtype at the addresses of the first and the third."""
    if dtype != DTYPE:
        words, kind = registers("stored_words", 2, "uint32"), MATRIX_DTYPES[dtype].name
        for k in range(2):
            ptx(f"cvt.rn.{kind}x2.f32", words[k], *(_wide(value) for value in reversed(values[2 * k : 2 * k + 2])))
        values = [tirx.reinterpret(DTYPE, words[k]) for k in range(2)]
    for k in range(0, len(values), 2):
        ptx("st.global.v2.f32", targets[k // 2], *values[k : k + 2])


def _wide(value: ir.Expr) -> ir.Expr:
    """A value in float32: the store itself rounds it."""
    if isinstance(value, ir.prim.Cast) and dtype_of(value.value) == DTYPE:
        return value.value
    return tirx.Cast(DTYPE, value)
