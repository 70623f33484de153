"""Chooses how a product is cut for CUDA cores: some tiles by their estimated times."""

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
    (CoreConfig(Cut(2, 8, 8), Cut(4, 4, 16), 16, 4), 0.70),
    (CoreConfig(Cut(4, 4, 8), Cut(2, 8, 8), 32, 3, resident=2), 0.75),
    (CoreConfig(Cut(1, 8, 8), Cut(2, 4, 8), 16, 4, resident=4), 0.67),
    (CoreConfig(Cut(1, 8, 8), Cut(2, 4, 8), 32, 4, slices=4), 0.62),
    (CoreConfig(Cut(1, 8, 8), Cut(1, 4, 8), 64, 4, slices=8), 0.58),
    (CoreConfig(Cut(1, 8, 4), Cut(1, 4, 8), 32, 4, slices=4, resident=4), 0.50),
    (CoreConfig(Cut(1, 4, 4), Cut(1, 8, 4), 32, 6, slices=4, resident=2), 0.38),
)
"""Tiles of a block, from the largest to the smallest, and the part of the peak that they reach on busy processors
(measured on an H200, of products of 4096 x 4096 x 4096, of 64 of 512 x 512 x 512, and of 16 to 128 rows)."""

_UNKNOWN = 4096
"""What an extent is taken for that is not known before the launch."""

LANES = 128
"""Products of float32 that a processor does at once."""

_LONE, _MORE = 0.25, 0.375
"""The part of that where a scheduler has hardly a warp, and what each of its warps adds (measured)."""

_FIRST = 4000
"""Clocks from a block's start to its first product, and from its last to its end."""

_BYTES = 34
"""That a processor gets from the second-level cache at once (measured, `reference` of an H200)."""


def ranked_core_configs(shape: CoreProduct, gpu: Gpu) -> list[CoreConfig]:
    """The fitting configurations, from the least estimated time on.

    Raises
    ------
    Unfit
        Where none fits.
    """
    fitting = [config for config in _candidates() if not config.why_not(shape, gpu)]
    if not fitting:
        raise Unfit("no tile fits into registers and shared memory")
    return sorted(fitting, key=lambda config: clocks(config, shape, gpu))


def _candidates() -> Iterator[CoreConfig]:
    for tile, _ in _TILES:
        yield tile
        if tile.rows.block != tile.columns.block and not tile.columns.own % tile.slices:
            yield _turned(tile)


def _turned(tile: CoreConfig) -> CoreConfig:
    return dataclasses.replace(tile, rows=tile.columns, columns=tile.rows)


def _share(config: CoreConfig) -> float:
    """The part of the peak that a tile reaches; of a tile of a caller's own, that of the nearest in size."""
    size = config.rows.block * config.columns.block
    known = [share for tile, share in _TILES if config in (tile, _turned(tile))]
    return known[0] if known else min(_TILES, key=lambda t: abs(t[0].rows.block * t[0].columns.block - size))[1]


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
    issued = multiplied / _share(config) / min(1.0, _LONE + _MORE * warps)
    copied = (config.rows.block + config.columns.block) * size / _BYTES
    return _FIRST + each * deep * max(issued, copied)


def _number(extent: Extent) -> int:
    return extent if isinstance(extent, int) else _UNKNOWN
