"""The choice of a configuration of a folded product: rows of a block, or stretches of rows, by the estimated time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from tvm_cascade.analysis.extent import product
from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.skeletons.product.config import BOX_COLUMNS, ProductConfig
from tvm_cascade.tile.skeletons.product.folded.config import Config, FoldedConfig, LongConfig
from tvm_cascade.tile.skeletons.product.folded.cost import seconds
from tvm_cascade.tile.skeletons.product.folded.program import FoldedProgram
from tvm_cascade.tile.skeletons.product.folded.shape import FoldedProduct
from tvm_cascade.tile.work import GROUP_ROWS

_TILES = ((64, 1), (128, 2))
"""Rows of a tile, and its consumers."""

_SPLITS = (1, 2, 3, 4, 8)
"""Parts of k."""

_SHARING = (4, 8, 16, 32)
"""Threads of a row."""

_LENGTHS = (3, 4)
"""Tiles of a short stretch: more stretches than blocks even out."""

_MOST_STAGES = 8

_WIDEST = 256
"""Columns of a tile."""

_UNIT = 8
"""What columns of a tile are multiples of."""

_FEWEST_COLUMNS = 96
"""Of a tile of a long row."""

_WIDEST_LOAD = 4
"""Sums that a thread reads at once."""


def ranked_configs(program: FoldedProgram, gpu: Gpu) -> list[Config]:
    """The fitting configurations, from the least estimated time on.

    Raises
    ------
    Unfit
        Where none fits.
    """
    shape = program.shape
    candidates: list[Config] = [*_whole_rows(shape, gpu), *_stretches(shape, gpu)]
    if not candidates:
        raise Unfit(f"rows of {shape.columns} sums fit on no multiprocessor, and have outputs that need them whole")
    return sorted(candidates, key=lambda config: seconds(program, config, gpu))


def _whole_rows(shape: FoldedProduct, gpu: Gpu) -> Iterator[Config]:
    """Rows of a block: a tile is as wide as they are long."""
    unit = BOX_COLUMNS if shape.product.right.across else 2 * _UNIT
    columns = -(-shape.columns // unit) * unit
    vector = min(shape.row.widest_vector, _WIDEST_LOAD)
    for rows, consumers in _TILES:
        for splits in _SPLITS:
            tile = ProductConfig(rows, columns, consumers, splits=splits, blocks=gpu.processors)
            for sharing in _SHARING:
                yield from _deepest(FoldedConfig(tile, sharing, vector, shape.columns), shape, gpu)


def _stretches(shape: FoldedProduct, gpu: Gpu) -> Iterator[Config]:
    """Rows of many tiles: each tile of rows is cut into stretches so that all blocks have about as many tiles."""
    rows_of, places = shape.product.left.line.extent, product(shape.product.extent(v) for v in shape.product.batch)
    if not isinstance(rows_of, int) or not isinstance(places, int):
        return
    unit = BOX_COLUMNS if shape.product.right.across else _UNIT
    widest = min(_WIDEST, -(-shape.columns // unit) * unit)
    for rows, consumers in _TILES:
        if rows > GROUP_ROWS and rows >= 2 * rows_of:
            continue
        items = places * -(-rows_of // rows)
        for columns in range(widest, min(widest, _FEWEST_COLUMNS) - 1, -unit):
            tiles = -(-shape.columns // columns)
            even = gpu.processors // math.gcd(items, gpu.processors)
            counts = {1, even, -(-gpu.processors // items), *(-(-tiles // length) for length in _LENGTHS)}
            for stretches in sorted({min(tiles, count) for count in counts}):
                tile = ProductConfig(rows, columns, consumers, staged=0, blocks=gpu.processors)
                yield from _deepest(LongConfig(tile, stretches, min(rows, rows_of), len(shape.products)), shape, gpu)


def _deepest(config: Config, shape: FoldedProduct, gpu: Gpu) -> Iterator[Config]:
    """The configuration with as many stages as fit, if any do."""
    for stages in range(_MOST_STAGES, 0, -1):
        deep = replace(config, tile=replace(config.tile, stages=stages))
        if not deep.lacks(shape, gpu):
            yield deep
            return
