"""The stream skeleton's table row: the stream shape, tile programs, tensor-core kernels."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from tvm import tirx

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.program import Program
from tvm_cascade.devices.device import Gpu, Instructions
from tvm_cascade.tile.attention.program import TileProgram, build_program
from tvm_cascade.tile.attention.shape import Stream, read_stream
from tvm_cascade.tile.attention.tile_schedule import live_shares
from tvm_cascade.tile.estimate import Work
from tvm_cascade.tile.operand import Unfit, check_allowed
from tvm_cascade.tile.output import member_at
from tvm_cascade.tile.skeleton import Setting, Skeleton
from tvm_cascade.tile.skeletons.stream.config import StreamConfig, ranked_configs, seconds
from tvm_cascade.tile.skeletons.stream.kernel import StreamKernel
from tvm_cascade.tile.skeletons.stream.pieces.choice import ranked_pieces
from tvm_cascade.tile.skeletons.stream.pieces.config import PiecesConfig, items_of
from tvm_cascade.tile.skeletons.stream.pieces.cost import pieces_seconds
from tvm_cascade.tile.skeletons.stream.pieces.kernel import PiecesKernel
from tvm_cascade.tile.skeletons.stream.pieces.spread import is_spread
from tvm_cascade.tile.skeletons.stream.room import beside, leaving_room


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
        """See `ranked_pieces` for few rows, `ranked_configs` for others; both where these leave processors idle."""
        stream, gpu = program.stream, setting.gpu
        few, rows = stream.few_rows, stream.extent(stream.row)
        if few is None and stream.left.row is None and program.skip:
            few = int(rows)
        if few is not None:
            return list[StreamConfig](ranked_pieces(program, gpu, few))
        found = ranked_configs(program, gpu)
        items = items_of(found[0], stream)
        if items is None or items >= gpu.processors or (program.skip and rows > found[0].rows):
            return found  # in pieces, what is alive is asked of all rows of a place at once
        with suppress(Unfit):
            cuts = [cut for cut in ranked_pieces(program, gpu, found[0].rows) if cut.blocks > items]
            if cuts and self._folding(program, cuts[0], gpu) < self._folding(program, found[0], gpu):
                return [*cuts, *found]
            found += cuts
        return found

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
        gpu, alive = setting.gpu, work.live(*live_shares(program, config.rows, config.columns))
        on_tensor_cores = alive.on_tensor_cores.seconds(gpu, self.memory_share, self.compute_share)
        return max(self._folding(program, config, gpu), on_tensor_cores)

    def _folding(self, program: TileProgram, config: StreamConfig, gpu: Gpu) -> float:
        """The seconds of the busiest block."""
        if isinstance(config, PiecesConfig):
            return pieces_seconds(config, program, gpu)
        return seconds(config, program, gpu)

    def fetches_ahead(self, config: StreamConfig) -> bool:
        """Where many rows share tiles: products take longer than copies."""
        return type(config) is StreamConfig

    def leaving_room(self, program: TileProgram, setting: Setting) -> list[StreamConfig]:
        """Where many rows share tiles, and each tile of rows visits as many."""
        usual = next((c for c in self.alternatives(program, setting) if not isinstance(c, PiecesConfig)), None)
        return [] if usual is None else leaving_room(usual, program)

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
