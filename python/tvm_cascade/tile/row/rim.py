"""The head and tail of an unaligned row: one position for each of the first threads of the row."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tvm import ir, tirx

from tvm_cascade.tile.emit import in_register, kernel_extent
from tvm_cascade.tile.row.config import RowConfig
from tvm_cascade.tile.row.elements import Tensors, Vectors
from tvm_cascade.tile.row.peel import Peel
from tvm_cascade.tile.row.program import RowProgram
from tvm_cascade.tile.row.segment import Segment
from tvm_cascade.tile.row.sweep import Point, Sweep


class Rim(Sweep):
    """Emits the passes of one thread over its position of the rim, which is read before those of the body.

    Parameters
    ----------
    head, end : where the body starts and ends.
    member : the thread's number among those of all blocks that share the row.
    """

    def __init__(
        self,
        program: RowProgram,
        config: RowConfig,
        tensors: Tensors,
        point: Point,
        peel: Peel,
        head: ir.Expr,
        end: ir.Expr,
        member: ir.Expr,
    ) -> None:
        alone = dataclasses.replace(config, vector=1, vectors=1, kept=True, staged=False)
        whole_row = Segment(tirx.const(0, "int32"), kernel_extent(peel.length), peel.length, peel.length)
        super().__init__(program, alone, tensors, point, whole_row, member)
        beyond = end + (member - head)
        self.own = in_register("rim", tirx.Select(member < head, member, beyond))
        self.vectors.load(tirx.const(0, "int32"), self.own, self.at, self.own < self.segment.end)

    def each_chunk(self, emit: Callable[[ir.Expr, bool, bool | None], None]) -> None:
        """Emits the one position, which most threads do not have."""
        emit(self.own, True, None)

    def position(self, start: ir.Expr, _k: Any) -> ir.Expr:
        """The position itself."""
        return start

    def load(self, vectors: Vectors, start: ir.Expr, guarded: bool) -> None:
        """Loads what only outputs read."""
        if vectors is not self.vectors:
            super().load(vectors, start, guarded)
