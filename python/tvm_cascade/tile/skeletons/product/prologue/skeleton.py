"""The prologue skeleton's table row: products of a left operand lifted in registers, with statistics of its rows."""

from __future__ import annotations

from collections.abc import Iterable

import sympy as sp
from tvm import tirx

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.devices.device import Gpu, Instructions
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.cost import Counts, added, seconds
from tvm_cascade.tile.estimate import Work
from tvm_cascade.tile.launch.dependent import Launch
from tvm_cascade.tile.memory import WORD_BYTES
from tvm_cascade.tile.operand import PACKED_DTYPES, Operand, Unfit
from tvm_cascade.tile.skeleton import Setting, Skeleton
from tvm_cascade.tile.skeletons.product.choice import counts_of as product_counts
from tvm_cascade.tile.skeletons.product.choice import fitting, sizes_of
from tvm_cascade.tile.skeletons.product.config import ProductConfig, lacks_memory
from tvm_cascade.tile.skeletons.product.prologue.kernel import prologue_kernel
from tvm_cascade.tile.skeletons.product.prologue.shape import PrologueProduct, read_prologue
from tvm_cascade.tile.skeletons.product.shape import DEPTH_BYTES
from tvm_cascade.tile.work import GROUP_ROWS


class PrologueSkeleton(Skeleton[PrologueProduct, ProductConfig]):
    """Products with an operand that is computed on chip, and statistics of its rows, on tensor cores."""

    name, kind, covers = "prologue", "tensor-core kernel", "matrix products behind statistics of their rows"

    instructions, joint = frozenset({Instructions.WGMMA}), True
    option = "tensor_cores"

    def read(self, program: Program, group: Group, options: FuseOptions) -> PrologueProduct:
        return read_prologue(program, group)

    def alternatives(self, program: PrologueProduct, setting: Setting) -> list[ProductConfig]:
        return ranked_configs(program, setting.gpu)

    def lacks(self, program: PrologueProduct, config: ProductConfig, setting: Setting) -> str:
        return _lacks(program, config, setting.gpu) or config.lacks(program.product, setting.gpu)

    def operands(self, program: PrologueProduct) -> Iterable[Operand]:
        return (side.operand for side in program.product.sides)

    def counts(self, program: PrologueProduct, config: ProductConfig, work: Work, setting: Setting) -> Counts:
        return counts_of(program, config, setting.gpu)._replace(work=Work(work.bytes))

    def emit(self, program: PrologueProduct, config: ProductConfig, name: str, _launch: Launch) -> tirx.PrimFunc:
        return prologue_kernel(program, config).build(name)

    def fast_math(self, program: PrologueProduct) -> bool:
        return all(dtype_of(output.buffer) in PACKED_DTYPES for output in program.product.outputs)


def ranked_configs(shape: PrologueProduct, gpu: Gpu) -> list[ProductConfig]:
    """The fitting configurations, from the least estimated time on.

    Unfit where none fits, or lifting takes longer than writing a copy of what is multiplied.
    """
    found = [
        config for config in fitting(shape.product, sizes_of(shape.product), gpu) if not _lacks(shape, config, gpu)
    ]
    if not found:
        raise Unfit("no tile with the left operand in registers fits")
    ranked = sorted(found, key=lambda config: seconds(counts_of(shape, config, gpu), gpu))
    longer, copy = added(beside(shape, ranked[0], gpu), gpu), copied(shape, gpu)
    if longer > copy:
        told = f"{longer * 1e6:.1f} us longer than a plain product; a copy takes {copy * 1e6:.1f} us"
        raise Unfit(f"lifting {shape.product.left.load} is estimated to take {told}")
    return ranked


def _lacks(shape: PrologueProduct, config: ProductConfig, gpu: Gpu) -> str:
    """What a configuration has that kernels with the left operand in registers have not, in words; empty for none."""
    if config.own_rows != GROUP_ROWS:
        return f"{config.own_rows} rows of a consumer; with the left operand in registers it has {GROUP_ROWS}"
    if config.splits > 1:
        return f"{config.splits} parts of k: each would have statistics of a part of the rows"
    return lacks_memory(config.shared_bytes(shape.product) + config.threads * WORD_BYTES, gpu)


def counts_of(shape: PrologueProduct, config: ProductConfig, gpu: Gpu) -> Counts:
    """What a kernel does: its product, statistics folded meanwhile, and elements lifted before they are multiplied."""
    counts = product_counts(shape.product, sizes_of(shape.product), config, gpu)
    return counts.and_then(**beside(shape, config, gpu))


def beside(shape: PrologueProduct, config: ProductConfig, gpu: Gpu) -> dict[str, float]:
    """What a kernel has more than that of a plain product: of each step, by the names of rates."""
    sizes = sizes_of(shape.product)
    tiles = sizes.places * -(-sizes.rows // config.rows) * -(-sizes.columns // config.columns)
    steps = float(-(-tiles // min(config.blocks, gpu.processors)) * sizes.steps)
    if not shape.is_lifted:
        return {"statistics_seconds": steps}
    if shape.scale is not None:
        return {"scale_seconds": steps}
    return {"lift_seconds": steps, "operation_seconds": steps * int(sp.count_ops(shape.element))}


def copied(shape: PrologueProduct, gpu: Gpu) -> float:
    """Seconds of a kernel that reads the left operand and writes what a plain product would multiply."""
    sizes = sizes_of(shape.product)
    moved = 2 * sizes.places * sizes.rows * sizes.steps * DEPTH_BYTES
    return seconds(Counts(Work(moved)), gpu) + gpu.dependent_launch_seconds
