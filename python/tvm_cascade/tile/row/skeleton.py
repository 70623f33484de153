"""The common part of the memory-bound skeletons: row programs, which read every element of their rows once."""

from __future__ import annotations

from abc import abstractmethod
from typing import TypeVar

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.program import Program
from tvm_cascade.devices.device import Instructions
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.row.program import RowProgram, build_row_program
from tvm_cascade.tile.row.shape import Row, read_row
from tvm_cascade.tile.skeleton import Skeleton

C = TypeVar("C")


class MemorySkeleton(Skeleton[Row, RowProgram, C]):
    """The base of memory-bound skeletons: kernels of row programs, with configurations C."""

    kind, instructions, joint, guards = "memory-bound kernel", Instructions.PTX, True, True
    option = "row_kernels"

    @abstractmethod
    def fitting(self, row: Row) -> Row:
        """A row shape whose neighbours in memory are those that the skeleton is for.

        Raises
        ------
        Unfit
            Where they are others.
        """

    def read(self, program: Program, group: Group) -> Row:
        """See `read_row`."""
        return self.fitting(read_row(program, group))

    def read_guarded(self, program: Program, group: Group, options: FuseOptions) -> Row:
        """As `read`, with guards."""
        return self.fitting(read_row(program, group, options.guards))

    def plan(self, shape: Row) -> RowProgram:
        """See `build_row_program`."""
        return build_row_program(shape)

    def fast_math(self, program: RowProgram) -> bool:
        """Where all inputs are of half width."""
        return program.row.is_narrow
