"""Tiles of operands in shared memory, [k][own side], and the fragments of them that threads read as vectors.

A warp of 8×4 threads reads eight different vectors of either side at most: a read of half a warp is one access.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import ir, tirx

from tvm_cascade.tile.emit import bind, registers
from tvm_cascade.tile.row.copies import copy_vector
from tvm_cascade.tile.row.linear import VECTOR_BYTES
from tvm_cascade.tile.skeletons.simt.cut import Cut


@dataclass(frozen=True)
class Layout:
    """The layout of an operand's tile of one stage.

    Attributes
    ----------
    own, depth : elements of its own side, and of k.
    is_turned : it is copied from memory where neighbours are not those of its own side, an element at a time; rows are
        a vector longer then, so that copies of eight positions of k are to banks of their own.
    size : bytes of an element.
    """

    own: int
    depth: int
    is_turned: bool
    size: int

    @property
    def vector(self) -> int:
        """Elements of a widest access."""
        return VECTOR_BYTES // self.size

    @property
    def row(self) -> int:
        """Elements from one position of k to the next."""
        return self.own + (self.vector if self.is_turned else 0)

    @property
    def elements(self) -> int:
        """Of the tile."""
        return self.row * self.depth


class Fragment:
    """What a thread reads of an operand's tile, and its registers.

    Parameters
    ----------
    memory, first : the block's shared memory, one dimension, and where the operand's stages start there.
    warp, lane : of the thread, along the operand's own side.
    start : of the thread's slice in every stage, in positions of k.
    count : fragments that wait in registers at once.
    """

    def __init__(
        self,
        name: str,
        layout: Layout,
        cut: Cut,
        memory: Any,
        first: int,
        warp: ir.Expr,
        lane: ir.Expr,
        start: ir.Expr,
        count: int,
    ) -> None:
        self.layout, self.cut, self.memory, self.first = layout, cut, memory, first
        vector = layout.vector
        self.own = bind(f"{name}_own", warp * (cut.warp // vector) + lane)
        self.start = bind(f"{name}_start", start * (layout.row // vector) + self.own)
        self.registers = [registers(f"{name}_fragment", cut.own, str(memory.dtype)) for _ in range(count)]

    def load(self, stage: ir.Expr, k: int) -> None:
        """Reads the thread's elements of the k-th position of its slice of a stage."""
        layout, vector = self.layout, self.layout.vector
        for group in range(self.cut.own // vector):
            place = self.start + (k * (layout.row // vector) + group * self.cut.lanes)
            source = self.first + stage * layout.elements + place * vector
            copy_vector(self.of(k), tirx.const(group * vector, "int32"), self.memory, source, vector)

    def of(self, k: int) -> Any:
        """The registers of the k-th position."""
        return self.registers[k % len(self.registers)]

    def index(self, i: ir.Expr | int) -> ir.Expr:
        """The place of the thread's i-th element in the block's tile."""
        vector = self.layout.vector
        return self.own * vector + (i // vector * (self.cut.lanes * vector) + i % vector)
