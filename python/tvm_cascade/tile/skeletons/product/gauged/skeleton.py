"""The gauged skeleton's table row: products of a left operand lifted in registers, with statistics of its rows."""

from __future__ import annotations

import sympy as sp
from tvm import tirx

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.devices.device import Gpu, Instructions
from tvm_cascade.tile.estimate import Work
from tvm_cascade.tile.launch.dependent import Launch
from tvm_cascade.tile.operand import PACKED_DTYPES, Unfit, check_allowed
from tvm_cascade.tile.skeleton import Setting, Skeleton
from tvm_cascade.tile.skeletons.product.choice import fitting
from tvm_cascade.tile.skeletons.product.config import ProductConfig, lacks_memory
from tvm_cascade.tile.skeletons.product.cost import seconds as product_seconds
from tvm_cascade.tile.skeletons.product.cost import sizes_of
from tvm_cascade.tile.skeletons.product.gauged.kernel import gauged_kernel
from tvm_cascade.tile.skeletons.product.gauged.shape import GaugedProduct, read_gauged
from tvm_cascade.tile.skeletons.product.shape import DEPTH_BYTES
from tvm_cascade.tile.work import GROUP_ROWS


class GaugedSkeleton(Skeleton[GaugedProduct, GaugedProduct, ProductConfig]):
    """Products with an operand that is computed on chip, and statistics of its rows, on tensor cores."""

    name, kind, covers = "gauged", "tensor-core kernel", "matrix products gauged by statistics of their rows"

    instructions, joint = frozenset({Instructions.WGMMA}), True
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

    def emit(self, program: GaugedProduct, config: ProductConfig, name: str, _launch: Launch) -> tirx.PrimFunc:
        """See `gauged_kernel`."""
        return gauged_kernel(program, config).build(name)

    def fast_math(self, program: GaugedProduct) -> bool:
        """Whether every output is of half width or less."""
        return all(dtype_of(output.buffer) in PACKED_DTYPES for output in program.product.outputs)


# The estimated time of a gauged product: that of its product, and what is computed of the left operand beside it.
#
# Statistics are folded while products run. What elements are lifted by is not hidden: products start after it.


_STATISTICS = 0.015e-6
"""Seconds that statistics add to a step: they are folded while products run (measured, 4096 rows: 0.010 to 0.017)."""

_SCALED = 0.12e-6
"""Seconds that a factor along the sum adds; an instruction multiplies two elements (0.11 to 0.15 measured)."""

_LIFTED, _OPERATION = 0.17e-6, 0.03e-6
"""Seconds that other elements add, and each of their operations: products wait for them (measured, of one to four)."""

_PINNED_BYTES = 4
"""Of a word of a thread that keeps computations where they are."""

_COPIED = 0.85
"""The part of the memory's bandwidth that kernels of rows reach."""


def ranked_configs(shape: GaugedProduct, gpu: Gpu) -> list[ProductConfig]:
    """The fitting configurations, from the least estimated time on.

    Raises
    ------
    Unfit
        Where none fits, or lifting takes longer than writing a copy of what is multiplied.
    """
    found = [config for config in fitting(shape.product, sizes_of(shape.product), gpu) if not lacks(shape, config, gpu)]
    if not found:
        raise Unfit("no tile with the left operand in registers fits")
    ranked = sorted(found, key=lambda config: seconds(shape, config, gpu))
    longer, copy = beside(shape, ranked[0], gpu), copied(shape, gpu)
    if longer > copy:
        told = f"{longer * 1e6:.1f} us longer than a plain product; a copy takes {copy * 1e6:.1f} us"
        raise Unfit(f"lifting {shape.product.left.load} is estimated to take {told}")
    return ranked


def lacks(shape: GaugedProduct, config: ProductConfig, gpu: Gpu) -> str:
    """What a configuration has that kernels with the left operand in registers have not, in words; empty for none."""
    if config.own_rows != GROUP_ROWS:
        return f"{config.own_rows} rows of a consumer; with the left operand in registers it has {GROUP_ROWS}"
    if config.splits > 1:
        return f"{config.splits} parts of k: each would have statistics of a part of the rows"
    return lacks_memory(config.shared_bytes(shape.product) + config.threads * _PINNED_BYTES, gpu)


def seconds(shape: GaugedProduct, config: ProductConfig, gpu: Gpu) -> float:
    """The estimated time of a kernel, without its launch."""
    return product_seconds(shape.product, sizes_of(shape.product), config, gpu) + beside(shape, config, gpu)


def beside(shape: GaugedProduct, config: ProductConfig, gpu: Gpu) -> float:
    """Seconds that a kernel takes longer than that of a plain product."""
    sizes = sizes_of(shape.product)
    tiles = sizes.places * -(-sizes.rows // config.rows) * -(-sizes.columns // config.columns)
    waves = -(-tiles // min(config.blocks, gpu.processors))
    return waves * sizes.steps * beside_step(shape)


def copied(shape: GaugedProduct, gpu: Gpu) -> float:
    """Seconds of a kernel that reads the left operand and writes what a plain product would multiply."""
    sizes = sizes_of(shape.product)
    moved = 2 * sizes.places * sizes.rows * sizes.steps * DEPTH_BYTES
    return moved / (_COPIED * gpu.memory_bytes_per_second) + gpu.dependent_launch_seconds


def beside_step(shape: GaugedProduct) -> float:
    """Seconds that a step of a tile takes longer than one of a plain product."""
    if not shape.is_lifted:
        return _STATISTICS
    if shape.scale is not None:
        return _SCALED
    return _LIFTED + _OPERATION * int(sp.count_ops(shape.element))
