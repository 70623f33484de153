"""What a stream kernel of few rows takes: copies and folds of its busiest block, and the meeting of its states.

All figures are of a sweep of 21 shapes (1 to 64 rows of 512 to 16384 positions, 1 to 64 items), each by up to seven
configurations.
"""

from __future__ import annotations

from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.attention.program import TileProgram
from tvm_cascade.tile.attention.shape import Stream
from tvm_cascade.tile.skeletons.stream.config import START, tile_seconds
from tvm_cascade.tile.skeletons.stream.pieces.config import PiecesConfig, items_of, pieces_of_item, visited

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

_STATE_RATE = {1: 50e9, 2: 27e9}
"""Bytes a second of states that a block leaves, and then as many that it merges, by its consumers (of two, measured on
an H100: 32 heads of 128 rows and 1024 positions, one of 512 rows and 16384)."""


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
    start = START if config.consumers > 1 else _START if is_alone else 0.0
    folding = start + longest * _tile(config, stream, rows, gpu)
    merging = 2 * min(rows, config.rows) * config.state_bytes(stream) / _STATE_RATE[config.consumers]
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
    copying = config.read_bytes(stream) / rate
    if config.consumers > 1:
        return max(copying, tile_seconds(config, stream, gpu))
    fixed, position = _FOLD[1 if rows <= _THREAD_ROWS else 2]
    width = stream.depth + sum(p.width for p in stream.products)
    sharing = config.neighbours if config.cluster == 1 else 1
    busy = 1 + _LOADED * min(config.blocks / gpu.processors, 1)
    return max(copying, (fixed + position * config.columns * width / _WIDTH) * busy * sharing)
