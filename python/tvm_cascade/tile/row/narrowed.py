"""Float8 outputs of a row: neighbours are converted two and two, and stored as words of four.

A conversion of one element takes a word's place, a mask and a shift for each byte. 4096 rows of 2560, 4096 and 7168
elements took 10.9, 14.7 and 22.4 µs by pairs, and 15.3, 18.4 and 31.8 one by one (measured on an H200).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.tile.emit import ptx, put, registers
from tvm_cascade.tile.operand import MATRIX_DTYPES

_FLOAT32 = "float32"
_STORES = {4: "st.global.b32", 8: "st.global.v2.b32"}
"""By the elements that they store."""


def is_narrowed(value: ir.Expr, width: int) -> bool:
    """Whether a value is float32 rounded to float8, of which so many neighbours are stored at once."""
    is_cast = isinstance(value, prim.Cast) and dtype_of(value.value) == _FLOAT32
    return is_cast and dtype_of(value).startswith("float8_e") and dtype_of(value) in MATRIX_DTYPES and width in _STORES


def store_narrowed(target: Any, values: Sequence[ir.Expr], name: str) -> None:
    """Stores float32 values rounded to float8.

    Parameters
    ----------
    target : pointer to the first.
    values : as `is_narrowed` has them, in order.
    name : of the output.
    """
    pairs = registers(f"{name}_pairs", len(values) // 2, "uint16")
    words = registers(f"{name}_words", len(values) // 4, "uint32")
    instruction = f"cvt.rn.satfinite.{MATRIX_DTYPES[dtype_of(values[0])].name}x2.f32"
    for k in range(len(values) // 2):
        ptx(instruction, pairs[k], values[2 * k + 1].value, values[2 * k].value)
    for k in range(len(values) // 4):
        put(words, k, pairs[2 * k].astype("uint32") | (pairs[2 * k + 1].astype("uint32") << tirx.const(16, "uint32")))
    ptx(_STORES[len(values)], target, *(words[k] for k in range(len(values) // 4)))
