"""The estimated time of a product kernel: what the busiest multiprocessor computes and copies, and what memory moves.

    step     max(products, copies) + a part of the other, for 128 bytes of k
    tile     its steps
    kernel   max(waves · tile, bytes / bandwidth) + what each wave and the exchange of partial sums add

Coefficients were fitted on one H200 to 450 kernels: 17 configurations of four pairs (n, k), of 64 to 4096 rows. The
configuration of the least estimated time took 1.01 of the best time in geometric mean, 1.12 at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tvm_cascade.analysis.extent import Extent, product
from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.skeletons.product.config import DEPTH_BYTES, SUM_BYTES, ProductConfig, steps_of
from tvm_cascade.tile.skeletons.product.shape import MatrixProduct, Side
from tvm_cascade.tile.work import GROUP_ROWS

NOMINAL = 1024
"""What a symbolic extent counts for."""

_IN_CLUSTERS = {1: 1.0, 2: 1.0, 4: 120 / 132, 8: 120 / 132}
"""The part of the multiprocessors that clusters of so many blocks fit on (measured)."""

_CLOCK = 1.69e9
"""Cycles a second of tensor cores at work."""

_COLUMNS_PER_CYCLE = 2
"""Of 64 rows and one instruction's depth."""

_FEWEST_CYCLES = 46
"""Of an instruction, however few its columns."""

_LONE_CONSUMER = 1.3
"""How much faster a warp group's products are where it has the tensor cores to itself."""

_COPIED_PER_SECOND = 0.117e12
"""Bytes that a multiprocessor gets from the L2 cache."""

_PIECES_PER_SECOND = 1.5e9
"""Pieces of rows that the threads of a multiprocessor copy."""

_STEP = 0.16e-6
"""Seconds between the copies of two steps at least."""

_NOT_HIDDEN = 0.14
"""Of the shorter of products and copies, which overlap."""

_MEMORY_SHARE = 0.92
"""Of the bandwidth on paper."""

_FIRST_TILE, _NEXT_TILE = 0.93e-6, 0.18e-6
"""Seconds from a block's start to its first product and from its last to its end, and for each tile after the first."""

_EXCHANGE, _EXCHANGED_PER_SECOND = 0.67e-6, 1.32e12
"""Seconds of an exchange of partial sums, and bytes of all blocks."""


@dataclass(frozen=True)
class Sizes:
    """Extents as numbers: rows, columns, steps along k, points of the batch; and bytes from and to memory."""

    rows: int
    columns: int
    steps: int
    places: int
    bytes: float


def sizes_of(shape: MatrixProduct) -> Sizes:
    """The sizes of a product."""
    rows, columns = _number(shape.left.line.extent), _number(shape.right.line.extent)
    places, steps = _number(product(shape.extent(var) for var in shape.batch)), _number(steps_of(shape))
    deep = steps * DEPTH_BYTES
    return Sizes(rows, columns, steps, places, float(places * (deep * (rows + columns) + 2 * rows * columns)))


def seconds(shape: MatrixProduct, sizes: Sizes, config: ProductConfig, gpu: Gpu) -> float:
    """The estimated time of a kernel, without its launch."""
    tiles = sizes.places * -(-sizes.rows // config.rows) * -(-sizes.columns // config.columns)
    resident = min(config.blocks, math.floor(gpu.processors * _IN_CLUSTERS[config.blocks_together]))
    resident = max(1, resident // config.blocks_together) * config.blocks_together
    blocks = tiles * config.splits
    waves = -(-blocks // resident)
    whole = waves * sizes.steps / config.splits * _step(shape, config)
    exchanged = 0.0
    if config.splits > 1:
        sent = config.rows * config.columns * SUM_BYTES * min(blocks, resident)
        exchanged = waves * (_EXCHANGE + sent / _EXCHANGED_PER_SECOND)
    memory = sizes.bytes / (gpu.memory_bytes_per_second * _MEMORY_SHARE)
    return max(whole, memory) + _FIRST_TILE + (waves - 1) * _NEXT_TILE + exchanged


def _step(shape: MatrixProduct, config: ProductConfig) -> float:
    """Seconds of a step of a tile."""
    cycles = 4 * config.rows // GROUP_ROWS * max(config.columns / _COLUMNS_PER_CYCLE, _FEWEST_CYCLES)
    computed = cycles / _CLOCK / (_LONE_CONSUMER if config.consumers == 1 else 1.0)
    lengths = (shape.left, config.rows), (shape.right, config.columns / config.cluster)
    copied = max(sum(length * DEPTH_BYTES / _speed(side) for side, length in lengths), _STEP)
    return max(computed, copied) + _NOT_HIDDEN * min(computed, copied)


def _speed(side: Side) -> float:
    """Bytes of an operand that a multiprocessor gets in a second."""
    return _COPIED_PER_SECOND if side.bulk else _PIECES_PER_SECOND * side.piece


def _number(extent: Extent) -> int:
    return extent if isinstance(extent, int) else NOMINAL
