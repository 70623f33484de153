"""The configuration of a stream kernel of few rows: tiles, stages, and blocks that share the axis."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm import ir, tirx

from tvm_cascade.analysis.extent import product
from tvm_cascade.analysis.tir import loads_of, uses
from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.operand import STEP_BYTES, Unfit
from tvm_cascade.tile.pieces import most_pieces
from tvm_cascade.tile.program import TileProgram
from tvm_cascade.tile.ragged import MOST_SEQUENCES, origin_bytes
from tvm_cascade.tile.shape import Stream
from tvm_cascade.tile.skeletons.stream.config import StreamConfig, boxed, check_widths, tile_seconds
from tvm_cascade.tile.skeletons.stream.pieces.patches import Patches
from tvm_cascade.tile.skeletons.stream.pieces.spread import is_spread, spread_bytes
from tvm_cascade.tile.tile_schedule import visited_tiles
from tvm_cascade.tile.work import GROUP_ROWS, WARP_GROUP

_STAGED_BYTES = 128 * 1024
"""Of right operands in flight or waiting: with 192 KB a kernel takes 1.04 of the time, since the memory serves some
multiprocessors before others then, and with 64 KB 1.02 (measured, of 32 rows of 32768 positions)."""

_MULTIPROCESSOR_RATE = 52e9
"""Bytes a second that one multiprocessor folds where half of them have all tiles (measured, of 8 rows of 32768)."""

_READ = 0.92
"""Of the memory's bandwidth on paper that reads reach (measured)."""

_MEETING_SECONDS = 3.5e-6
"""What it takes to arrive in global memory and learn that all others have (measured: by how much eight blocks of a
cluster for each of 8 items of 8192 positions are faster)."""

_LONG = 4
"""Tiles of a block from which on the widest ones take least: copies are larger (measured: 0.98 of the time of tiles of
half as many positions, of 32 rows of 32768 positions)."""

_CLUSTER_SECONDS = 0.7e-6
"""What it takes the blocks of a cluster to leave states in each other's memory."""

_CLUSTERED, _CROWDED = 10 / 11, 1.1
"""The share of multiprocessors that clusters of four or eight blocks reach, and the time where there are more blocks,
some of which share one (measured, of 32 rows of 2048 to 8192 positions)."""

_STATE_RATE = 50e9
"""Bytes a second of states that a block leaves, and then as many that it merges (measured, of 64 rows of 32768)."""

_FEWER = 4
"""Blocks by which shares of the multiprocessors differ that two kernels are tried with."""

_GROUPS = 3
"""Warp groups that consume or convert: with the producer's, a multiprocessor has 128 registers for each thread."""

_NEIGHBOURS = 2
"""Blocks of a multiprocessor, of which one folds while another waits for what its results read."""

WIDE_STAGES = 2
"""Tiles of each operand that are converted on the way: one that products read, and one that is being written."""

_CONVERTED = {1: (32, 240, 112), 2: (32, 192, 88)}
"""Registers of a thread of the producer, of each consumer, and of each warp group that converts, by the number of
consumers: one that two convert for, or two that share one."""


@dataclass(frozen=True)
class PiecesConfig(StreamConfig):
    """As of the stream kernel; a block has consecutive tiles of the concatenation of all rows' axes.

    Attributes
    ----------
    widening : warp groups that convert tiles on the way to the tensor cores: one for each feed, or for both.
    cluster : blocks that share the axis of each tile of rows, and no other, where that is more than one.
    neighbours : blocks that share a multiprocessor, so that one folds while another waits for what its results read.
    kept : whole items of a block at most, whose states it keeps, where results wait for the end of a kernel beside it;
        one where none is kept.
    """

    widening: int = 0
    cluster: int = 1
    neighbours: int = 1
    kept: int = 1

    @property
    def blocks_per_processor(self) -> int:
        """Blocks that a multiprocessor holds: two of clusters, whose places would not cover all of them otherwise."""
        return self.neighbours if self.cluster == 1 else 2

    @property
    def may_cluster(self) -> bool:
        """Whether two blocks have their registers on one multiprocessor."""
        return self.consumers + self.converters == 1

    @property
    def converters(self) -> int:
        """Warp groups that convert tiles on the way to the tensor cores."""
        return self.widening

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return super().threads + WARP_GROUP * self.converters

    def block_registers(self, stream: Stream) -> int:
        """Of all threads of a block."""
        return super().block_registers(stream) + WARP_GROUP * self.converters * self.converter_registers

    @property
    def converter_registers(self) -> int:
        """Registers of a thread of a warp group that converts."""
        return _CONVERTED[self.consumers][2]

    def register_shares(self, stream: Stream, finds: bool = False) -> tuple[int, int]:
        """Registers of a producer's thread and of a consumer's."""
        if self.converters:
            return _CONVERTED[self.consumers][:2]
        return super().register_shares(stream, finds)

    @property
    def has_register_shares(self) -> bool:
        """Whether registers move from the producer to the consumers; one consumer has what it can have in any case."""
        return self.consumers + self.converters > 1 or self.blocks_per_processor > 1

    @property
    def consumer_registers(self) -> int:
        """Registers of a consumer thread."""
        if self.blocks_per_processor > 1:
            return 256 - self.producer_registers  # of 128 that each thread of two warp groups has at first
        return super().consumer_registers if self.has_register_shares else 255

    @property
    def producer_registers(self) -> int:
        """Registers of a thread of the producer's warp group."""
        return super().producer_registers if self.has_register_shares else 255

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

    def check_cluster(self, program: TileProgram) -> None:
        """Checks that every block of a cluster has a tile.

        Raises
        ------
        Unfit
            Where that is not so, or unknown.
        """
        tiles = (
            0 if is_ragged(program) or self.consumers + self.converters > 1 else (visited(program, self.columns) or 0)
        )
        if self.cluster > 1 and tiles < self.cluster:
            raise Unfit(
                f"{tiles} tiles known of {self.columns} positions, which a cluster of {self.cluster} blocks shares"
            )

    def fits(self, stream: Stream, gpu: Gpu) -> bool:
        """As of the stream kernel; of clusters, whether a multiprocessor holds two blocks."""
        bytes_of_all = self.blocks_per_processor * (self.shared_bytes(stream) + gpu.reserved_shared_bytes)
        return super().fits(stream, gpu) and bytes_of_all <= gpu.shared_bytes


def left_words(stream: Stream) -> int:
    """Registers of a thread for its part of the left operand."""
    return -(-stream.depth * stream.left.size // STEP_BYTES) * 4


def _widened_feeds(stream: Stream) -> int:
    """How many of the two feeds, of scores and of products, are converted on the way."""
    values = any(product.value.widened is not None for product in stream.products)
    return int(stream.right.widened is not None) + int(values)


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


def choose_pieces(program: TileProgram, gpu: Gpu, rows: int) -> PiecesConfig:
    """The configuration for few rows.

    Raises
    ------
    Unfit
        Where none fits.
    """
    stream = program.stream
    check_widths(stream)
    consumers = 1 if rows <= GROUP_ROWS else 2
    widening = min(_widened_feeds(stream), _GROUPS - consumers)
    sequences = sequences_of(program)[1]
    counted = 0 if sequences is None else origin_bytes(sequences)
    found = []
    for columns in (128, 64, 32):
        one = PiecesConfig(columns, consumers, 0, 0, False, gpu.processors, False, False, widening=widening)
        room = min(_STAGED_BYTES, gpu.block_shared_bytes - 1024 - counted - one.shared_bytes(stream))
        config = replace(one, stages=room // one.stage_bytes(stream))
        if config.stages >= 2 and config.fits(stream, gpu):
            found.append(config)
    if not found:
        raise Unfit("no tile of 32 positions or more fits into registers and shared memory")
    if is_spread(stream) and (shared := _neighbours(found, program, gpu)) is not None:
        return shared
    short = len(found) > 1 and _tiles_of_a_block(found[0], program) < _LONG
    usual = found[1] if short else found[0]
    tiles, items = visited(program, usual.columns), _items(usual, stream)
    if tiles is None or items is None or is_ragged(program):
        return usual
    even = [n for n in range(1, gpu.processors) if items * tiles % n == 0]
    cuts = [replace(usual, blocks=n) for n in (*even, gpu.processors)]
    cuts += [cut for config in found for cut in _clusters(config, program, gpu)]
    return min(cuts, key=lambda cut: (pieces_seconds(cut, program, gpu), cut.blocks))


def _neighbours(found: list[PiecesConfig], program: TileProgram, gpu: Gpu) -> PiecesConfig | None:
    """Two blocks on each multiprocessor where all have whole items: of the widest tiles of which two fit thrice.

    One waits for what results read while the other folds (measured: 46.4 instead of 50.8 µs with the kernel before it,
    of 512 items of four rows and 256 positions that merge nine states each).
    """
    for config in found if all(one.may_cluster for one in found) else ():
        items = _items(config, program.stream)
        if items is None or items < _NEIGHBOURS * gpu.processors or is_ragged(program):
            continue
        blocks = max(n for n in range(1, _NEIGHBOURS * gpu.processors + 1) if items % n == 0)
        cuts = [replace(config, neighbours=_NEIGHBOURS, blocks=blocks, stages=n) for n in range(config.stages, 2, -1)]
        fitting = [cut for cut in cuts if cut.fits(program.stream, gpu)]
        if fitting and blocks > gpu.processors:
            return fitting[0]
    return None


def fewer_blocks(config: PiecesConfig) -> tuple[int, ...]:
    """Numbers of blocks that may leave multiprocessors to another kernel; those of clusters and neighbours do not."""
    alone = config.blocks_per_processor == 1
    return tuple(range(_FEWER, config.blocks, _FEWER)) if alone and config.cluster == 1 else ()


def beside(config: PiecesConfig, program: TileProgram, processors: int, gpu: Gpu) -> PiecesConfig | None:
    """The configuration on some multiprocessors alone, whose blocks keep the states of whole items; None if unfit."""
    items = _items(config, program.stream)
    if items is None or is_ragged(program) or config.cluster > 1:
        return None
    kept = max(-(-items // (config.neighbours * processors)), 2)
    cuts = [replace(config, blocks=-(-items // kept), kept=kept, stages=n) for n in range(config.stages, 1, -1)]
    return next((cut for cut in cuts if cut.fits(program.stream, gpu)), None)


def _items(config: PiecesConfig, stream: Stream) -> int | None:
    """Tiles of rows at all places, where that is known."""
    places, rows = product(stream.extent(var) for var in stream.batch), stream.extent(stream.row)
    return places * -(-rows // config.rows) if isinstance(places, int) and isinstance(rows, int) else None


def pieces_of_item(config: PiecesConfig, program: TileProgram) -> int | None:
    """Pieces of an item at most, where that is known."""
    tiles, items = visited(program, config.columns), _items(config, program.stream)
    return None if is_ragged(program) or not tiles or not items else most_pieces(items, tiles, config.blocks)


def _tiles_of_a_block(config: PiecesConfig, program: TileProgram) -> float:
    """Tiles of each block where all run; endless where that is unknown."""
    tiles, items = visited(program, config.columns), _items(config, program.stream)
    return float("inf") if tiles is None or items is None else tiles * items / config.blocks


def _clusters(config: PiecesConfig, program: TileProgram, gpu: Gpu) -> list[PiecesConfig]:
    """The configuration with clusters of blocks in place of blocks, and as many stages as then fit."""
    tiles, items = visited(program, config.columns) or 0, _items(config, program.stream) or gpu.processors
    sizes = [n for n in (2, 4, 8) if n <= min(tiles, gpu.largest_cluster) and items * n <= gpu.processors]
    found = []
    for cluster in sizes if config.may_cluster else ():
        cuts = [replace(config, blocks=items * cluster, cluster=cluster, stages=n) for n in range(config.stages, 1, -1)]
        found += [cut for cut in cuts if cut.fits(program.stream, gpu)][:1]
    return found


def pieces_seconds(config: PiecesConfig, program: TileProgram, gpu: Gpu) -> float:
    """The estimated time of a configuration, without the launch; 0 where extents are symbolic."""
    stream, tiles = program.stream, visited(program, config.columns)
    items, rows = _items(config, stream), stream.extent(stream.row)
    if tiles is None or items is None or not isinstance(rows, int) or not gpu.memory_bytes_per_second:
        return 0.0
    merging = 2 * min(rows, config.rows) * config.state_bytes(stream) / _STATE_RATE
    longest = -(-items * tiles // config.blocks) if config.cluster == 1 else -(-tiles // config.cluster)
    if config.kept > 1:
        longest = config.kept * tiles
    rate = min(_READ * gpu.memory_bytes_per_second / config.blocks, _MULTIPROCESSOR_RATE / config.neighbours)
    folding = longest * max(config.stage_bytes(stream) / rate, tile_seconds(config, stream, gpu))
    if config.cluster > 1:
        crowded = config.blocks > _CLUSTERED * gpu.processors
        return folding * (_CROWDED if crowded else 1.0) + _CLUSTER_SECONDS + merging
    is_split = config.kept == 1 and (items * tiles % config.blocks > 0 or longest % tiles > 0)
    return folding + (_MEETING_SECONDS + merging if is_split else 0.0)
