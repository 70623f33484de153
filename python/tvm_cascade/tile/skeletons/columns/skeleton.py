"""The column skeleton's table row: row programs whose neighbours in memory are rows."""

from __future__ import annotations

from tvm import tirx

from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.row.program import RowProgram
from tvm_cascade.tile.row.shape import Row
from tvm_cascade.tile.row.skeleton import MemorySkeleton
from tvm_cascade.tile.skeleton import Setting
from tvm_cascade.tile.skeletons.columns.config import ColumnConfig, check_column_config, ranked_column_configs
from tvm_cascade.tile.skeletons.columns.kernel import ColumnKernel


class ColumnSkeleton(MemorySkeleton[ColumnConfig]):
    """The column skeleton: folds along a strided axis, with rows contiguous."""

    name, covers = "columns", "folds along columns of memory"

    def fitting(self, row: Row) -> Row:
        """Neighbours in memory are rows."""
        if not row.is_columns:
            raise Unfit(f"neighbours along {row.axis.variables[-1].name} lie beside each other in memory")
        return row

    def alternatives(self, program: RowProgram, setting: Setting) -> list[ColumnConfig]:
        """See `ranked_column_configs`."""
        return ranked_column_configs(program.row, setting.gpu)

    def check(self, program: RowProgram, config: ColumnConfig, setting: Setting) -> None:
        """See `check_column_config`."""
        check_column_config(program.row, config, setting.gpu)

    def emit(self, program: RowProgram, config: ColumnConfig, name: str) -> tirx.PrimFunc:
        """See `ColumnKernel`."""
        return ColumnKernel(program, config).build(name)
