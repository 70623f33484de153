"""The table row of stream kernels whose states are too wide for one warp group."""

from __future__ import annotations

from tvm import tirx

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.program import Program
from tvm_cascade.tile.attention.program import TileProgram
from tvm_cascade.tile.attention.shape import Stream
from tvm_cascade.tile.estimate import Work
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.skeleton import Setting
from tvm_cascade.tile.skeletons.stream.config import StreamConfig
from tvm_cascade.tile.skeletons.stream.halves.columns import check_shared
from tvm_cascade.tile.skeletons.stream.halves.config import HalvesConfig, halves_seconds, ranked_configs
from tvm_cascade.tile.skeletons.stream.halves.kernel import HalvesKernel
from tvm_cascade.tile.skeletons.stream.skeleton import StreamSkeleton


class HalvesSkeleton(StreamSkeleton):
    """Stream kernels whose state two warp groups share, each with half of the columns."""

    name, covers = "stream halves", "folds of a matrix product whose values are its own right operand"

    def read(self, program: Program, group: Group) -> Stream:
        """See `read_stream`; of values that are the right operand's own tile."""
        stream = super().read(program, group)
        check_shared(stream)
        return stream

    def alternatives(self, program: TileProgram, setting: Setting) -> list[StreamConfig]:
        """See `ranked_configs`."""
        return list[StreamConfig](ranked_configs(program, setting.gpu))

    def check(self, program: TileProgram, config: StreamConfig, setting: Setting) -> None:
        """Whether the hardware has what it takes."""
        if not isinstance(config, HalvesConfig) or not config.takes(program, setting.gpu):
            raise Unfit(f"{config} needs more registers or shared memory than there are")

    def seconds(self, program: TileProgram, config: StreamConfig, work: Work, setting: Setting) -> float:
        """What the busiest block takes, or what the memory does; see `halves_seconds`."""
        assert isinstance(config, HalvesConfig)
        moved = work.seconds(setting.gpu, self.memory_share, self.compute_share)
        return max(halves_seconds(config, program), moved)

    def emit(self, program: TileProgram, config: StreamConfig, name: str) -> tirx.PrimFunc:
        """See `HalvesKernel`."""
        assert isinstance(config, HalvesConfig)
        return HalvesKernel(program, config).build(name)
