"""Stores accumulator fragments as 16-bit matrices of 8×8 (stmatrix), where bulk copies with the 128-byte swizzle read.

A lane gives the address of one row of 16 bytes: chunk c of row r is at chunk c ⊕ (r mod 8) of its 128 bytes.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import ir

from tvm_cascade.tile.emit import ptx, registers
from tvm_cascade.tile.fragment import COLUMNS_PER_STEP, NEIGHBOURS
from tvm_cascade.tile.operand import MATRIX_DTYPES

_AT_ONCE = 16
"""Columns of an instruction, of sixteen rows."""

_BOX_CHUNKS = 8
"""Of a row of a box."""

Value = Callable[[int, int, int], ir.Expr]
"""(eight columns, row of the thread's two, neighbour) -> the element there, in float32."""

Place = Callable[[int, ir.Expr], ir.Expr]
"""(box, chunk) -> an address in the lane's own row."""


class MatrixStore:
    """Stores fragments of a warp.

    Parameters
    ----------
    lane : of the thread.
    """

    def __init__(self, dtype: str, lane: ir.Expr) -> None:
        self.kind, self.lane = MATRIX_DTYPES[dtype].name, lane
        self.words = registers("stored", 4, "uint32")

    def columns(self, count: int, value: Value, place: Place, first: int = 0) -> None:
        """Stores columns [first, count) of sixteen rows, from the first box on; `first` is a multiple of 16."""
        for step in range(-(-(count - first) // _AT_ONCE)):
            for q in range(4):
                j, r = first // COLUMNS_PER_STEP + step * 2 + q // 2, q % 2
                if j * COLUMNS_PER_STEP < count:
                    pair = [value(j, r, e) for e in reversed(NEIGHBOURS)]
                    ptx(f"cvt.rn.{self.kind}x2.f32", self.words[q], *pair)
            chunk = step % (_BOX_CHUNKS // 2) * 2 + self.lane // _AT_ONCE
            target = place(step // (_BOX_CHUNKS // 2), chunk ^ (self.lane % _BOX_CHUNKS))
            words = [self.words[q] for q in range(4)]
            ptx("stmatrix.sync.aligned.m8n8.x4.shared.b16", target, *words)
