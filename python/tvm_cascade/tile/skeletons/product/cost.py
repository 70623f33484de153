"""What a product kernel does, counted: steps of 128 bytes of k of the busiest multiprocessor, and what is between."""

from __future__ import annotations

import math
from dataclasses import dataclass

import tvm

from tvm_cascade.analysis.tir import Extent, dtype_of, product
from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.cost import Counts, fetched_again
from tvm_cascade.tile.estimate import NOMINAL, exact_functions
from tvm_cascade.tile.operand import STORED_BYTES
from tvm_cascade.tile.product.matrix import MatrixProduct
from tvm_cascade.tile.skeletons.product.config import SUM_BYTES, ProductConfig, steps_of
from tvm_cascade.tile.skeletons.product.shape import DEPTH_BYTES
from tvm_cascade.tile.work import GROUP_ROWS

_INSTRUCTIONS, _LINE = 4, 128
"""Of a step of 64 rows; and bytes of a cache line: rows that are no multiple of it start in the middle of one."""

_WARPS, _THREADS, _FRAGMENT_ROW = 4, 128, 128
"""Of a consumer; and bytes that shared memory gives a multiprocessor at once, a row of a tile."""


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
        left, right = (self.places * self.steps * DEPTH_BYTES * n for n in (self.rows, self.sums * self.columns))
        return left + min(right, self.most) + float(self.places * self.stored * self.rows * self.columns)


def sizes_of(shape: MatrixProduct) -> Sizes:
    rows, columns = _number(shape.left.line.extent), _number(shape.right.line.extent)
    places, steps = _number(product(shape.extent(var) for var in shape.batch)), _number(steps_of(shape))
    stored = sum(tvm.DataType(dtype_of(output.buffer)).itemsize for output in shape.outputs)
    gathered = [math.prod(map(_number, s.operand.shape)) * s.operand.size for s in shape.rights if s.is_gathered]
    return Sizes(rows, columns, steps, places, len(shape.rights), stored, sum(gathered) if gathered else math.inf)


def counts_of(shape: MatrixProduct, sizes: Sizes, config: ProductConfig, gpu: Gpu, exchanges: bool = True) -> Counts:
    """What a kernel does; a step of 8 bits takes as long as one of 16, of twice the products.

    Parameters
    ----------
    exchanges : blocks of a cluster exchange partial sums by columns.
    """
    tiles = sizes.places * -(-sizes.rows // config.rows) * -(-sizes.columns // config.columns)
    clusters = max(1, min(config.blocks, gpu.reached_by(config.blocks_together)) // config.blocks_together)
    waves = -(-tiles * config.splits // (clusters * config.blocks_together))
    sums = config.columns * sizes.sums
    last = min(tiles, clusters * config.cluster)
    between = {"block_seconds": 1.0, "stored_sum_seconds": float((waves - 1) * config.own_rows * sums)}
    if sizes.stored:
        stored, each = [output.value for output in shape.outputs], config.own_rows * sums // _THREADS
        between["function_seconds"] = waves * each * sum(map(exact_functions, stored))
        between |= fetched_again(stored, each, waves, gpu)
    if config.cluster > 1:
        between["multicast_seconds"] = 1.0
    if config.splits > 1 and exchanges:
        between["exchange_seconds" if config.consumers == 1 else "pair_exchange_seconds"] = waves
        between["exchanged_bytes_per_second"] = waves * last * config.splits * config.rows * sums * SUM_BYTES
    copied = {"copied": 0.0, "unaligned": 0.0, "gathered": 0.0}
    for side, length in (
        (shape.left, min(config.rows, sizes.rows)),
        (shape.right, sums / config.cluster),
    ):
        way = "gathered" if not side.bulk else "copied" if side.row_bytes % _LINE == 0 else "unaligned"
        copied[way] += length * DEPTH_BYTES
    folds, family = dict[str, float](), config.family
    if config.promoted:
        folds["promotion_seconds"] = sizes.sums * config.own_rows // GROUP_ROWS * config.columns / 2 / config.promoted
    return Counts(
        bytes=sizes.bytes,
        steps=waves * sizes.steps / config.splits,
        products=2.0 * config.rows * sums * DEPTH_BYTES / STORED_BYTES,
        instructions=_INSTRUCTIONS * sizes.sums * config.rows // GROUP_ROWS,
        fragments=_FRAGMENT_ROW * (config.rows + _WARPS * config.consumers * sums) if family.through_registers else 0.0,
        folds=folds,
        unshared=config.splits > 1,
        under_way=max((config.stages - 1) * config.stage_bytes(shape), 1),
        paced=True,
        between=between,
        stored=last * config.rows * config.columns * sizes.stored,
        copied=copied["copied"],
        unaligned=copied["unaligned"],
        gathered=copied["gathered"],
    )


def _number(extent: Extent) -> int:
    return extent if isinstance(extent, int) else NOMINAL
