"""The estimated time of a product kernel: what the busiest multiprocessor computes and copies, and what memory moves.

    step     products and copies of 128 bytes of k
    tile     its steps
    kernel   waves · tile, and bytes / bandwidth; + what each wave, its last stores and the exchange of partial sums add

Of two that overlap, the time is the longer one, or a little more where both are long: (a^p + b^p)^(1/p). Coefficients
were fitted on one H200 to 640 kernels: 17 configurations of four pairs (n, k), of 64 to 4096 rows, one to five of each
of 65 other shapes, and kernels of symbolic rows. They are 7 % off in the mean square; of those measured, the
configuration of the least estimated time took 1.003 to 1.005 of the best time in the mean, 1.05 at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import tvm

from tvm_cascade.analysis.extent import Extent, product
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.devices.cards import H200
from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.product.matrix import MatrixProduct, Side
from tvm_cascade.tile.skeletons.product.config import SUM_BYTES, ProductConfig, steps_of
from tvm_cascade.tile.skeletons.product.shape import DEPTH_BYTES
from tvm_cascade.tile.work import GROUP_ROWS

NOMINAL = 1024
"""What a symbolic extent counts for."""

IN_CLUSTERS = {1: 1.0, 2: 1.0, 3: 126 / 132, 4: 120 / 132, 8: 120 / 132}
"""The part of the multiprocessors that clusters of so many blocks fit on (measured)."""

_CLOCK = 1.59e9
"""Cycles a second of tensor cores at work."""

_COLUMNS_PER_CYCLE = 2
"""Of 64 rows and one instruction's depth."""

_RATE = H200.tensor_flops_per_second / H200.processors
"""Of the multiprocessors whose cycles these are."""

_FEWEST_CYCLES = 41
"""Of an instruction, however few its columns."""

_WARPS = 4
"""Of a consumer. Where each loads what it multiplies into registers, rows of 128 bytes take a cycle (on paper)."""

_PROMOTED = 1.4
"""Cycles of a consumer for each of a thread's sums that leaves the tensor cores. Promoted every 128 positions, products
of 4096 rows took 1.12 to 1.19 of their time (measured), of 128×176 tiles."""

_OVERLAP = 5.2
"""The exponent p of times that overlap."""

_COPIED_PER_SECOND = 0.124e12
"""Bytes that a multiprocessor gets from the L2 cache."""

_WITH_PARTS = 0.75
"""The part of the rate that copies reach where neighbouring blocks sum other parts of k, and so share nothing."""

_LATENCY = 0.8e-6
"""Seconds from a bulk copy to its arrival, under load."""

_LINE = 128
"""Bytes of a cache line: rows that are no multiple of it start in the middle of one."""

_ACROSS_LINES = 0.42
"""The part of the rate that copies reach where rows are no multiple of lines (measured, of ten tiles of 3000³)."""

_GATHERED_PER_SECOND = 0.028e12
"""Bytes that the threads of a multiprocessor copy."""

_STEP = 0.166e-6
"""Seconds between the copies of two steps at least."""

_FIRST_TILE = 1.03e-6
"""Seconds from a block's start to its first product and from its last to its end."""

_NEXT_TILE = 0.76e-6 / (GROUP_ROWS * 256)
"""Seconds for each tile after the first, by sums of a consumer, which does nothing else while it stores them."""

_TOGETHER = 1.4e-6
"""Seconds that sharing an operand adds, before the first product."""

_EXCHANGE = {1: 1.1e-6, 2: 0.3e-6}
"""Seconds of an exchange of partial sums, by consumers."""

_EXCHANGED_PER_SECOND = 2.1e12
"""Bytes of partial sums that all blocks exchange."""

_READ, _STORED = 0.91, 0.95
"""Parts of the memory's bandwidth that kernels reach, and that the stores of a last wave do."""


@dataclass(frozen=True)
class Sizes:
    """Extents as numbers: rows, columns, steps along k, points of the batch, and sums of products.

    Attributes
    ----------
    stored : bytes of all outputs for one element of the result.
    most : bytes of all that right operands are gathered from.
    """

    rows: int
    columns: int
    steps: int
    places: int
    sums: int
    stored: int
    most: float = math.inf

    @property
    def bytes(self) -> float:
        """From and to memory."""
        left, right = (self.places * self.steps * DEPTH_BYTES * n for n in (self.rows, self.sums * self.columns))
        return left + min(right, self.most) + float(self.places * self.stored * self.rows * self.columns)


def sizes_of(shape: MatrixProduct) -> Sizes:
    """The sizes of a product."""
    rows, columns = _number(shape.left.line.extent), _number(shape.right.line.extent)
    places, steps = _number(product(shape.extent(var) for var in shape.batch)), _number(steps_of(shape))
    stored = sum(tvm.DataType(dtype_of(output.buffer)).itemsize for output in shape.outputs)
    gathered = [math.prod(map(_number, s.operand.shape)) * s.operand.size for s in shape.rights if s.is_gathered]
    return Sizes(rows, columns, steps, places, len(shape.rights), stored, sum(gathered) if gathered else math.inf)


def seconds(shape: MatrixProduct, sizes: Sizes, config: ProductConfig, gpu: Gpu, exchanges: bool = True) -> float:
    """The estimated time of a kernel, without its launch.

    Parameters
    ----------
    exchanges : blocks of a cluster exchange partial sums by columns.
    """
    tiles = sizes.places * -(-sizes.rows // config.rows) * -(-sizes.columns // config.columns)
    resident = min(config.blocks, math.floor(gpu.processors * IN_CLUSTERS[config.blocks_together]))
    clusters = max(1, resident // config.blocks_together)
    waves = -(-tiles * config.splits // (clusters * config.blocks_together))
    sums = config.columns * sizes.sums
    last = min(tiles, clusters * config.cluster)
    added = _FIRST_TILE + (waves - 1) * _NEXT_TILE * config.own_rows * sums
    added += last * config.rows * config.columns * sizes.stored / (_STORED * gpu.memory_bytes_per_second)
    if config.cluster > 1:
        added += _TOGETHER
    if config.splits > 1 and exchanges:
        sent = last * config.splits * config.rows * sums * SUM_BYTES
        added += waves * (_EXCHANGE[config.consumers] + sent / _EXCHANGED_PER_SECOND)
    whole = waves * sizes.steps / config.splits * _step(shape, sizes, config, gpu)
    return _overlapped(whole, sizes.bytes / (_READ * gpu.memory_bytes_per_second)) + added


def _step(shape: MatrixProduct, sizes: Sizes, config: ProductConfig, gpu: Gpu) -> float:
    """Seconds of a step of a tile."""
    cycles = sizes.sums * 4 * config.rows // GROUP_ROWS * max(config.columns / _COLUMNS_PER_CYCLE, _FEWEST_CYCLES)
    cycles *= _RATE / (gpu.tensor_flops_per_second / gpu.processors)
    if config.family.through_registers:
        cycles = max(cycles, config.rows + _WARPS * config.consumers * sizes.sums * config.columns)
    if config.promoted:
        cycles += _PROMOTED * sizes.sums * config.own_rows // GROUP_ROWS * config.columns / 2 / config.promoted
    lengths = (
        (shape.left, min(config.rows, sizes.rows)),
        (shape.right, sizes.sums * config.columns / config.cluster),
    )
    under_way = (config.stages - 1) * config.stage_bytes(shape)
    slower = max(1.0, _COPIED_PER_SECOND * _LATENCY / max(under_way, 1))
    if config.splits > 1:
        slower /= _WITH_PARTS
    copied = max(slower * sum(length * DEPTH_BYTES / _speed(side) for side, length in lengths), _STEP)
    return _overlapped(cycles / _CLOCK, copied)


def _overlapped(one: float, other: float) -> float:
    longer = max(one, other)
    return longer * (1.0 + (min(one, other) / longer) ** _OVERLAP) ** (1.0 / _OVERLAP)


def _speed(side: Side) -> float:
    """Bytes of an operand that a multiprocessor gets in a second."""
    if not side.bulk:
        return _GATHERED_PER_SECOND
    return _COPIED_PER_SECOND * (1.0 if side.row_bytes % _LINE == 0 else _ACROSS_LINES)


def _number(extent: Extent) -> int:
    return extent if isinstance(extent, int) else NOMINAL
