"""The table row of memory-bound kernels: row programs, which read every element of their rows once."""

from __future__ import annotations

import math

from tvm import tirx

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.program import Program
from tvm_cascade.devices.device import Instructions
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.cost import Counts
from tvm_cascade.tile.estimate import NOMINAL, Work, merge_operations
from tvm_cascade.tile.launch.dependent import Launch
from tvm_cascade.tile.row.choice import ranked_configs
from tvm_cascade.tile.row.config import RowConfig
from tvm_cascade.tile.row.kernel import ContiguousKernel, StridedKernel
from tvm_cascade.tile.row.program import RowProgram, build_row_program
from tvm_cascade.tile.row.shape import read_row
from tvm_cascade.tile.row.strided_choice import ranked_strided_configs
from tvm_cascade.tile.skeleton import Setting, Skeleton

_ISSUED = 2
"""Instructions for an operation of a merge."""


class RowSkeleton(Skeleton[RowProgram, RowConfig]):
    """Folds along an axis in memory: contiguous rows, or strided ones whose neighbours in memory are rows."""

    name, kind, covers = "row", "memory-bound kernel", "folds along rows or columns of memory"
    instructions, joint, guards = frozenset({Instructions.PTX}), True, True
    option = "row_kernels"

    def read(self, program: Program, group: Group, options: FuseOptions) -> RowProgram:
        return build_row_program(read_row(program, group, options.guards))

    def alternatives(self, program: RowProgram, setting: Setting) -> list[RowConfig]:
        ranked = ranked_strided_configs if program.row.is_strided else ranked_configs
        return ranked(program.row, setting.gpu)

    def lacks(self, program: RowProgram, config: RowConfig, setting: Setting) -> str:
        return config.lacks(program.row, setting.gpu)

    def counts(self, program: RowProgram, config: RowConfig, work: Work, setting: Setting) -> Counts:
        """All threads, and the merges of those of a row: of positions, and of levels; none of strided rows."""
        row, gpu = program.row, setting.gpu
        length, count = (n if isinstance(n, int) else NOMINAL for n in (row.length, row.count))
        threads = -(-count // config.rows) * config.segments * config.threads / (gpu.resident_threads * gpu.processors)
        if config.strided:
            return Counts(work, threads=threads)
        sharing = config.sharing * config.segments
        merges = -(-length // sharing) + math.log2(sharing)
        operations = merges * sum(merge_operations(stage) for stage in row.program.stages)
        merged = {"merge_seconds": operations}
        return Counts(work, threads=threads, issued=_ISSUED * operations * count * sharing, between=merged)

    def emit(self, program: RowProgram, config: RowConfig, name: str, _launch: Launch) -> tirx.PrimFunc:
        return (StridedKernel if config.strided else ContiguousKernel)(program, config).build(name)

    def fast_math(self, program: RowProgram) -> bool:
        """Where all inputs are of half width."""
        return program.row.is_narrow
