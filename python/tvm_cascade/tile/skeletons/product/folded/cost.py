"""The estimated time of a kernel that folds the rows of a product: that of the product, and what folding adds.

rows of a block     product kernel + sums through shared memory and the fold of the block's rows
stretches of rows   product kernel of as many tiles as the busiest block has + the fold of each + their meeting
"""

from __future__ import annotations

import dataclasses

from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.skeletons.product.cost import seconds as product_seconds
from tvm_cascade.tile.skeletons.product.cost import sizes_of
from tvm_cascade.tile.skeletons.product.folded.config import Config, FoldedConfig
from tvm_cascade.tile.skeletons.product.folded.shape import FoldedProduct

_PER_SUM = 1.5e-6 / (16 * 128)
"""Seconds that a sum of a row takes a block, through shared memory and the fold."""

_FOLDED_TILE = 1.5e-6 / (128 * 256)
"""Seconds that a sum of a tile takes where it is."""

_MEETING, _PER_STRETCH = 2.0e-6, 1.0e-6
"""Seconds of a meeting, and for each of the stretches that a thread merges."""


def seconds(shape: FoldedProduct, config: Config, gpu: Gpu) -> float:
    """The estimated time, without the launch."""
    sizes = dataclasses.replace(sizes_of(shape.product), stored=0)
    tile = config.tile
    alone = product_seconds(shape.product, sizes, tile, gpu)
    if isinstance(config, FoldedConfig):
        return alone + config.rows * shape.columns * _PER_SUM
    items = sizes.places * -(-sizes.rows // tile.rows)
    tiles = -(-sizes.columns // tile.columns)
    even = -(-items * tiles // tile.blocks)
    shares = -(-items * config.stretches // tile.blocks)
    busiest = shares * -(-tiles // config.stretches)
    folded = busiest * tile.rows * tile.columns * _FOLDED_TILE
    meeting = 0.0 if config.stretches == 1 else _MEETING + _PER_STRETCH * config.stretches / config.sharing
    return alone * busiest / even + folded + meeting
