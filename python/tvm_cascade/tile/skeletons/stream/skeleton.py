"""The stream skeleton's table row: the stream shape, tile programs, tensor-core kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvm import tirx

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.program import Program
from tvm_cascade.devices.device import Instructions
from tvm_cascade.tile.attention.program import TileProgram, build_program
from tvm_cascade.tile.attention.shape import Stream, read_stream
from tvm_cascade.tile.attention.tile_schedule import live_shares
from tvm_cascade.tile.estimate import Work
from tvm_cascade.tile.operand import Unfit, check_allowed
from tvm_cascade.tile.output import member_at
from tvm_cascade.tile.skeleton import Setting, Skeleton
from tvm_cascade.tile.skeletons.stream.config import StreamConfig, ranked_configs, seconds
from tvm_cascade.tile.skeletons.stream.halves.columns import check_shared
from tvm_cascade.tile.skeletons.stream.halves.config import HalvesConfig, halves_seconds, ranked_halves
from tvm_cascade.tile.skeletons.stream.halves.kernel import HalvesKernel
from tvm_cascade.tile.skeletons.stream.kernel import StreamKernel
from tvm_cascade.tile.skeletons.stream.pieces.choice import beside, leaving_room, pieces_seconds, ranked_pieces
from tvm_cascade.tile.skeletons.stream.pieces.config import PiecesConfig
from tvm_cascade.tile.skeletons.stream.pieces.kernel import PiecesKernel
from tvm_cascade.tile.skeletons.stream.pieces.spread import is_spread


class StreamSkeleton(Skeleton[Stream, TileProgram, StreamConfig]):
    """Folds of a product of two matrices along its columns, on tensor cores."""

    name, kind, covers = "stream", "tensor-core kernel", "folds of a matrix product"

    instructions = Instructions.WGMMA
    option = "tensor_cores"

    def read(self, program: Program, group: Group) -> Stream:
        """See `read_stream`."""
        return read_stream(program, group)

    def plan(self, shape: Stream) -> TileProgram:
        """See `build_program`."""
        return build_program(shape)

    def alternatives(self, program: TileProgram, setting: Setting) -> list[StreamConfig]:
        """See `ranked_configs`, and `ranked_pieces` for few rows."""
        rows = program.stream.few_rows
        if rows is None and program.stream.left.row is None and program.skip:
            rows = int(program.stream.extent(program.stream.row))  # what is alive is asked of all packed rows at once
        if rows is None:
            return ranked_configs(program, setting.gpu)
        return list[StreamConfig](ranked_pieces(program, setting.gpu, rows))

    def check(self, program: TileProgram, config: StreamConfig, setting: Setting) -> None:
        """Whether the hardware has what it takes, and sums of products are as exact as the options ask."""
        if not isinstance(config, PiecesConfig) and not program.stream.left.boxes_rows(config.rows):
            raise Unfit(f"{program.stream.left}: its rows are several variables, which {config} does not pack")
        if isinstance(config, PiecesConfig):
            config.check_cluster(program)
        if not config.fits(program.stream, setting.gpu):
            raise Unfit(f"{config} needs more registers or shared memory than there are")
        for operand in program.stream.operands:
            check_allowed(operand, setting.options)

    def emit(self, program: TileProgram, config: StreamConfig, name: str) -> tirx.PrimFunc:
        """See `StreamKernel`, and `PiecesKernel` for few rows."""
        kernel = PiecesKernel(program, config) if isinstance(config, PiecesConfig) else StreamKernel(program, config)
        return kernel.build(name)

    def seconds(self, program: TileProgram, config: StreamConfig, work: Work, setting: Setting) -> float:
        """What the busiest block takes, or what the memory does; see `config.seconds` and `pieces_seconds`."""
        gpu = setting.gpu
        if isinstance(config, PiecesConfig):
            folded = pieces_seconds(config, program, gpu)
        else:
            folded = seconds(config, program, gpu)
        alive = work.live(*live_shares(program, config.rows, config.columns))
        return max(folded, alive.seconds(gpu, self.memory_share, self.compute_share))

    def fetches_ahead(self, config: StreamConfig) -> bool:
        """Where many rows share tiles: products take longer than copies."""
        return type(config) is StreamConfig

    def leaving_room(self, program: TileProgram, config: StreamConfig) -> list[StreamConfig]:
        """Where many rows share tiles, and each tile of rows visits as many."""
        return leaving_room(config, program) if type(config) is StreamConfig else []

    def beside(
        self, program: TileProgram, config: StreamConfig, processors: int, setting: Setting
    ) -> StreamConfig | None:
        """Where results alone read what another kernel leaves."""
        return beside(config, program, processors, setting.gpu) if isinstance(config, PiecesConfig) else None

    def beginning_early(self, program: TileProgram, given: Sequence[tirx.Var]) -> TileProgram:
        """Where the left operand alone is new: products with others, which are most of the bytes of few rows."""
        operands = [program.stream.right, *(product.value for product in program.stream.products)]
        read = [load.source for load in program.loads if member_at(program.stream.group, load) is None]
        return replace(program, given=all(among(own, given) for own in (*read, *(o.buffer for o in operands))))

    def may_wait_late(self, program: TileProgram, config: StreamConfig) -> bool:
        """Where all that is stored goes through a meeting, also that of whole items."""
        return isinstance(config, PiecesConfig) and is_spread(program.stream)

    def fast_math(self, program: TileProgram) -> bool:
        """Operands are of half width or less."""
        return True


# The table row of stream kernels whose states are too wide for one warp group.


class HalvesSkeleton(StreamSkeleton):
    """Stream kernels whose state two warp groups share, each with half of the columns."""

    name, covers = "stream halves", "folds of a matrix product whose values are its own right operand"

    def read(self, program: Program, group: Group) -> Stream:
        """See `read_stream`; of values that are the right operand's own tile."""
        stream = super().read(program, group)
        check_shared(stream)
        return stream

    def alternatives(self, program: TileProgram, setting: Setting) -> list[StreamConfig]:
        """See `ranked_halves`."""
        return list[StreamConfig](ranked_halves(program, setting.gpu))

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
