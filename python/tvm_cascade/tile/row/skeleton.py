"""The table row of memory-bound kernels: row programs, which read every element of their rows once."""

from __future__ import annotations

import math

from tvm import tirx

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.program import Program
from tvm_cascade.devices.device import Instructions
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.estimate import NOMINAL, Work, merge_operations
from tvm_cascade.tile.launch.dependent import Launch
from tvm_cascade.tile.row.choice import ranked_configs
from tvm_cascade.tile.row.config import RowConfig, check_config
from tvm_cascade.tile.row.kernel import ContiguousKernel, StridedKernel
from tvm_cascade.tile.row.program import RowProgram, build_row_program
from tvm_cascade.tile.row.shape import Row, read_row
from tvm_cascade.tile.row.strided_choice import ranked_strided_configs
from tvm_cascade.tile.skeleton import Setting, Skeleton

_LATENCY, _ISSUED = 3.3e-9, 2
"""Seconds of an operation of a merge, each of which waits for the one before, and instructions for it (measured on
selections of the largest six and eight of 64 to 256 elements)."""

_LIFE, _RESIDENT = 2.0e-6, 2048
"""Seconds of a thread at least, and how many a multiprocessor holds: what short rows take (measured: 1.6 to 3.1 µs, of
32 to 128 elements)."""


class RowSkeleton(Skeleton[Row, RowProgram, RowConfig]):
    """Folds along an axis in memory: contiguous rows, or strided ones whose neighbours in memory are rows."""

    name, kind, covers = "row", "memory-bound kernel", "folds along rows or columns of memory"
    instructions, joint, guards = frozenset({Instructions.PTX}), True, True
    option = "row_kernels"

    def read(self, program: Program, group: Group) -> Row:
        """See `read_row`."""
        return read_row(program, group)

    def read_guarded(self, program: Program, group: Group, options: FuseOptions) -> Row:
        """As `read`, with guards."""
        return read_row(program, group, options.guards)

    def plan(self, shape: Row) -> RowProgram:
        """See `build_row_program`."""
        return build_row_program(shape)

    def alternatives(self, program: RowProgram, setting: Setting) -> list[RowConfig]:
        """See `ranked_configs`, and `ranked_strided_configs`."""
        ranked = ranked_strided_configs if program.row.is_strided else ranked_configs
        return ranked(program.row, setting.gpu)

    def check(self, program: RowProgram, config: RowConfig, setting: Setting) -> None:
        """See `check_config`."""
        check_config(program.row, config, setting.gpu)

    def seconds(self, program: RowProgram, config: RowConfig, work: Work, setting: Setting) -> float:
        """What memory takes, or all threads, or those of a row for their merges: of positions, and of levels.

        Merges of strided rows are not counted.
        """
        row, gpu = program.row, setting.gpu
        length, count = (n if isinstance(n, int) else NOMINAL for n in (row.length, row.count))
        threads = -(-count // config.rows) * config.segments * config.threads
        living = threads / (_RESIDENT * gpu.processors) * _LIFE
        moving = max(living, super().seconds(program, config, work, setting))
        if config.strided:
            return moving
        sharing = config.sharing * config.segments
        merges = -(-length // sharing) + math.log2(sharing)
        operations = merges * sum(merge_operations(stage) for stage in row.program.stages)
        rate = gpu.operations_per_second / _ISSUED
        merging = operations * max(_LATENCY, count * sharing / rate if rate else 0.0)
        return max(moving, merging)

    def emit(self, program: RowProgram, config: RowConfig, name: str, _launch: Launch) -> tirx.PrimFunc:
        """See `RowKernel`."""
        return (StridedKernel if config.strided else ContiguousKernel)(program, config).build(name)

    def fast_math(self, program: RowProgram) -> bool:
        """Where all inputs are of half width."""
        return program.row.is_narrow
