"""The choice of a configuration of a folded product: rows of a block, or stretches of rows, by the estimated time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from tvm_cascade.analysis.extent import product
from tvm_cascade.devices.device import Gpu
from tvm_cascade.steps.program import Tuple
from tvm_cascade.tile.estimate import operations_of
from tvm_cascade.tile.launch.fast_math import needs_exact
from tvm_cascade.tile.machine.table import family_of
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.row.program import RowProgram
from tvm_cascade.tile.skeletons.product.config import BOX_COLUMNS, ProductConfig
from tvm_cascade.tile.skeletons.product.cost import IN_CLUSTERS, sizes_of
from tvm_cascade.tile.skeletons.product.cost import seconds as product_seconds
from tvm_cascade.tile.skeletons.product.folded.config import Config, FoldedConfig, LongConfig
from tvm_cascade.tile.skeletons.product.folded.selection import selection_of
from tvm_cascade.tile.skeletons.product.folded.shape import FoldedProduct
from tvm_cascade.tile.work import GROUP_ROWS

_TILES = ((64, 1), (128, 2))
"""Rows of a tile, and its consumers."""

_SPLITS = (1, 2, 3, 4, 8)
"""Parts of k."""

_SHARING = (4, 8, 16, 32)
"""Threads of a row."""

_LENGTHS = (3, 4)
"""Tiles of a short stretch: more stretches than blocks even out."""

_MOST_STAGES = 8

_WIDEST = 256
"""Columns of a tile."""

_UNIT = 8
"""What columns of a tile are multiples of."""

_FEWEST_COLUMNS = 96
"""Of a tile of a long row."""

_WIDEST_LOAD = 4
"""Sums that a thread reads at once."""


def ranked_configs(program: FoldedProgram, gpu: Gpu) -> list[Config]:
    """The fitting configurations, from the least estimated time on.

    Raises
    ------
    Unfit
        Where none fits.
    """
    shape = program.shape
    candidates: list[Config] = [*_whole_rows(shape, gpu), *_stretches(shape, gpu)]
    if not candidates:
        raise Unfit(f"rows of {shape.columns} sums fit on no multiprocessor, and have outputs that need them whole")
    return sorted(candidates, key=lambda config: seconds(program, config, gpu))


def _whole_rows(shape: FoldedProduct, gpu: Gpu) -> Iterator[Config]:
    """Rows of a block: a tile is as wide as they are long."""
    unit = BOX_COLUMNS if shape.product.right.across else 2 * _UNIT
    columns = -(-shape.columns // unit) * unit
    vector = min(shape.row.widest_vector, _WIDEST_LOAD)
    for rows, consumers in _TILES:
        for splits in _SPLITS:
            tile = ProductConfig(rows, columns, consumers, splits=splits, blocks=gpu.processors, family=family_of(gpu))
            for sharing in _SHARING:
                yield from _deepest(FoldedConfig(tile, sharing, vector, shape.columns), shape, gpu)


def _stretches(shape: FoldedProduct, gpu: Gpu) -> Iterator[Config]:
    """Rows of many tiles: each tile of rows is cut into stretches so that all blocks have about as many tiles."""
    rows_of, places = shape.product.left.line.extent, product(shape.product.extent(v) for v in shape.product.batch)
    if not isinstance(rows_of, int) or not isinstance(places, int):
        return
    unit = BOX_COLUMNS if shape.product.right.across else _UNIT
    widest = min(_WIDEST, -(-shape.columns // unit) * unit)
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
                yield from _deepest(LongConfig(tile, stretches, min(rows, rows_of), len(shape.products)), shape, gpu)


def _deepest(config: Config, shape: FoldedProduct, gpu: Gpu) -> Iterator[Config]:
    """The configuration with as many stages as fit, if any do."""
    for stages in range(_MOST_STAGES, 0, -1):
        deep = replace(config, tile=replace(config.tile, stages=stages))
        if not deep.lacks(shape, gpu):
            yield deep
            return


# The estimated time of a kernel that folds the rows of a product: that of the product, and what folding adds.
#
#     rows of a block     product + exchange of parts of k + what a thread does with its part of each row
#     stretches of rows   product of as many tiles as the busiest block has + the fold of each + their meeting
#
# Selections are networks: the k best of n elements take about log k·(log k + 1)/4 + 1 + log k/2 exchanges an element.
# Coefficients were fitted on one H200 to 90 kernels: routers of 1 to 2048 tokens, 64 to 640 experts, the 1, 6, 8 and 32
# best, in 1 to 8 parts of k. Exchanges of 3 and 4 parts are lower than that fit, after five more kernels of 2048
# tokens, 64 and 128 experts. Those of ranks on chip are of packed integers (`merge.packed`).


_EXCHANGE = {1: 0.5e-6, 2: 0.6e-6, 3: 0.9e-6, 4: 1.0e-6, 8: 1.0e-6}
"""Seconds until a block has all parts of its rows in shared memory, by parts of k."""

_START = 1.0e-6
"""Seconds from the end of a block to the first product of another in its place."""

_OF_SUM, _OF_EXCHANGE, _OF_SHUFFLE = 1.0e-8, 7.2e-9, 1.0e-7
"""Seconds of a thread for a sum, for an exchange of two selected elements, and for what lanes tell each other."""

_OF_FUNCTION = 2.5e-8
"""Seconds of a thread for a function of a sum that is not approximated, such as a logarithm of Gumbel noise (measured,
of 16 tokens; approximated ones, as the tanh of a soft cap, made no difference)."""

_OF_PACKED_EXCHANGE, _PACKING = 1.0e-9, 0.6e-6
"""Seconds of a thread for an exchange of two packed elements, and for packing them and reading the best again."""

_IN_REGISTERS = 2.0
"""How many times as long exchanges take among sums that are in registers, which are short then."""

_ONE_TILE = 0.25
"""The part of the fold of a row's only tile, without ranks, that the estimate of its product does not cover."""

_OF_END = 1.0e-8
"""Seconds of a thread for a sum that may be behind the end of its row."""

_OVERLAPPED = 0.4
"""The part of the fold of a long row's tile that is not hidden, where two consumers take turns at the tensor cores;
all of the last tile's."""

_LONE, _BEHIND_COPIES = 3.0, 0.1
"""How many times as long the fold of one consumer takes, which nothing hides the latencies of, and the part of it that
copies for the next tiles do not hide (measured, of 16 tokens: tiles of 96 to 256 columns)."""

_MEETING, _OF_STRETCHES = 2.0e-6, 1.0e-6
"""Seconds of a meeting, and of each of the reads of several stretches at once."""

_AT_ONCE = 6
"""Stretches that a thread reads at once."""


def seconds(program: FoldedProgram, config: Config, gpu: Gpu) -> float:
    """The estimated time, without the launch."""
    return _SECONDS[type(config)](program, config, gpu)


def _rows_seconds(program: FoldedProgram, config: FoldedConfig, gpu: Gpu) -> float:
    shape, tile = program.shape, config.tile
    sizes = dataclasses.replace(sizes_of(shape.product), stored=0)
    alone = product_seconds(shape.product, sizes, dataclasses.replace(tile, consumers=2), gpu, exchanges=False)
    rows = min(config.rows, sizes.rows)
    turns = -(-rows // config.rows_at_once)
    packed = program.packed and config.row.chunk >= shape.columns
    exchange = _OF_PACKED_EXCHANGE if packed else _OF_EXCHANGE
    folded = _fold(program, -(-shape.columns // config.sharing), config.sharing, exchange)
    after = _EXCHANGE[tile.splits] + turns * (folded + (_PACKING if packed else 0.0))
    clusters = max(1, math.floor(gpu.processors * IN_CLUSTERS[tile.splits]) // tile.splits)
    waves = -(-sizes.places * -(-sizes.rows // tile.rows) // clusters)
    return alone + waves * after + (waves - 1) * (_START if tile.splits > 1 else 0.0)


def _stretches_seconds(program: FoldedProgram, config: LongConfig, gpu: Gpu) -> float:
    shape, tile = program.shape, config.tile
    sizes = dataclasses.replace(sizes_of(shape.product), stored=0)
    alone = sum(
        product_seconds(product, dataclasses.replace(sizes_of(product), stored=0), tile, gpu)
        for product in shape.products
    )
    items, tiles = sizes.places * -(-sizes.rows // tile.rows), -(-sizes.columns // tile.columns)
    even = -(-items * tiles // tile.blocks)
    busiest = -(-items * config.stretches // tile.blocks) * -(-tiles // config.stretches)
    each = 2 * config.parts * _fold(program, tile.columns // 4, 4, _IN_REGISTERS * _OF_EXCHANGE)
    if shape.columns % tile.columns:
        each += 2 * config.parts * tile.columns // 4 * _OF_END
    only = busiest == 1 and program.ranks <= 1
    folded = _ONE_TILE * each if only else _folded(shape, tile, each, busiest, gpu)
    if config.stretches == 1:
        return alone * busiest / even + folded
    reads = -(-config.stretches // (config.sharing * _AT_ONCE))
    return alone * busiest / even + folded + _MEETING + reads * _OF_STRETCHES


_SECONDS: dict[type[Config], Callable[..., float]] = {FoldedConfig: _rows_seconds, LongConfig: _stretches_seconds}


def _folded(shape: FoldedProduct, tile: ProductConfig, each: float, tiles: int, gpu: Gpu) -> float:
    """What the folds of a block's tiles add: copies go on behind one as long as there are stages for them."""
    if tile.consumers > 1:
        return each * (1.0 + _OVERLAPPED * (tiles - 1))
    ahead = tile.stages * tile.stage_bytes(shape.product) * gpu.processors / gpu.memory_bytes_per_second
    alone = _LONE * each
    return alone + max(_BEHIND_COPIES * alone, alone - ahead) * (tiles - 1)


def _fold(program: FoldedProgram, sums: int, sharing: int, exchange: float = _OF_EXCHANGE) -> float:
    """What a thread takes for its sums of a row, and for those of the other threads."""
    kept = 1 << (max(program.ranks, 1) - 1).bit_length()
    depth = math.log2(kept)
    merged = 1 + depth / 2
    exchanges = (depth * (depth + 1) / 4 + merged) if program.ranks else 0.0
    rounds = math.log2(sharing)
    told = _OF_SHUFFLE + (exchange * kept * merged if program.ranks else 0.0)
    return sums * (_OF_SUM + _OF_FUNCTION * program.exact_functions + exchange * exchanges) + rounds * told


# The program of a folded product: its products, and what is done to a row of them.


@dataclass(frozen=True)
class FoldedProgram:
    """What a tile does: the products of a shape, and the program of a row of them."""

    shape: FoldedProduct
    row: RowProgram

    def __str__(self) -> str:
        return str(self.row)

    @property
    def exact_functions(self) -> int:
        """Logarithms and the like that make an element of a row of sums of products, and are not approximated."""
        exact = [expression for expression in self.row.position_inputs.values() if needs_exact(expression)]
        return sum(operations_of(expression)[1] for expression in exact)

    @cached_property
    def packed(self) -> bool:
        """Whether elements of a row on chip are selected as packed integers."""
        return selection_of(self.row, self.shape.columns) is not None

    @property
    def ranks(self) -> int:
        """Elements of a row that are selected, best first; 0 where none are."""
        selections = [step.reducer.selection for step in self.row.body.steps if isinstance(step, Tuple)]
        return max((selection.count for selection in selections if selection is not None), default=0)
