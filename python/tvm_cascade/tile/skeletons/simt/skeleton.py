"""The core skeleton's table row: matrix products on CUDA cores."""

from __future__ import annotations

from tvm import tirx

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.program import Program
from tvm_cascade.devices.device import Instructions
from tvm_cascade.tile.estimate import Work
from tvm_cascade.tile.launch.dependent import Launch
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.skeleton import Setting, Skeleton
from tvm_cascade.tile.skeletons.simt.config import LANES, CoreConfig, clocks, ranked_core_configs
from tvm_cascade.tile.skeletons.simt.kernel import CoreKernel
from tvm_cascade.tile.skeletons.simt.shape import CoreProduct, read_core_product


class CoreSkeleton(Skeleton[CoreProduct, CoreProduct, CoreConfig]):
    """Products of two matrices that tensor cores do not take, and maps of their elements."""

    name, kind, covers = "cores", "CUDA-core kernel", "matrix products on CUDA cores"
    instructions = frozenset({Instructions.PTX})
    option = "row_kernels"
    last = True

    def read(self, program: Program, group: Group) -> CoreProduct:
        """See `read_core_product`."""
        return read_core_product(program, group)

    def plan(self, shape: CoreProduct) -> CoreProduct:
        """The shape itself: nothing is folded but products."""
        return shape

    def alternatives(self, program: CoreProduct, setting: Setting) -> list[CoreConfig]:
        """See `ranked_core_configs`."""
        return ranked_core_configs(program, setting.gpu)

    def check(self, program: CoreProduct, config: CoreConfig, setting: Setting) -> None:
        """Whether tensor cores do not take the operands as they are, and a block has what it takes."""
        if setting.gpu.instructions - self.instructions and setting.options.tensor_cores and program.is_of_halves:
            raise Unfit(f"{' and '.join(map(str, program.terms.loads))} are {program.left.dtype}, for tensor cores")
        if reason := config.why_not(program, setting.gpu):
            raise Unfit(f"{config}: {reason}")

    def emit(self, program: CoreProduct, config: CoreConfig, name: str, _launch: Launch) -> tirx.PrimFunc:
        """See `CoreKernel`."""
        return CoreKernel(program, config).build(name)

    def seconds(self, program: CoreProduct, config: CoreConfig, work: Work, setting: Setting) -> float:
        """The busiest processor's clocks, or what the memory takes; see `clocks`."""
        gpu = setting.gpu
        rate = gpu.operations_per_second / (gpu.processors * LANES)
        memory = work.bytes / (gpu.memory_bytes_per_second * self.memory_share) if gpu.memory_bytes_per_second else 0.0
        return max(memory, clocks(config, program, gpu) / rate if rate else 0.0)

    def fast_math(self, program: CoreProduct) -> bool:
        """Never: small numbers are kept, and maps are exact."""
        return False
