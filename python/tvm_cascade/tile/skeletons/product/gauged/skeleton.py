"""The gauged skeleton's table row: products of a left operand lifted in registers, with statistics of its rows."""

from __future__ import annotations

from tvm import tirx

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.devices.device import Instructions
from tvm_cascade.tile.estimate import Work
from tvm_cascade.tile.operand import PACKED_DTYPES, Unfit, check_allowed
from tvm_cascade.tile.skeleton import Setting, Skeleton
from tvm_cascade.tile.skeletons.product.config import ProductConfig
from tvm_cascade.tile.skeletons.product.gauged.cost import lacks, ranked_configs, seconds
from tvm_cascade.tile.skeletons.product.gauged.kernel import gauged_kernel
from tvm_cascade.tile.skeletons.product.gauged.shape import GaugedProduct, read_gauged


class GaugedSkeleton(Skeleton[GaugedProduct, GaugedProduct, ProductConfig]):
    """Products with an operand that is computed on chip, and statistics of its rows, on tensor cores."""

    name, kind, covers = "gauged", "tensor-core kernel", "matrix products gauged by statistics of their rows"

    instructions, joint = Instructions.WGMMA, True
    option = "tensor_cores"

    def read(self, program: Program, group: Group) -> GaugedProduct:
        """See `read_gauged`."""
        return read_gauged(program, group)

    def plan(self, shape: GaugedProduct) -> GaugedProduct:
        """The shape itself: what is computed of an element is a formula of it."""
        return shape

    def alternatives(self, program: GaugedProduct, setting: Setting) -> list[ProductConfig]:
        """See `ranked_configs`."""
        return ranked_configs(program, setting.gpu)

    def check(self, program: GaugedProduct, config: ProductConfig, setting: Setting) -> None:
        """Whether the hardware has what it takes, and sums of products are as exact as the options ask."""
        if lacking := lacks(program, config, setting.gpu) or config.lacks(program.product, setting.gpu):
            raise Unfit(lacking)
        for side in program.product.sides:
            check_allowed(side.operand, setting.options)

    def seconds(self, program: GaugedProduct, config: ProductConfig, work: Work, setting: Setting) -> float:
        """See `cost`; other inputs than the operands count as bytes."""
        return max(seconds(program, config, setting.gpu), self.moving_seconds(work, setting))

    def emit(self, program: GaugedProduct, config: ProductConfig, name: str) -> tirx.PrimFunc:
        """See `gauged_kernel`."""
        return gauged_kernel(program, config).build(name)

    def fast_math(self, program: GaugedProduct) -> bool:
        """Whether every output is of half width or less."""
        return all(dtype_of(output.buffer) in PACKED_DTYPES for output in program.product.outputs)
