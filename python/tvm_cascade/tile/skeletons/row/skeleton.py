"""The row skeleton's table row: row programs whose neighbours in memory are positions."""

from __future__ import annotations

from tvm import tirx

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.program import Program
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.row.config import RowConfig
from tvm_cascade.tile.row.program import RowProgram
from tvm_cascade.tile.row.shape import Row, read_row
from tvm_cascade.tile.row.skeleton import MemorySkeleton
from tvm_cascade.tile.skeleton import Setting
from tvm_cascade.tile.skeletons.row.choice import choose_row_config
from tvm_cascade.tile.skeletons.row.fits import check_row_config
from tvm_cascade.tile.skeletons.row.kernel import RowKernel


class RowSkeleton(MemorySkeleton[RowConfig]):
    """The row skeleton: folds along a contiguous axis."""

    name, covers = "row", "folds along contiguous rows"

    def read(self, program: Program, group: Group) -> Row:
        """See `read_row`; neighbours in memory are positions."""
        row = read_row(program, group)
        if row.is_columns:
            raise Unfit(f"neighbours along {row.axis.variables[-1].name} lie apart in memory")
        return row

    def configure(self, program: RowProgram, setting: Setting) -> RowConfig:
        """See `choose_row_config`."""
        return choose_row_config(program.row, setting.gpu)

    def check(self, program: RowProgram, config: RowConfig, setting: Setting) -> None:
        """See `check_row_config`."""
        check_row_config(program.row, config, setting.gpu)

    def emit(self, program: RowProgram, config: RowConfig, name: str) -> tirx.PrimFunc:
        """See `RowKernel`."""
        return RowKernel(program, config).build(name)
