"""The choice of a configuration for few rows: every width of tiles, over the grid or clusters, by its estimate."""

from __future__ import annotations

from dataclasses import replace

from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.attention.program import TileProgram
from tvm_cascade.tile.attention.ragged import origin_bytes
from tvm_cascade.tile.attention.shape import Stream
from tvm_cascade.tile.cost import seconds
from tvm_cascade.tile.machine.table import family_of
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.skeletons.stream.config import check_widths
from tvm_cascade.tile.skeletons.stream.pieces.config import (
    PiecesConfig,
    is_crowded,
    is_ragged,
    items_of,
    sequences_of,
    visited,
)
from tvm_cascade.tile.skeletons.stream.pieces.spread import is_spread
from tvm_cascade.tile.work import GROUP_ROWS

_STAGED_BYTES = 128 * 1024
"""Of right operands in flight or waiting: with 192 KB a kernel takes 1.04 of the time, since the memory serves some
multiprocessors before others then, and with 64 KB 1.02 (measured, of 32 rows of 32768 positions)."""

_GROUPS = {True: 3, False: 2}
"""Warp groups that consume or convert, by whether registers move to those that consume: with the producer's, a
multiprocessor has 128 registers for each thread of four groups, and 168 of three."""

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
    family = family_of(gpu)
    widening = min(_widened_feeds(stream), _GROUPS[family.moves_registers] - consumers)
    sequences = sequences_of(program)[1]
    counted = 0 if sequences is None else origin_bytes(sequences)
    found = []
    for columns in (128, 64, 32):
        one = PiecesConfig(columns, consumers, 0, gpu.processors, widening=widening, family=family)
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
    return sorted(cuts, key=lambda cut: (seconds(cut.counts(program, gpu), gpu), cut.blocks))


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
