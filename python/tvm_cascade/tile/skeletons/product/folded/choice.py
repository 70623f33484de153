"""The choice of a configuration of a folded product, and the estimate of its time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.row.config import widest_vector
from tvm_cascade.tile.skeletons.product.config import BOX_COLUMNS, ProductConfig
from tvm_cascade.tile.skeletons.product.cost import seconds as product_seconds
from tvm_cascade.tile.skeletons.product.cost import sizes_of
from tvm_cascade.tile.skeletons.product.folded.config import Config, FoldedConfig
from tvm_cascade.tile.skeletons.product.folded.shape import FoldedProduct

_TILES = ((64, 1), (128, 2))
"""Rows of a tile, and its consumers."""

_SPLITS = (1, 2, 4, 8)
"""Parts of k."""

_SHARING = 8
"""Threads of a row."""

_MOST_STAGES = 8

_COLUMNS = 16

_FOLDED = 1.5e-6
"""Seconds that the rows of a tile take."""


def choose_config(shape: FoldedProduct, gpu: Gpu) -> FoldedConfig:
    """The fitting configuration of the least estimated time.

    Raises
    ------
    Unfit
        Where none fits.
    """
    fitting = [config for config in _candidates(shape, gpu) if not config.lacks(shape, gpu)]
    if not fitting:
        raise Unfit(f"rows of {shape.columns} sums do not fit on a multiprocessor")
    return min(fitting, key=lambda config: seconds(shape, config, gpu))


def seconds(shape: FoldedProduct, config: Config, gpu: Gpu) -> float:
    """The estimated time of a kernel, without its launch."""
    return product_seconds(shape.product, sizes_of(shape.product), config.tile, gpu) + _FOLDED


def _candidates(shape: FoldedProduct, gpu: Gpu) -> Iterator[FoldedConfig]:
    unit = BOX_COLUMNS if shape.product.right.across else _COLUMNS
    columns = -(-shape.columns // unit) * unit
    vector = min(widest_vector(shape.row), 4)
    for rows, consumers in _TILES:
        for splits in _SPLITS:
            tile = ProductConfig(rows, columns, consumers, 1, splits=splits, blocks=gpu.processors)
            for stages in range(_MOST_STAGES, 0, -1):
                config = FoldedConfig(replace(tile, stages=stages), _SHARING, vector, shape.columns)
                if not config.lacks(shape, gpu):
                    yield config
                    break
