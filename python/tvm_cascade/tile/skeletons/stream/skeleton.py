"""The stream skeleton's table row: the stream shape, tile programs, tensor-core kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from tvm import tirx

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.tir import loads_of
from tvm_cascade.devices.device import Instructions
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.attention.program import TileProgram, build_program
from tvm_cascade.tile.attention.shape import read_stream
from tvm_cascade.tile.attention.tile_schedule import live_shares
from tvm_cascade.tile.cost import Counts, seconds
from tvm_cascade.tile.estimate import Work
from tvm_cascade.tile.hopper.driver import Driver
from tvm_cascade.tile.launch.dependent import Launch
from tvm_cascade.tile.machine.table import MULTIPLYING
from tvm_cascade.tile.operand import Operand, Unfit
from tvm_cascade.tile.output import member_at
from tvm_cascade.tile.skeleton import Setting, Skeleton
from tvm_cascade.tile.skeletons.stream.config import StreamConfig, Tiles, ranked_configs
from tvm_cascade.tile.skeletons.stream.halves.columns import check_shared
from tvm_cascade.tile.skeletons.stream.halves.config import HalvesConfig, ranked_halves
from tvm_cascade.tile.skeletons.stream.halves.kernel import HalvesKernel
from tvm_cascade.tile.skeletons.stream.kernel import StreamKernel
from tvm_cascade.tile.skeletons.stream.pieces.config import PiecesConfig, items_of, ranked_pieces
from tvm_cascade.tile.skeletons.stream.pieces.kernel import PiecesKernel
from tvm_cascade.tile.work import GROUP_ROWS

KERNELS: dict[type[Tiles], Callable[[TileProgram, Any, Launch], Driver]] = {
    StreamConfig: StreamKernel, PiecesConfig: PiecesKernel, HalvesConfig: HalvesKernel,
}  # fmt: skip
"""By the kind of a configuration."""


class Attention(Skeleton[TileProgram, Tiles]):
    """Folds of a product of two matrices along its columns, on tensor cores, in any division of labour."""

    kind = "tensor-core kernel"
    instructions = MULTIPLYING
    option = "tensor_cores"

    def lacks(self, program: TileProgram, config: Tiles, setting: Setting) -> str:
        return config.lacks(program, setting.gpu)

    def operands(self, program: TileProgram) -> Iterable[Operand]:
        return program.stream.operands

    def emit(self, program: TileProgram, config: Tiles, name: str, launch: Launch) -> tirx.PrimFunc:
        return KERNELS[type(config)](program, config, launch).build(name)

    def counts(self, program: TileProgram, config: Tiles, work: Work, setting: Setting) -> Counts:
        """What the busiest block does, and what memory does for the tiles that rows visit."""
        live = work.live(*live_shares(program, config.rows, config.columns))
        return config.counts(program, setting.gpu)._replace(work=live.on_tensor_cores)

    def fetches_ahead(self, config: Tiles) -> bool:
        """Where many rows share tiles."""
        return config.fetches_ahead

    def leaving_room(self, program: TileProgram, setting: Setting) -> list[Tiles]:
        """Where many rows share tiles, and each tile of rows visits as many."""
        rooms = (config.leaving_room(program) for config in self.alternatives(program, setting))
        return list(next((room for room in rooms if room is not None), ()))

    def beside(self, program: TileProgram, config: Tiles, processors: int, setting: Setting) -> Tiles | None:
        """Where results alone read what another kernel leaves."""
        return config.beside(program, processors, setting.gpu)

    def may_begin_early(self, program: TileProgram, given: Sequence[tirx.Var]) -> bool:
        """Where the left operand alone is new: products with others, which are most of the bytes of few rows."""
        operands = [program.stream.right, *(product.value for product in program.stream.products)]
        read = [load.source for load in program.loads if member_at(program.stream.group, load) is None]
        return all(among(own, given) for own in (*read, *(o.buffer for o in operands)))

    def may_wait_late(self, program: TileProgram, config: Tiles, read: Sequence[tirx.Var]) -> bool:
        """Where all that is stored goes through a fix-up, and neither elements nor products read what is late."""
        stream = program.stream
        elements = [*(atom.expression for atom in stream.group.atoms.atoms.values()), *stream.score.scales]
        early = [operand.buffer for operand in stream.operands]
        early += [load.source for element in elements for load in loads_of(element)]
        return config.may_wait_late(stream) and not any(among(buffer, early) for buffer in read)

    def fast_math(self, program: TileProgram) -> bool:
        return True


class StreamSkeleton(Attention):
    """Kernels whose warp groups have rows of their own."""

    name, covers, joint = "stream", "folds of a matrix product", True

    def read(self, program: Program, group: Group, options: FuseOptions) -> TileProgram:
        return build_program(read_stream(program, group))

    def alternatives(self, program: TileProgram, setting: Setting) -> list[Tiles]:
        """See `ranked_pieces` for few rows, `ranked_configs` for others; both where these leave processors idle."""
        stream, gpu = program.stream, setting.gpu
        few, rows = stream.few_rows, stream.extent(stream.row)
        if few is None and stream.left.row is None and program.skip:
            few = int(rows)
        if few is not None:
            return list[Tiles](ranked_pieces(program, gpu, few))
        try:
            found = list[Tiles](ranked_configs(program, gpu))
        except Unfit:
            return list[Tiles](ranked_pieces(program, gpu, GROUP_ROWS))  # whose left operand is in registers
        items = items_of(found[0], stream)
        if items is None or items >= gpu.processors or (program.skip and rows > found[0].rows):
            return found  # in pieces, what is alive is asked of all rows of a place at once
        with suppress(Unfit):
            cuts = [cut for cut in ranked_pieces(program, gpu, found[0].rows) if cut.blocks > items]
            times = [seconds(one.counts(program, gpu), gpu) for one in (*cuts[:1], found[0])]
            if times[0] < times[-1]:
                return [*cuts, *found]
            found += cuts
        return found


class HalvesSkeleton(Attention):
    """Kernels whose state two warp groups share, each with half of the columns."""

    name, covers = "stream halves", "folds of a matrix product whose values are its own right operand"
    instructions = frozenset({Instructions.WGMMA})

    def read(self, program: Program, group: Group, options: FuseOptions) -> TileProgram:
        """Of values that are the right operand's own tile."""
        stream = read_stream(program, group)
        check_shared(stream)
        return build_program(stream)

    def alternatives(self, program: TileProgram, setting: Setting) -> list[Tiles]:
        return list[Tiles](ranked_halves(program, setting.gpu))
