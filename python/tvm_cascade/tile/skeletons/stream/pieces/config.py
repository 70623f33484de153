"""The configuration of a stream kernel of few rows: tiles, stages, and blocks that share the axis."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tvm import ir, tirx

from tvm_cascade.analysis.extent import product
from tvm_cascade.analysis.tir import loads_of, uses
from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.attention.operands.widen import WIDE_STAGES
from tvm_cascade.tile.attention.pieces import most_pieces
from tvm_cascade.tile.attention.program import TileProgram
from tvm_cascade.tile.attention.ragged import MOST_SEQUENCES
from tvm_cascade.tile.attention.shape import Stream
from tvm_cascade.tile.attention.tile_schedule import visited_tiles
from tvm_cascade.tile.cost import Counts
from tvm_cascade.tile.machine.family import Family
from tvm_cascade.tile.machine.wgmma import WGMMA
from tvm_cascade.tile.operand import STEP_BYTES, Unfit
from tvm_cascade.tile.skeletons.stream.config import (
    BUSY_SHARES,
    REGISTERS,
    Tiles,
    boxed,
    position_flops,
    products_rate,
    tile_flops,
)
from tvm_cascade.tile.skeletons.stream.pieces.patches import Patches
from tvm_cascade.tile.skeletons.stream.pieces.spread import is_spread, spread_bytes
from tvm_cascade.tile.work import GROUP_ROWS, WARP_GROUP, Registers

_MOST = 255
"""Registers of a thread."""

_CONVERTED = {1: Registers(32, 240, 112), 2: Registers(32, 192, 88)}
"""Registers of a thread of the producer, of each consumer, and of each warp group that converts, by the number of
consumers: one that two convert for, or two that share one."""


_FEW_BLOCKS = 1 / 4
"""The share of multiprocessors below which copies of one are above what its folds take."""

_THREAD_ROWS = 8
"""Rows of which each thread has one at most."""

_CLUSTERED = 8
"""Blocks of the largest cluster: of more blocks than multiprocessors that those reach, some share one."""

_STATE_RATES = {1: "state_bytes_per_second", 2: "two_state_bytes_per_second"}
"""Names of rates by the consumers of a block."""

_STORING = 2.5
"""At the end of an item that a block has whole, times of merging its state that storing takes."""


@dataclass(frozen=True)
class PiecesConfig(Tiles):
    """Of few rows: a block has consecutive tiles of the concatenation of all rows' axes.

    Attributes
    ----------
    widening : warp groups that convert tiles on the way to the tensor cores: one for each feed, or for both.
    cluster : blocks that share the axis of each tile of rows, and no other, where that is more than one.
    neighbours : blocks that share a multiprocessor: one folds while another waits for what its results read, or
        clusters' places would not be enough.
    kept : whole items of a block at most, whose states it keeps, where results wait for the end of a kernel beside it;
        one where none is kept.
    """

    columns: int = 128
    consumers: int = 1
    stages: int = 2
    blocks: int = 1
    widening: int = 0
    cluster: int = 1
    neighbours: int = 1
    kept: int = 1
    family: Family = field(default=WGMMA, compare=False, repr=False)

    @property
    def may_cluster(self) -> bool:
        """Whether two blocks have their registers on one multiprocessor."""
        return self.consumers + self.widening == 1

    @property
    def converts(self) -> bool:
        """Whether tiles are converted on the way to the tensor cores."""
        return self.widening > 0

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return super().threads + WARP_GROUP * self.widening

    def shares(self, stream: Stream, finds: bool = False) -> Registers:
        """Registers of the roles; one consumer that has a multiprocessor has what it can have in any case."""
        groups = self.neighbours * (1 + self.consumers + self.widening)
        return self.family.registers(self._moved(stream), groups)

    def _moved(self, stream: Stream) -> Registers:
        if self.widening:
            return _CONVERTED[self.consumers]
        moved = self.consumers > 1 or self.neighbours > 1
        producer = 24 if moved else _MOST
        if stream.paged and self.consumers == 2:
            return BUSY_SHARES
        if self.neighbours > 1:  # of 128 that each thread of two warp groups has at first
            return Registers(producer, 256 - producer)
        return Registers(producer, REGISTERS if moved else _MOST, moved=moved)

    def block_registers(self, stream: Stream) -> int:
        """Of all threads of a block."""
        return self.shares(stream).of_block(self.consumers, self.widening)

    def registers(self, stream: Stream) -> int:
        """Registers that a consumer thread holds: also the left operand."""
        return super().registers(stream) + left_words(stream)

    def shared_bytes(self, stream: Stream) -> int:
        """Bytes of shared memory for the right operands."""
        tiles = self.stages * self.stage_bytes(stream) + self.wide_bytes(stream)
        return tiles + self._met_bytes(stream) + spread_bytes(stream, self.kept) + 1024

    def wide_bytes(self, stream: Stream) -> int:
        """Bytes of shared memory for tiles that were converted."""
        tiles = [tile for tile in self.right_tiles(stream) if tile[0].widened is not None]
        return WIDE_STAGES * sum(rows * boxed(columns, operand.size) for operand, rows, columns in tiles)

    def state_bytes(self, stream: Stream) -> int:
        """Bytes of the vectors of a row's state that a block leaves."""
        return sum(p.width for p in stream.products) * 4

    def _met_bytes(self, stream: Stream) -> int:
        """Bytes of shared memory for the states that the blocks of a cluster leave to each other."""
        if self.cluster == 1:
            return 0
        widths = [p.width for p in stream.products]
        scalars = len(stream.fold.components) - len(widths) + len(stream.fold.references) + 1
        return Patches(min(int(stream.extent(stream.row)), GROUP_ROWS), self.cluster).words(widths, scalars) * 4

    def check(self, program: TileProgram, gpu: Gpu) -> None:
        """Also that every block of a cluster is known to have a tile."""
        alone = not is_ragged(program) and self.may_cluster
        tiles = (visited(program, self.columns) or 0) if alone else 0
        if self.cluster > 1 and tiles < self.cluster:
            raise Unfit(
                f"{tiles} tiles known of {self.columns} positions, which a cluster of {self.cluster} blocks shares"
            )
        super().check(program, gpu)

    def fits(self, stream: Stream, gpu: Gpu) -> bool:
        """Also whether a multiprocessor holds as many blocks as it is to."""
        bytes_of_all = self.neighbours * (self.shared_bytes(stream) + gpu.reserved_shared_bytes)
        return super().fits(stream, gpu) and bytes_of_all <= gpu.shared_bytes

    def counts(self, program: TileProgram, gpu: Gpu) -> Counts:
        """Copies and folds of the busiest block, and the combination of its states."""
        stream, tiles = program.stream, visited(program, self.columns)
        items, rows = items_of(self, stream), stream.extent(stream.row)
        if tiles is None or items is None or not isinstance(rows, int):
            return Counts()
        longest = -(-items * tiles // self.blocks) if self.cluster == 1 else -(-tiles // self.cluster)
        if self.kept > 1:
            longest = self.kept * tiles
        is_alone = self.consumers * self.neighbours == 1 or self.cluster > 1
        between = {"block_seconds": 1.0} if self.consumers > 1 else {"lone_block_seconds": float(is_alone)}
        merged, rate = 2.0 * min(rows, self.rows) * self.state_bytes(stream), _STATE_RATES[self.consumers]
        if self.cluster > 1:
            crowded = is_crowded(self.blocks, gpu)
            between |= {"cluster_combine_seconds": 1.0, "crowded_seconds": float(crowded)}
            between[rate] = 1.5 * merged if crowded else merged
        elif self.kept == 1 and (items * tiles % self.blocks > 0 or longest % tiles > 0):
            pieces = pieces_of_item(self, program) or 1
            between |= {"combine_seconds": 1.0, "contention_seconds": float(pieces**2), rate: merged}
        elif is_alone:  # else another folds meanwhile
            between |= {"item_seconds": 1.0, rate: _STORING * merged}
        return self._of_tiles(stream, rows, longest, gpu)._replace(between=between)

    def _of_tiles(self, stream: Stream, rows: int, tiles: int, gpu: Gpu) -> Counts:
        """Of the busiest block's tiles."""
        read = float(self.read_bytes(stream))
        crowded = self.cluster > 1 and is_crowded(self.blocks, gpu)
        counts = Counts(bytes=tiles * read * self.blocks, steps=float(tiles), far_ahead=True, crowded=crowded)
        if self.blocks > _FEW_BLOCKS * gpu.processors:
            rate = "own_bytes_per_second" if self.stages > 2 else "two_stage_bytes_per_second"
            counts = counts._replace(copied=read, copies_rate=rate)
        if self.consumers > 1:
            return counts._replace(products=tile_flops(self, stream), products_rate=products_rate(stream))
        one, sharing = rows <= _THREAD_ROWS, self.neighbours if self.cluster == 1 else 1
        return counts._replace(
            products=sharing * self.columns * position_flops(stream),
            products_rate="tensor_one_row" if one else "tensor_two_rows",
            folds={"tile_seconds" if one else "two_row_tile_seconds": float(sharing)},
            load=min(self.blocks / gpu.processors, 1.0),
        )

    def beside(self, program: TileProgram, processors: int, gpu: Gpu) -> PiecesConfig | None:
        """Where lengths are alike, and blocks share items by the grid; see `Tiles`."""
        items = items_of(self, program.stream)
        if items is None or is_ragged(program) or self.cluster > 1:
            return None
        kept = max(-(-items // (self.neighbours * processors)), 2)
        cuts = [replace(self, blocks=-(-items // kept), kept=kept, stages=n) for n in range(self.stages, 1, -1)]
        return next((cut for cut in cuts if cut.fits(program.stream, gpu)), None)

    def may_wait_late(self, stream: Stream) -> bool:
        """Where threads of all blocks merge whole items too."""
        return is_spread(stream)


def is_crowded(blocks: int, gpu: Gpu) -> bool:
    """Whether so many blocks of clusters have no multiprocessor each."""
    return blocks > gpu.reached_by(_CLUSTERED)


def left_words(stream: Stream) -> int:
    """Registers of a thread for its part of the left operand."""
    return -(-stream.depth * stream.left.size // STEP_BYTES) * 4


def is_of_place(slack: ir.Expr, stream: Stream) -> bool:
    """Whether the positions that a slack calls live are others at every place."""
    return uses(slack, list(stream.batch)) or bool(loads_of(slack))


def visited(program: TileProgram, columns: int) -> int | None:
    """How many tiles of so many positions rows visit, where that is known."""
    rows = program.stream.extent(program.stream.row)
    found = visited_tiles(program, rows, columns) if isinstance(rows, int) else None
    return None if found is None else int(found[0])


def is_ragged(program: TileProgram) -> bool:
    """Whether places visit different numbers of tiles."""
    return any(is_of_place(slack, program.stream) for slack in program.skip)


def sequences_of(program: TileProgram) -> tuple[list[tirx.Var], int | None]:
    """The variables by which live tiles differ, and how many places they are; none where none do, or too many."""
    if not is_ragged(program):
        return [], None
    stream = program.stream
    found = [v for v in stream.batch if any(uses(slack, [v]) for slack in program.skip)]
    count = product(stream.extent(var) for var in found)
    return (found, count) if isinstance(count, int) and count <= MOST_SEQUENCES else ([], None)


def items_of(config: Tiles, stream: Stream) -> int | None:
    """Tiles of rows at all places, where that is known."""
    places, rows = product(stream.extent(var) for var in stream.batch), stream.extent(stream.row)
    return places * -(-rows // config.rows) if isinstance(places, int) and isinstance(rows, int) else None


def pieces_of_item(config: PiecesConfig, program: TileProgram) -> int | None:
    """Pieces of an item at most, where that is known."""
    tiles, items = visited(program, config.columns), items_of(config, program.stream)
    return None if is_ragged(program) or not tiles or not items else most_pieces(items, tiles, config.blocks)


def blocks_of_item(config: PiecesConfig, program: TileProgram) -> int | None:
    """Blocks that have an item, each an equal part of it and nothing else; None where that is not so, or unknown."""
    tiles, items = visited(program, config.columns), items_of(config, program.stream)
    if config.cluster > 1:
        return config.cluster
    if config.kept > 1 or is_ragged(program) or not tiles or not items or config.blocks % items > 0:
        return None
    blocks = config.blocks // items
    return blocks if tiles % blocks == 0 else None
