"""From a group to a kernel: shape, program, configuration, skeleton."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.program import Program
from tvm_cascade.tile.config import StreamConfig, choose_config
from tvm_cascade.tile.kernels.column import ColumnKernel
from tvm_cascade.tile.kernels.row import RowKernel
from tvm_cascade.tile.kernels.stream import StreamKernel
from tvm_cascade.tile.operand import Unfit, check_sums
from tvm_cascade.tile.program import TileProgram, build_program
from tvm_cascade.tile.row.choice import choose_row_config
from tvm_cascade.tile.row.column_config import ColumnConfig, choose_column_config
from tvm_cascade.tile.row.config import RowConfig
from tvm_cascade.tile.row.program import RowProgram, build_row_program
from tvm_cascade.tile.row.shape import read_row
from tvm_cascade.tile.shape import read_stream


@dataclass(frozen=True)
class Kernel:
    """A kernel generated from a fold.

    Attributes
    ----------
    func : the TIRx function, over the parameters of the unfused one.
    program : what a tile, or a chunk of a row, does.
    config : how it is cut.
    """

    func: tirx.PrimFunc
    program: TileProgram | RowProgram
    config: StreamConfig | RowConfig | ColumnConfig

    @property
    def skeleton(self) -> str:
        """The name of what fixes the movement of its data."""
        return "stream" if isinstance(self.program, TileProgram) else "row"

    @property
    def fast_math(self) -> bool:
        """Whether functions of the hardware, with errors of some ulp of float16, do."""
        return isinstance(self.program, TileProgram) or self.program.row.is_narrow

    def __str__(self) -> str:
        kind = "the tensor-core kernel" if self.skeleton == "stream" else "the memory-bound kernel"
        return f"{kind} `{self.skeleton}`, {self.config}"


def build_kernel(
    program: Program, group: Group, name: str, config: StreamConfig | None = None, narrow_sums: bool = False
) -> Kernel:
    """The kernel for tensor cores of a function that is one group of the stream shape.

    Parameters
    ----------
    narrow_sums : see `FuseOptions`.

    Raises
    ------
    Unfit
        Where the function is not of that shape, or the kernel would not fit the hardware.
    """
    tile_program = build_program(read_stream(program, group))
    chosen = config or choose_config(tile_program)
    if not chosen.fits(tile_program.stream):
        raise Unfit(f"{chosen} needs more registers or shared memory than there are")
    for operand in () if narrow_sums else tile_program.stream.operands:
        check_sums(operand)
    return Kernel(StreamKernel(tile_program, chosen).build(name), tile_program, chosen)


def build_row_kernel(
    program: Program, group: Group, name: str, config: RowConfig | ColumnConfig | None = None, clusters: bool = True
) -> Kernel:
    """The memory-bound kernel of a function that is one group of the row shape.

    Parameters
    ----------
    clusters : whether the GPU has clusters of blocks.

    Raises
    ------
    Unfit
        Where the function is not of that shape.
    """
    row_program = build_row_program(read_row(program, group))
    row = row_program.row
    chosen = config or (choose_column_config(row, clusters) if row.is_columns else choose_row_config(row, clusters))
    if isinstance(chosen, ColumnConfig) is not row.is_columns:
        raise Unfit(f"{chosen} is of another layout")
    if isinstance(chosen, ColumnConfig) and row.whole_rows and not chosen.is_cluster(clusters):
        raise Unfit(f"{chosen}: no block has the results that outputs along the axis read")
    skeleton = ColumnKernel(row_program, chosen) if isinstance(chosen, ColumnConfig) else RowKernel(row_program, chosen)
    return Kernel(skeleton.build(name), row_program, chosen)
