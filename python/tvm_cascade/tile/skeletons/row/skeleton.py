"""The row skeleton's table row: row programs whose neighbours in memory are positions."""

from __future__ import annotations

import math

from tvm import tirx

from tvm_cascade.tile.estimate import NOMINAL, Work, merge_operations
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.row.config import RowConfig
from tvm_cascade.tile.row.program import RowProgram
from tvm_cascade.tile.row.shape import Row
from tvm_cascade.tile.row.skeleton import MemorySkeleton
from tvm_cascade.tile.skeleton import Setting
from tvm_cascade.tile.skeletons.row.choice import ranked_row_configs
from tvm_cascade.tile.skeletons.row.fits import check_row_config
from tvm_cascade.tile.skeletons.row.kernel import RowKernel

_LATENCY, _ISSUED = 3.3e-9, 2
"""Seconds of an operation of a merge, each of which waits for the one before, and instructions for it (measured on
selections of the largest six and eight of 64 to 256 elements)."""


class RowSkeleton(MemorySkeleton[RowConfig]):
    """The row skeleton: folds along a contiguous axis."""

    name, covers = "row", "folds along contiguous rows"

    def fitting(self, row: Row) -> Row:
        """Neighbours in memory are positions."""
        if row.is_columns:
            raise Unfit(f"neighbours along {row.axis.variables[-1].name} lie apart in memory")
        return row

    def alternatives(self, program: RowProgram, setting: Setting) -> list[RowConfig]:
        """See `ranked_row_configs`."""
        return ranked_row_configs(program.row, setting.gpu)

    def check(self, program: RowProgram, config: RowConfig, setting: Setting) -> None:
        """See `check_row_config`."""
        check_row_config(program.row, config, setting.gpu)

    def seconds(self, program: RowProgram, config: RowConfig, work: Work, setting: Setting) -> float:
        """What memory takes, or the threads of a row for their merges: one for each position, one for each level."""
        row, gpu = program.row, setting.gpu
        length, count = (n if isinstance(n, int) else NOMINAL for n in (row.length, row.count))
        sharing = config.sharing * config.segments
        merges = -(-length // sharing) + math.log2(sharing)
        operations = merges * sum(merge_operations(stage) for stage in row.program.stages)
        rate = gpu.operations_per_second / _ISSUED
        merging = operations * max(_LATENCY, count * sharing / rate if rate else 0.0)
        return max(super().seconds(program, config, work, setting), merging)

    def emit(self, program: RowProgram, config: RowConfig, name: str) -> tirx.PrimFunc:
        """See `RowKernel`."""
        return RowKernel(program, config).build(name)
