"""The product skeleton's table row: matrix products on tensor cores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tvm import tirx

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.tir import dtype_of, loads_of
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.cost import Counts
from tvm_cascade.tile.estimate import Work
from tvm_cascade.tile.launch.dependent import Launch
from tvm_cascade.tile.machine.table import MULTIPLYING
from tvm_cascade.tile.operand import PACKED_DTYPES, Operand
from tvm_cascade.tile.product.matrix import MatrixProduct
from tvm_cascade.tile.skeleton import Setting, Skeleton
from tvm_cascade.tile.skeletons.product.choice import promoted_steps, ranked_configs
from tvm_cascade.tile.skeletons.product.config import ProductConfig
from tvm_cascade.tile.skeletons.product.cost import counts_of, sizes_of
from tvm_cascade.tile.skeletons.product.shape import read_product
from tvm_cascade.tile.skeletons.product.variants import Variants, build_all, choose_variants, config_for


class ProductSkeleton(Skeleton[MatrixProduct, ProductConfig | Variants]):
    """Products of two matrices and maps of their elements, on tensor cores."""

    name, kind, covers, joint = "product", "tensor-core kernel", "matrix products", True

    instructions = MULTIPLYING
    option = "tensor_cores"

    def read(self, program: Program, group: Group, options: FuseOptions) -> MatrixProduct:
        return read_product(program, group)

    def alternatives(self, program: MatrixProduct, setting: Setting) -> list[ProductConfig | Variants]:
        promoted = promoted_steps(program, setting.options)
        if isinstance(program.left.line.extent, int):
            return list[ProductConfig | Variants](ranked_configs(program, setting.gpu, promoted))
        return [choose_variants(program, setting.gpu, promoted)]

    def lacks(self, program: MatrixProduct, config: ProductConfig | Variants, setting: Setting) -> str:
        return next(filter(None, (one.lacks(program, setting.gpu) for one in config.configs)), "")

    def operands(self, program: MatrixProduct) -> Iterable[Operand]:
        return (side.operand for side in program.sides)

    def counts(self, program: MatrixProduct, config: ProductConfig | Variants, work: Work, setting: Setting) -> Counts:
        """See `counts_of`; other inputs of maps than the operands count as bytes."""
        sizes = sizes_of(program)
        one = config_for(config, sizes.rows)
        return counts_of(program, sizes, one, setting.gpu)._replace(work=Work(work.bytes))

    def emit(
        self, program: MatrixProduct, config: ProductConfig | Variants, name: str, launch: Launch
    ) -> tirx.PrimFunc:
        return build_all(program, config, name, launch)

    def may_begin_early(self, program: MatrixProduct, given: Sequence[tirx.Var]) -> bool:
        """It begins with its right operands where all of them are given, and what their indices read."""
        read = [load.source for side in program.rights for load in loads_of(side.load)]
        return all(among(buffer, given) for buffer in read)

    def fast_math(self, program: MatrixProduct) -> bool:
        return all(dtype_of(output.buffer) in PACKED_DTYPES for output in program.outputs)
