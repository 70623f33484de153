"""The folded skeleton's table row: folds along the rows of a matrix product, on tensor cores."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from tvm import tirx

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.tir import product
from tvm_cascade.devices.device import Gpu
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.cost import Counts, added, fetched_again, in_turn, seconds
from tvm_cascade.tile.estimate import Work
from tvm_cascade.tile.hopper.stores import BOX_COLUMNS
from tvm_cascade.tile.launch.dependent import Launch
from tvm_cascade.tile.machine.family import WIDEST
from tvm_cascade.tile.machine.table import MULTIPLYING, family_of
from tvm_cascade.tile.operand import PACKED_DTYPES, Operand, Unfit
from tvm_cascade.tile.skeleton import Setting, Skeleton
from tvm_cascade.tile.skeletons.product.choice import counts_of as product_counts
from tvm_cascade.tile.skeletons.product.choice import sizes_of
from tvm_cascade.tile.skeletons.product.config import ProductConfig
from tvm_cascade.tile.skeletons.product.folded.config import Config, FoldedConfig, LongConfig
from tvm_cascade.tile.skeletons.product.folded.fold import rows_kernel
from tvm_cascade.tile.skeletons.product.folded.long import AT_ONCE, long_kernel
from tvm_cascade.tile.skeletons.product.folded.shape import FoldedProduct, read_folded
from tvm_cascade.tile.skeletons.product.kernel import ProductKernel
from tvm_cascade.tile.work import GROUP_ROWS

# The choice of a configuration of a folded product: rows of a block, or stretches of rows, by the estimated time.


_TILES = ((64, 1), (128, 2))
"""Rows of a tile, and its consumers."""

_SPLITS = (1, 2, 3, 4, 8)
"""Parts of k."""

_SHARING = (4, 8, 16, 32)
"""Threads of a row."""

_LENGTHS = (3, 4)
"""Tiles of a short stretch: more stretches than blocks even out."""

_MOST_STAGES = 8

_UNIT = 8
"""What columns of a tile are multiples of."""

_FEWEST_COLUMNS = 96
"""Of a tile of a long row."""


def ranked_configs(shape: FoldedProduct, gpu: Gpu) -> list[Config]:
    """The fitting configurations, from the least estimated time on; Unfit where none fits."""
    candidates: list[Config] = [*_whole_rows(shape, gpu), *_stretches(shape, gpu)]
    if not candidates:
        raise Unfit(f"rows of {shape.columns} sums fit on no multiprocessor, and have outputs that need them whole")
    return sorted(candidates, key=lambda config: seconds(counts_of(shape, config, gpu), gpu))


def _whole_rows(shape: FoldedProduct, gpu: Gpu) -> Iterator[Config]:
    unit = BOX_COLUMNS if shape.product.right.across else 2 * _UNIT
    columns = -(-shape.columns // unit) * unit
    for rows, consumers in _TILES:
        for splits in _SPLITS:
            tile = ProductConfig(rows, columns, consumers, splits=splits, blocks=gpu.processors, family=family_of(gpu))
            for sharing in _SHARING:
                yield from _deepest(FoldedConfig(tile, sharing), shape, gpu)


def _stretches(shape: FoldedProduct, gpu: Gpu) -> Iterator[Config]:
    """Rows of many tiles: each tile of rows is cut into stretches so that all blocks have about as many tiles."""
    rows_of, places = shape.product.left.line.extent, product(shape.product.extent(v) for v in shape.product.batch)
    if not isinstance(rows_of, int) or not isinstance(places, int):
        return
    unit = BOX_COLUMNS if shape.product.right.across else _UNIT
    widest = min(WIDEST, -(-shape.columns // unit) * unit)
    for rows, consumers in _TILES:
        if rows > GROUP_ROWS and rows >= 2 * rows_of:
            continue
        items = places * -(-rows_of // rows)
        for columns in range(widest, min(widest, _FEWEST_COLUMNS) - 1, -unit):
            tiles = -(-shape.columns // columns)
            even = gpu.processors // math.gcd(items, gpu.processors)
            counts = {1, even, -(-gpu.processors // items), *(-(-tiles // length) for length in _LENGTHS)}
            for stretches in sorted({min(tiles, count) for count in counts}):
                tile = ProductConfig(rows, columns, consumers, staged=0, blocks=gpu.processors, family=family_of(gpu))
                yield from _deepest(LongConfig(tile, stretches, min(rows, rows_of)), shape, gpu)


def _deepest(config: Config, shape: FoldedProduct, gpu: Gpu) -> Iterator[Config]:
    for stages in range(_MOST_STAGES, 0, -1):
        deep = replace(config, tile=replace(config.tile, stages=stages))
        if not deep.lacks(shape, gpu):
            yield deep
            return


# What a kernel that folds the rows of a product does: the product, and what folding adds.
#
#     rows of a block     product + exchange of parts of k + what a thread does with its part of each row
#     stretches of rows   product of as many tiles as the busiest block has + the fold of each + their combination
#
# Selections are networks: the k best of n elements take about log k·(log k + 1)/4 + 1 + log k/2 exchanges an element.


_IN_REGISTERS = 2.0
"""How many times as long exchanges take among sums that are in registers, which are short then."""

_ONE_TILE = 0.25
"""The part of the fold of a row's only tile, without ranks, that the counts of its product do not cover."""

_OVERLAPPED = 0.4
"""The part of the fold of a long row's tile that is not hidden, where two consumers take turns at the tensor cores;
all of the last tile's."""

_LONE, _BEHIND_COPIES = 3.0, 0.1
"""How many times as long the fold of one consumer takes, which nothing hides the latencies of, and the part of it that
copies for the next tiles do not hide (measured, of 16 tokens: tiles of 96 to 256 columns)."""

_EXCHANGE_BYTES, _USUAL_BYTES = 48, 10 * 1024
"""Of the instructions of an exchange of packed elements; and of those that the other rates cover."""

_PART_OF_COMBINATION = 0.5
"""Of a combination through memory: the last block alone merges, and nobody waits for all."""


def counts_of(shape: FoldedProduct, config: Config, gpu: Gpu) -> Counts:
    return _COUNTS[type(config)](shape, config, gpu)


def _of_rows(shape: FoldedProduct, config: FoldedConfig, gpu: Gpu) -> Counts:
    tile = config.tile
    sizes = dataclasses.replace(sizes_of(shape.product), stored=0)
    alone = product_counts(shape.product, sizes, dataclasses.replace(tile, consumers=2), gpu, exchanges=False)
    turns = -(-min(config.rows, sizes.rows) // config.rows_at_once)
    packed = shape.packed and config.row(shape).chunk >= shape.columns
    clusters = max(1, gpu.reached_by(tile.splits) // tile.splits)
    waves = -(-sizes.places * -(-sizes.rows // tile.rows) // clusters)
    folded = _fold(shape, -(-shape.columns // config.sharing), config.sharing, packed=packed)
    between = {name: waves * turns * count for name, count in folded.items()}
    between |= {"gather_seconds": waves, "parts_seconds": waves * math.log2(tile.splits)}
    if packed:
        between["packing_seconds"] = waves * turns
        between["code_bytes_per_second"] = max(0.0, _EXCHANGE_BYTES * folded["packed_swap_seconds"] - _USUAL_BYTES)
    if tile.splits > 1:
        between["block_seconds"] = waves - 1
    return alone.and_then(**between)


def _of_stretches(shape: FoldedProduct, config: LongConfig, gpu: Gpu) -> Counts:
    tile = config.tile
    sizes = dataclasses.replace(sizes_of(shape.product), stored=0)
    several = [product_counts(p, dataclasses.replace(sizes_of(p), stored=0), tile, gpu) for p in shape.products]
    items, tiles = sizes.places * -(-sizes.rows // tile.rows), -(-sizes.columns // tile.columns)
    even = -(-items * tiles // tile.blocks)
    busiest = -(-items * config.stretches // tile.blocks) * -(-tiles // config.stretches)
    whole = in_turn(several, busiest / even)
    each = _fold(shape, tile.columns // 4, 4, exchanging=_IN_REGISTERS)
    if shape.columns % tile.columns:  # sums that may be behind the end of their row
        each["sum_seconds"] += tile.columns / 4
    each = {name: 2 * config.parts * count for name, count in each.items()}
    only = busiest == 1 and shape.ranks <= 1
    folded = _ONE_TILE if only else _folds(shape, tile, added(each, gpu), busiest, gpu)
    between = {name: folded * count for name, count in each.items()}
    sums = 2 * config.parts * tile.columns // 4
    between |= fetched_again(shape.instruction_bytes, sums, busiest, gpu)
    if config.stretches > 1:
        between["combine_seconds"] = _PART_OF_COMBINATION
        between["read_round_seconds"] = -(-config.stretches // (config.sharing * AT_ONCE))
    return whole.and_then(**between)


_COUNTS: dict[type[Config], Callable[..., Counts]] = {FoldedConfig: _of_rows, LongConfig: _of_stretches}


def _folds(shape: FoldedProduct, tile: ProductConfig, each: float, tiles: int, gpu: Gpu) -> float:
    """How many folds the folds of a block's tiles add: copies go on behind one while there are stages for them."""
    if tile.consumers > 1:
        return 1.0 + _OVERLAPPED * (tiles - 1)
    ahead = tile.stages * tile.stage_bytes(shape.product) * gpu.processors / gpu.memory_bytes_per_second
    return _LONE + max(_BEHIND_COPIES * _LONE, _LONE - ahead / each) * (tiles - 1)


def _fold(
    shape: FoldedProduct, sums: int, sharing: int, packed: bool = False, exchanging: float = 1.0
) -> dict[str, float]:
    """What a thread does with its sums of a row, and with those of the other threads, by the names of rates."""
    kept = 1 << (max(shape.ranks, 1) - 1).bit_length()
    depth, rounds = math.log2(kept), math.log2(sharing)
    merged = 1 + depth / 2
    exchanges = sums * (depth * (depth + 1) / 4 + merged) + rounds * kept * merged if shape.ranks else 0.0
    return {
        "sum_seconds": sums,
        "function_seconds": sums * shape.exact_functions,
        "packed_swap_seconds" if packed else "swap_seconds": exchanging * exchanges,
        "shuffle_seconds": rounds,
    }


KERNELS: dict[type[Config], Callable[..., ProductKernel]] = {FoldedConfig: rows_kernel, LongConfig: long_kernel}


class FoldedSkeleton(Skeleton[FoldedProduct, Config]):
    """Folds along the rows of a matrix product, on tensor cores."""

    name, kind, covers = "folded", "tensor-core kernel", "folds along rows of a matrix product"

    instructions, joint = MULTIPLYING, True
    option = "tensor_cores"

    def read(self, program: Program, group: Group, options: FuseOptions) -> FoldedProduct:
        return read_folded(program, group)

    def alternatives(self, program: FoldedProduct, setting: Setting) -> list[Config]:
        return ranked_configs(program, setting.gpu)

    def lacks(self, program: FoldedProduct, config: Config, setting: Setting) -> str:
        return config.lacks(program, setting.gpu)

    def operands(self, program: FoldedProduct) -> Iterable[Operand]:
        return (side.operand for product in program.products for side in product.sides)

    def counts(self, program: FoldedProduct, config: Config, work: Work, setting: Setting) -> Counts:
        return counts_of(program, config, setting.gpu)._replace(work=Work(work.bytes))

    def emit(self, program: FoldedProduct, config: Config, name: str, _launch: Launch) -> tirx.PrimFunc:
        return KERNELS[type(config)](program, config).build(name)

    def fast_math(self, program: FoldedProduct) -> bool:
        return all(dtype in PACKED_DTYPES for product in program.products for dtype in product.dtypes)
