"""The choice of a configuration for few rows: every width of tiles, over the grid or clusters, by its estimate."""

from __future__ import annotations

from dataclasses import replace

from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.attention.program import TileProgram
from tvm_cascade.tile.attention.ragged import origin_bytes
from tvm_cascade.tile.attention.shape import Stream
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.skeletons.stream.config import StreamConfig, check_widths, even_items, tile_seconds
from tvm_cascade.tile.skeletons.stream.pieces.config import (
    PiecesConfig,
    is_ragged,
    items_of,
    pieces_of_item,
    sequences_of,
    visited,
)
from tvm_cascade.tile.skeletons.stream.pieces.spread import is_spread
from tvm_cascade.tile.work import GROUP_ROWS

_STAGED_BYTES = 128 * 1024
"""Of right operands in flight or waiting: with 192 KB a kernel takes 1.04 of the time, since the memory serves some
multiprocessors before others then, and with 64 KB 1.02 (measured, of 32 rows of 32768 positions)."""

_GROUPS = 3
"""Warp groups that consume or convert: with the producer's, a multiprocessor has 128 registers for each thread."""

_NEIGHBOURS = 2
"""Blocks of a multiprocessor, of which one folds while another waits for what its results read."""

_LONG = 4
"""Tiles of a block from which on the widest ones take least: copies are larger (measured: 0.98 of the time of tiles of
half as many positions, of 32 rows of 32768 positions)."""


def ranked_pieces(program: TileProgram, gpu: Gpu, rows: int) -> list[PiecesConfig]:
    """The configurations for few rows, from the most to the least preferred.

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
        return [shared, *found]
    if visited(program, found[0].columns) is None or items_of(found[0], stream) is None or is_ragged(program):
        usual = _usual(found, program)
        return [usual, *(config for config in found if config != usual)]
    cuts = [cut for config in found for cut in (*_grids(config, program, gpu), *_clusters(config, program, gpu))]
    return sorted(cuts, key=lambda cut: (pieces_seconds(cut, program, gpu), cut.blocks))


def _usual(found: list[PiecesConfig], program: TileProgram) -> PiecesConfig:
    """The widest tiles, where blocks have several."""
    return found[1] if len(found) > 1 and _tiles_of_a_block(found[0], program) < _LONG else found[0]


def _grids(config: PiecesConfig, program: TileProgram, gpu: Gpu) -> list[PiecesConfig]:
    """The configuration with blocks on all multiprocessors, or on so many that have equal shares."""
    tiles, items = visited(program, config.columns) or 1, items_of(config, program.stream) or 1
    even = [n for n in range(1, gpu.processors) if items * tiles % n == 0]
    return [replace(config, blocks=n) for n in (*even, gpu.processors)]


def _neighbours(found: list[PiecesConfig], program: TileProgram, gpu: Gpu) -> PiecesConfig | None:
    """Two blocks on each multiprocessor where all have whole items: of the widest tiles of which two fit thrice.

    One waits for what results read while the other folds (measured: 46.4 instead of 50.8 µs with the kernel before it,
    of 512 items of four rows and 256 positions that merge nine states each).
    """
    for config in found if all(one.may_cluster for one in found) else ():
        items = items_of(config, program.stream)
        if items is None or items < _NEIGHBOURS * gpu.processors or is_ragged(program):
            continue
        blocks = max(n for n in range(1, _NEIGHBOURS * gpu.processors + 1) if items % n == 0)
        cuts = [replace(config, neighbours=_NEIGHBOURS, blocks=blocks, stages=n) for n in range(config.stages, 2, -1)]
        fitting = [cut for cut in cuts if cut.fits(program.stream, gpu)]
        if fitting and blocks > gpu.processors:
            return fitting[0]
    return None


def _tiles_of_a_block(config: PiecesConfig, program: TileProgram) -> float:
    """Tiles of each block where all run; endless where that is unknown."""
    tiles, items = visited(program, config.columns), items_of(config, program.stream)
    return float("inf") if tiles is None or items is None else tiles * items / config.blocks


def _widened_feeds(stream: Stream) -> int:
    """How many of the two feeds, of scores and of products, are converted on the way."""
    values = any(product.value.widened is not None for product in stream.products)
    return int(stream.right.widened is not None) + int(values)


def _clusters(config: PiecesConfig, program: TileProgram, gpu: Gpu) -> list[PiecesConfig]:
    """The configuration with clusters of blocks in place of blocks, and as many stages as then fit."""
    tiles, items = visited(program, config.columns) or 0, items_of(config, program.stream) or gpu.processors
    sizes = [n for n in (2, 4, 8) if n <= min(tiles, gpu.largest_cluster) and items * n <= gpu.processors]
    found = []
    for cluster in sizes if config.may_cluster else ():
        sharing = _NEIGHBOURS if is_crowded(items * cluster, gpu) else 1
        cut = replace(config, blocks=items * cluster, cluster=cluster, neighbours=sharing)
        cuts = [replace(cut, stages=n) for n in range(config.stages, 1, -1)]
        found += [cut for cut in cuts if cut.fits(program.stream, gpu)][:1]
    return found


# What a stream kernel of few rows takes: copies and folds of its busiest block, and the meeting of its states.
#
# All figures are of a sweep of 21 shapes (1 to 64 rows of 512 to 16384 positions, 1 to 64 items), each by up to seven
# configurations.


_READ = 0.92
"""Of the memory's bandwidth on paper that reads reach."""

_MULTIPROCESSOR_RATE, _FEW_STAGES = 62e9, 57e9
"""Bytes a second that one multiprocessor reads where half of them have all tiles; and with two stages."""

_FEW_BLOCKS = 1 / 4
"""The share of multiprocessors below which these rates are above what folds take."""

_START = 0.6e-6
"""Seconds from a block's start to its first tile, beyond a launch's, where it has one consumer and no neighbour."""

_FOLD = {1: (0.19e-6, 4.8e-9), 2: (0.27e-6, 5.9e-9)}
"""Seconds of a tile's products and fold where little else runs, by the rows of a thread: of any tile, and of a position
whose operands have `_WIDTH` elements."""

_WIDTH = 256
"""Elements of a key and a value together, of the shapes measured."""

_LOADED = 0.3
"""By how much a tile takes longer where all multiprocessors are busy."""

_THREAD_ROWS = 8
"""Rows of which each thread has one at most."""

_MEETING = 4.0e-6
"""Seconds to claim states in global memory, arrive, learn that all others have, and merge a few pieces."""

_WHOLE, _STORING = 2.0e-6, 2.5
"""Seconds at the end of an item that a block has whole, and by the seconds that merging its state would take."""

_CONTENTION = 1.3e-6 / 64**2
"""Seconds by the square of an item's pieces: each block reads a share of every state, at words that all write."""

_CLUSTER = 0.6e-6
"""Seconds in which blocks of a cluster send states to each other and merge them."""

_CLUSTERED = 10 / 11
"""The share of multiprocessors that clusters of four or eight blocks reach: of more blocks, some share one."""

_CROWDED, _CROWDED_SHARE = 0.8e-6, 1.05
"""Seconds that this takes, and by how much all tiles take longer."""

_STATE_RATE = 50e9
"""Bytes a second of states that a block leaves, and then as many that it merges."""


def pieces_seconds(config: PiecesConfig, program: TileProgram, gpu: Gpu) -> float:
    """The estimated time of a configuration, without the launch; 0 where extents are symbolic."""
    stream, tiles = program.stream, visited(program, config.columns)
    items, rows = items_of(config, stream), stream.extent(stream.row)
    if tiles is None or items is None or not isinstance(rows, int) or not gpu.memory_bytes_per_second:
        return 0.0
    longest = -(-items * tiles // config.blocks) if config.cluster == 1 else -(-tiles // config.cluster)
    if config.kept > 1:
        longest = config.kept * tiles
    is_alone = config.consumers * config.neighbours == 1 or config.cluster > 1
    folding = (_START if is_alone else 0.0) + longest * _tile(config, stream, rows, gpu)
    merging = 2 * min(rows, config.rows) * config.state_bytes(stream) / _STATE_RATE
    if config.cluster > 1:
        if is_crowded(config.blocks, gpu):
            folding = folding * _CROWDED_SHARE + _CROWDED + merging / 2
        return folding + _CLUSTER + merging
    if config.kept == 1 and (items * tiles % config.blocks > 0 or longest % tiles > 0):
        pieces = pieces_of_item(config, program) or 1
        return folding + _MEETING + _CONTENTION * pieces**2 + merging
    return folding + (_WHOLE + _STORING * merging if is_alone else 0.0)  # else another folds meanwhile


def is_crowded(blocks: int, gpu: Gpu) -> bool:
    """Whether so many blocks of clusters have no multiprocessor each."""
    return blocks > _CLUSTERED * gpu.processors


def _tile(config: PiecesConfig, stream: Stream, rows: int, gpu: Gpu) -> float:
    """The seconds of a tile: of its bytes where all blocks read at once, or of its products and fold."""
    rate = _READ * gpu.memory_bytes_per_second / config.blocks
    if config.blocks > _FEW_BLOCKS * gpu.processors:
        rate = min(rate, _MULTIPROCESSOR_RATE if config.stages > 2 else _FEW_STAGES)
    copying = config.stage_bytes(stream) / rate
    if config.consumers > 1:
        return max(copying, tile_seconds(config, stream, gpu))
    fixed, position = _FOLD[1 if rows <= _THREAD_ROWS else 2]
    width = stream.depth + sum(p.width for p in stream.products)
    sharing = config.neighbours if config.cluster == 1 else 1
    busy = 1 + _LOADED * min(config.blocks / gpu.processors, 1)
    return max(copying, (fixed + position * config.columns * width / _WIDTH) * busy * sharing)


# How two stream kernels share a device: one folds tiles of many rows, the other waits for its states at the end.
#
# Each has multiprocessors of its own. A block of each on every multiprocessor, with half the registers and stages, took
# 47.7 µs where this takes 38.2 (measured, a prefix of 8192 keys and 64 sequences of 256).


def leaving_room(config: StreamConfig, program: TileProgram) -> list[StreamConfig]:
    """With fewer blocks, which have as many tiles of rows each."""
    items = even_items(config, program)
    return [replace(config, blocks=n) for n in range(1, config.blocks) if items is not None and items % n == 0]


def beside(config: PiecesConfig, program: TileProgram, processors: int, gpu: Gpu) -> PiecesConfig | None:
    """The configuration on some multiprocessors alone, whose blocks keep the states of whole items; None if unfit."""
    items = items_of(config, program.stream)
    if items is None or is_ragged(program) or config.cluster > 1:
        return None
    kept = max(-(-items // (config.neighbours * processors)), 2)
    cuts = [replace(config, blocks=-(-items // kept), kept=kept, stages=n) for n in range(config.stages, 1, -1)]
    return next((cut for cut in cuts if cut.fits(program.stream, gpu)), None)
