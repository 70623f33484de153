"""The common part of the memory-bound skeletons: row programs, which read every element of their rows once."""

from __future__ import annotations

from typing import TypeVar

from tvm_cascade.devices.device import Instructions
from tvm_cascade.tile.row.program import RowProgram, build_row_program
from tvm_cascade.tile.row.shape import Row
from tvm_cascade.tile.skeleton import Skeleton

C = TypeVar("C")


class MemorySkeleton(Skeleton[Row, RowProgram, C]):
    """The base of memory-bound skeletons: kernels of row programs, with configurations C."""

    kind, instructions, joint = "memory-bound kernel", Instructions.PTX, True
    option = "row_kernels"

    def plan(self, shape: Row) -> RowProgram:
        """See `build_row_program`."""
        return build_row_program(shape)

    def fast_math(self, program: RowProgram) -> bool:
        """Where all inputs are of half width."""
        return program.row.is_narrow
