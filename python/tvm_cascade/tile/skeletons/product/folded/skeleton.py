"""The folded skeleton's table row: folds along the rows of a matrix product, on tensor cores."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tvm import tirx

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.program import Program
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.cost import Counts
from tvm_cascade.tile.estimate import Work
from tvm_cascade.tile.launch.dependent import Launch
from tvm_cascade.tile.machine.table import MULTIPLYING
from tvm_cascade.tile.operand import PACKED_DTYPES, Operand
from tvm_cascade.tile.row.program import build_row_program
from tvm_cascade.tile.skeleton import Setting, Skeleton
from tvm_cascade.tile.skeletons.product.folded.choice import FoldedProgram, counts_of, ranked_configs
from tvm_cascade.tile.skeletons.product.folded.config import Config, FoldedConfig, LongConfig
from tvm_cascade.tile.skeletons.product.folded.fold import rows_kernel
from tvm_cascade.tile.skeletons.product.folded.long import long_kernel
from tvm_cascade.tile.skeletons.product.folded.shape import read_folded
from tvm_cascade.tile.skeletons.product.kernel import ProductKernel

KERNELS: dict[type[Config], Callable[..., ProductKernel]] = {FoldedConfig: rows_kernel, LongConfig: long_kernel}


class FoldedSkeleton(Skeleton[FoldedProgram, Config]):
    """Folds along the rows of a matrix product, on tensor cores."""

    name, kind, covers = "folded", "tensor-core kernel", "folds along rows of a matrix product"

    instructions, joint = MULTIPLYING, True
    option = "tensor_cores"

    def read(self, program: Program, group: Group, options: FuseOptions) -> FoldedProgram:
        shape = read_folded(program, group)
        return FoldedProgram(shape, build_row_program(shape.row))

    def alternatives(self, program: FoldedProgram, setting: Setting) -> list[Config]:
        return ranked_configs(program, setting.gpu)

    def lacks(self, program: FoldedProgram, config: Config, setting: Setting) -> str:
        return config.lacks(program.shape, setting.gpu)

    def operands(self, program: FoldedProgram) -> Iterable[Operand]:
        return (side.operand for product in program.shape.products for side in product.sides)

    def counts(self, program: FoldedProgram, config: Config, work: Work, setting: Setting) -> Counts:
        return counts_of(program, config, setting.gpu)._replace(work=Work(work.bytes))

    def emit(self, program: FoldedProgram, config: Config, name: str, _launch: Launch) -> tirx.PrimFunc:
        return KERNELS[type(config)](program.shape, program.row, config).build(name)

    def fast_math(self, program: FoldedProgram) -> bool:
        return all(dtype in PACKED_DTYPES for product in program.shape.products for dtype in product.dtypes)
