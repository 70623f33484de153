"""What a product kernel does, counted, and the choice of its configuration by what that takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import tvm

from tvm_cascade.analysis.tir import Extent, dtype_of, extent_of, product
from tvm_cascade.devices.device import Gpu
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.cost import Counts, fetched_again, seconds
from tvm_cascade.tile.estimate import NOMINAL
from tvm_cascade.tile.hopper.stores import BOX_COLUMNS, MATRIX_COLUMNS
from tvm_cascade.tile.machine.table import family_of
from tvm_cascade.tile.operand import MATRIX_DTYPES, STORED_BYTES, Unfit
from tvm_cascade.tile.product.matrix import MatrixProduct, Side
from tvm_cascade.tile.skeletons.product.config import SUM_BYTES, ProductConfig, steps_of
from tvm_cascade.tile.skeletons.product.shape import DEPTH_BYTES
from tvm_cascade.tile.work import GROUP_ROWS, WARP_GROUP, WARPS

_INSTRUCTIONS, _LINE = 4, 128
"""Of a step of 64 rows; and bytes of a cache line: rows that are no multiple of it start in the middle of one."""

_FRAGMENT_ROW = 128
"""Bytes that shared memory gives a multiprocessor at once, a row of a tile."""


@dataclass(frozen=True)
class Sizes:
    """Extents as numbers: rows, columns, steps along k, points of the batch, and sums of products.

    Attributes
    ----------
    stored : bytes of all outputs for one element of the result.
    image, most : bytes of all that rows are windows of, and that right operands are gathered from.
    """

    rows: int
    columns: int
    steps: int
    places: int
    sums: int
    stored: int
    most: float = math.inf
    image: float = math.inf

    @property
    def bytes(self) -> float:
        left, right = (self.places * self.steps * DEPTH_BYTES * n for n in (self.rows, self.sums * self.columns))
        return (
            min(left, self.image) + min(right, self.most) + float(self.places * self.stored * self.rows * self.columns)
        )


def sizes_of(shape: MatrixProduct) -> Sizes:
    rows, columns = _number(shape.left.line.extent), _number(shape.right.line.extent)
    places, steps = _number(product(shape.extent(var) for var in shape.batch)), _number(steps_of(shape))
    stored = sum(tvm.DataType(dtype_of(output.buffer)).itemsize for output in shape.outputs)
    most, image = (
        _all_bytes([s for s in shape.rights if s.is_gathered]),
        _all_bytes([shape.left] * bool(shape.left.box)),
    )
    return Sizes(rows, columns, steps, places, len(shape.rights), stored, most, image)


def _all_bytes(sides: Sequence[Side]) -> float:
    """Of the tensors of some operands; infinitely many of none."""
    found = [math.prod(map(_number, s.operand.shape)) * s.operand.size for s in sides]
    return sum(found) if found else math.inf


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
        each = config.own_rows * sums // WARP_GROUP
        between["function_seconds"] = waves * each * shape.exact_functions
        between |= fetched_again(shape.instruction_bytes, each, waves, gpu)
    if config.cluster > 1:
        between["multicast_seconds"] = 1.0
    if config.splits > 1 and exchanges:
        between["exchange_seconds" if config.consumers == 1 else "pair_exchange_seconds"] = waves
        between["exchanged_bytes_per_second"] = waves * last * config.splits * config.rows * sums * SUM_BYTES
    copied = dict.fromkeys(("copied", "unaligned", "gathered", "realigned"), 0.0)
    for side, length in (
        (shape.left, min(config.rows, sizes.rows)),
        (shape.right, sums / config.cluster),
    ):
        by_threads = "realigned" if side.starts_anywhere else "gathered"
        in_bulk = "copied" if side.row_bytes % _LINE == 0 else "unaligned"
        copied[in_bulk if side.bulk else by_threads] += length * DEPTH_BYTES
    folds, family = dict[str, float](), config.family
    if config.promoted:
        folds["promotion_seconds"] = sizes.sums * config.own_rows // GROUP_ROWS * config.columns / 2 / config.promoted
    return Counts(
        bytes=sizes.bytes,
        steps=waves * sizes.steps / config.splits,
        products=2.0 * config.rows * sums * DEPTH_BYTES / STORED_BYTES,
        instructions=_INSTRUCTIONS * sizes.sums * config.rows // GROUP_ROWS,
        fragments=_FRAGMENT_ROW * (config.rows + WARPS * config.consumers * sums) if family.through_registers else 0.0,
        folds=folds,
        unshared=config.splits > 1,
        under_way=max((config.stages - 1) * config.stage_bytes(shape), 1),
        paced=True,
        between=between,
        stored=last * config.rows * config.columns * sizes.stored,
        copied=copied["copied"],
        unaligned=copied["unaligned"],
        gathered=copied["gathered"],
        realigned=copied["realigned"],
    )


def _number(extent: Extent) -> int:
    found = extent_of(extent)
    return found if isinstance(found, int) else NOMINAL


# The choice of a configuration: all tiles of a table, in parts of k, with as many stages as memory holds.


_ROWS = ((128, 2, 256), (256, 2, 128), (64, 1, 256))
"""Rows of a tile, its consumers, and its columns at most."""

_CLUSTERS = ((1, 1), (2, 1), (1, 2), (1, 4), (1, 8))
"""Blocks that share the right operand, and parts of k. Where rows of the right operand are whole cache lines, blocks
that copy the same at the same time already share what comes from the L2 cache: sharing it by multicast took 1.00 to
1.04 of the time there (measured)."""

_LONG, _NEAR = 0.5e-3, 1.01
"""Seconds from which on a product heats the card to its power limit, and times of the least estimate that are taken for
equal there: of such configurations the one that copies least is taken. Of 16384 rows, 4096 to 14336 features and back,
256×128 took 0.955 and 0.984 of the time of 128×208 and 256×112, whose estimates are 0.996 and 0.993 (measured)."""

_MOST_STAGES = 10


def ranked_configs(shape: MatrixProduct, gpu: Gpu, promoted: int = 0) -> list[ProductConfig]:
    """The fitting configurations, from the least estimated time on; Unfit where none fits."""
    sizes = sizes_of(shape)
    fits = fitting(shape, sizes, gpu, promoted)
    found = [(seconds(counts_of(shape, sizes, config, gpu), gpu), config) for config in fits]
    least = min(time for time, _ in found)
    near = least * _NEAR if least >= _LONG else 0.0

    def order(one: tuple[float, ProductConfig]) -> tuple[float, float, int]:
        time, config = one
        return (0.0, _copied(sizes, config), -config.rows) if time <= near else (1.0, time, _covered(sizes, config))

    return [config for _, config in sorted(found, key=order)]


def fitting(shape: MatrixProduct, sizes: Sizes, gpu: Gpu, promoted: int = 0) -> list[ProductConfig]:
    """The configurations that fit; Unfit where none does."""
    found = [config for config in _candidates(shape, sizes, gpu, promoted) if not config.lacks(shape, gpu)]
    if not found:
        raise Unfit("no tile fits into registers and shared memory")
    return found


def promoted_steps(shape: MatrixProduct, options: FuseOptions) -> int:
    """Steps along k between promotions that scales or an option ask for; 0 for none.

    Unfit where that is less than a step.
    """
    if shape.scales is not None:
        return 1
    side = shape.left.operand
    if options.narrow_positions is None or MATRIX_DTYPES[side.dtype].option != "narrow_sums":
        return 0
    depth = DEPTH_BYTES // side.size
    if options.narrow_positions < depth:
        raise Unfit(f"narrow_positions is {options.narrow_positions}; a step sums over {depth} positions of {side}")
    return options.narrow_positions // depth


def _copied(sizes: Sizes, config: ProductConfig) -> float:
    return (config.rows / sizes.sums + config.columns) / (config.rows * config.columns)


def _covered(sizes: Sizes, config: ProductConfig) -> int:
    rows, columns = -(-sizes.rows // config.rows), -(-sizes.columns // config.columns)
    return rows * config.rows * columns * config.columns


def _candidates(shape: MatrixProduct, sizes: Sizes, gpu: Gpu, promoted: int) -> Iterator[ProductConfig]:
    """Tiles that are no larger than the result, up to what they are multiples of."""
    unit, family = BOX_COLUMNS if shape.right.across else MATRIX_COLUMNS, family_of(gpu)
    widest = -(-sizes.columns // unit) * unit
    for rows, consumers, most in _ROWS:
        if rows > GROUP_ROWS and rows >= 2 * sizes.rows:
            continue
        for columns in range(min(most // len(shape.rights) // unit * unit, widest), unit - 1, -unit):
            for cluster, splits in _CLUSTERS:
                tile = ProductConfig(
                    rows, columns, consumers, cluster=cluster, splits=splits, blocks=gpu.processors, promoted=promoted,
                    family=family,
                )  # fmt: skip
                if cluster == 1 or shape.right.row_bytes % DEPTH_BYTES:
                    yield _deepest(tile, shape, gpu)


def _deepest(config: ProductConfig, shape: MatrixProduct, gpu: Gpu) -> ProductConfig:
    """The configuration with as many stages as fit; with fewer results under way where that leaves too few."""
    for staged in (2, 1):
        several = (replace(config, stages=stages, staged=staged) for stages in range(_MOST_STAGES, 0, -1))
        fits = (one for one in several if one.shared_bytes(shape) <= gpu.block_shared_bytes)
        found = next(fits, replace(config, stages=1, staged=staged))
        if found.stages >= 4:
            break
    return found
