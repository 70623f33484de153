"""Chooses how a product is cut for CUDA cores: the least estimated time of some tiles."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tvm_cascade.analysis.extent import Extent
from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.row.linear import itemsize
from tvm_cascade.tile.skeletons.simt.config import CoreConfig
from tvm_cascade.tile.skeletons.simt.cut import Cut
from tvm_cascade.tile.skeletons.simt.shape import CoreProduct

_TILES = (
    CoreConfig(Cut(4, 4, 16), Cut(2, 8, 8), 16, 4),
    CoreConfig(Cut(2, 8, 8), Cut(2, 4, 16), 16, 4, 1, 2),
    CoreConfig(Cut(2, 8, 8), Cut(4, 4, 8), 16, 4, 1, 2),
    CoreConfig(Cut(1, 8, 8), Cut(4, 4, 8), 16, 4, 1, 3),
    CoreConfig(Cut(1, 8, 8), Cut(2, 4, 8), 16, 4, 1, 4),
    CoreConfig(Cut(1, 8, 8), Cut(2, 4, 8), 32, 4, 4),
    CoreConfig(Cut(1, 8, 4), Cut(1, 4, 8), 32, 4, 4, 2),
    CoreConfig(Cut(1, 4, 4), Cut(1, 8, 4), 64, 4, 4, 2),
)
"""Tiles of a block, from the largest to the smallest."""

_UNKNOWN = 4096
"""What an extent is taken for that is not known before the launch."""

LANES = 128
"""Products of float32 that a processor does at once."""

_BYTES = 34
"""That a processor gets from the second-level cache at once (measured, `reference` of an H200)."""


def choose_core_config(shape: CoreProduct, gpu: Gpu) -> CoreConfig:
    """The fitting configuration of the least estimated time.

    Raises
    ------
    Unfit
        Where none fits.
    """
    fitting = [c for c in _candidates() if not c.why_not(shape, gpu)]
    if not fitting:
        raise Unfit("no tile fits into registers and shared memory")
    return min(fitting, key=lambda config: clocks(config, shape, gpu))


def _candidates() -> Iterator[CoreConfig]:
    for tile in _TILES:
        yield tile
        if tile.rows.block != tile.columns.block and not tile.columns.own % tile.slices:
            yield dataclasses.replace(tile, rows=tile.columns, columns=tile.rows)


def clocks(config: CoreConfig, shape: CoreProduct, gpu: Gpu) -> float:
    """Estimated clocks of the busiest processor."""
    rows, columns, depth, outer, places = (
        _number(extent) for extent in (shape.rows, shape.columns, shape.depth, shape.outer, shape.places)
    )
    tiles = -(-rows // config.rows.block) * -(-columns // config.columns.block) * places
    deep = -(-depth // config.depth) * config.depth * outer
    each = -(-tiles // gpu.processors)
    size = itemsize(shape.dtype)
    resident = min(each, config.resident)
    warps = resident * config.threads / LANES
    multiplied = config.rows.block * config.columns.block * size / 4 / LANES
    issued = multiplied * (1 + _overhead(config)) / min(1.0, 0.25 + 0.375 * warps)
    copied = (config.rows.block + config.columns.block) * size / _BYTES
    return each * deep * max(issued, copied)


def _overhead(config: CoreConfig) -> float:
    """Instructions beside a product's, for each."""
    rows, columns = config.rows.own, config.columns.own
    return (rows + columns) / 4 / (rows * columns) + 0.02


def _number(extent: Extent) -> int:
    return extent if isinstance(extent, int) else _UNKNOWN
