"""The estimated time of a product kernel: what the busiest multiprocessor computes and copies, and what memory moves.

    step     max(products, copies) + a part of the other, for 128 bytes of k
    tile     its steps
    kernel   likewise of waves · tile and bytes / bandwidth, + what each wave and the exchange of partial sums add

Coefficients were fitted on one H200 to 550 kernels: 17 configurations of four pairs (n, k), of 64 to 4096 rows, and
four of each of 35 other shapes. Of those measured, the configuration of the least estimated time took 1.006 of the
best time in the mean, 1.13 at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import tvm

from tvm_cascade.analysis.extent import Extent, product
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.skeletons.product.config import DEPTH_BYTES, SUM_BYTES, ProductConfig, steps_of
from tvm_cascade.tile.skeletons.product.shape import MatrixProduct, Side
from tvm_cascade.tile.work import GROUP_ROWS

NOMINAL = 1024
"""What a symbolic extent counts for."""

_IN_CLUSTERS = {1: 1.0, 2: 1.0, 4: 120 / 132, 8: 120 / 132}
"""The part of the multiprocessors that clusters of so many blocks fit on (measured)."""

_CLOCK = 1.57e9
"""Cycles a second of tensor cores at work."""

_COLUMNS_PER_CYCLE = 2
"""Of 64 rows and one instruction's depth."""

_FEWEST_CYCLES = 42
"""Of an instruction, however few its columns."""

_LONE_CONSUMER = 0.87
"""The part of the tensor cores' rate that one warp group reaches by itself."""

_COPIED_PER_SECOND = 0.121e12
"""Bytes that a multiprocessor gets from the L2 cache."""

_WITH_PARTS = 0.87
"""The part of the rate that copies reach where neighbouring blocks sum other parts of k, and so share nothing."""

_LATENCY = 1.0e-6
"""Seconds from a bulk copy to its arrival, under load."""

_LINE = 128
"""Bytes of a cache line: rows that are no multiple of it start in the middle of one."""

_ACROSS_LINES = 0.46
"""The part of the rate that copies reach where rows are no multiple of lines."""

_PIECES_PER_SECOND = {8: 8e9, 4: 8e9, 2: 1.5e9, 1: 1.5e9}
"""Pieces of rows that the threads of a multiprocessor copy, by their bytes."""

_STEP = 0.16e-6
"""Seconds between the copies of two steps at least."""

_NOT_HIDDEN = 0.09
"""Of the shorter of products and copies, and of blocks and memory, which overlap."""

_FIRST_TILE, _NEXT_TILE = 1.03e-6, 0.34e-6
"""Seconds from a block's start to its first product and from its last to its end, and for each tile after the first."""

_EXCHANGE = {1: 1.9e-6, 2: 0.65e-6}
"""Seconds of an exchange of partial sums, by consumers."""

_EXCHANGED_PER_SECOND = 2.5e12
"""Bytes of partial sums that all blocks exchange."""


@dataclass(frozen=True)
class Sizes:
    """Extents as numbers: rows, columns, steps along k, points of the batch, and sums of products.

    Attributes
    ----------
    stored : bytes of all outputs for one element of the result.
    """

    rows: int
    columns: int
    steps: int
    places: int
    sums: int
    stored: int

    @property
    def bytes(self) -> float:
        """From and to memory."""
        operands = self.steps * DEPTH_BYTES * (self.rows + self.sums * self.columns)
        return float(self.places * (operands + self.stored * self.rows * self.columns))


def sizes_of(shape: MatrixProduct) -> Sizes:
    """The sizes of a product."""
    rows, columns = _number(shape.left.line.extent), _number(shape.right.line.extent)
    places, steps = _number(product(shape.extent(var) for var in shape.batch)), _number(steps_of(shape))
    stored = sum(tvm.DataType(dtype_of(output.buffer)).itemsize for output in shape.outputs)
    return Sizes(rows, columns, steps, places, len(shape.rights), stored)


def seconds(shape: MatrixProduct, sizes: Sizes, config: ProductConfig, gpu: Gpu) -> float:
    """The estimated time of a kernel, without its launch."""
    tiles = sizes.places * -(-sizes.rows // config.rows) * -(-sizes.columns // config.columns)
    resident = min(config.blocks, math.floor(gpu.processors * _IN_CLUSTERS[config.blocks_together]))
    resident = max(1, resident // config.blocks_together) * config.blocks_together
    blocks = tiles * config.splits
    waves = -(-blocks // resident)
    whole = waves * sizes.steps / config.splits * _step(shape, sizes, config)
    exchanged = 0.0
    if config.splits > 1:
        sent = config.rows * config.columns * sizes.sums * SUM_BYTES * min(blocks, resident)
        exchanged = waves * (_EXCHANGE[config.consumers] + sent / _EXCHANGED_PER_SECOND)
    memory = sizes.bytes / gpu.memory_bytes_per_second
    moved = max(whole, memory) + _NOT_HIDDEN * min(whole, memory)
    return moved + _FIRST_TILE + (waves - 1) * _NEXT_TILE + exchanged


def _step(shape: MatrixProduct, sizes: Sizes, config: ProductConfig) -> float:
    """Seconds of a step of a tile."""
    cycles = sizes.sums * 4 * config.rows // GROUP_ROWS * max(config.columns / _COLUMNS_PER_CYCLE, _FEWEST_CYCLES)
    computed = cycles / _CLOCK / (_LONE_CONSUMER if config.consumers == 1 else 1.0)
    lengths = (shape.left, min(config.rows, sizes.rows)), (shape.right, sizes.sums * config.columns / config.cluster)
    under_way = (config.stages - 1) * config.stage_bytes(shape)
    slower = max(1.0, _COPIED_PER_SECOND * _LATENCY / max(under_way, 1))
    if config.splits > 1:
        slower /= _WITH_PARTS
    copied = max(slower * sum(length * DEPTH_BYTES / _speed(side) for side, length in lengths), _STEP)
    return max(computed, copied) + _NOT_HIDDEN * min(computed, copied)


def _speed(side: Side) -> float:
    """Bytes of an operand that a multiprocessor gets in a second."""
    if not side.bulk:
        return _PIECES_PER_SECOND[side.piece] * side.piece
    return _COPIED_PER_SECOND * (1.0 if side.row_bytes % _LINE == 0 else _ACROSS_LINES)


def _number(extent: Extent) -> int:
    return extent if isinstance(extent, int) else NOMINAL
