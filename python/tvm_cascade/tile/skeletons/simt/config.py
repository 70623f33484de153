"""The configuration of a product on CUDA cores: tiles of blocks, warps and threads, and stages; ranked by estimates."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from tvm_cascade.analysis.tir import Extent
from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.cost import Counts, seconds
from tvm_cascade.tile.memory import itemsize
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.product.matrix import MatrixProduct, Side
from tvm_cascade.tile.skeletons.simt.tiles import Cut, Layout, Shares, shares_of

_ADDRESSES = 24
"""Registers of a thread beside its sums and fragments."""


@dataclass(frozen=True)
class CoreConfig:
    """The partition of a product.

    Attributes
    ----------
    rows, columns : how the sides of the result are cut.
    depth : positions of k of a pipeline stage.
    stages : of the pipeline in shared memory.
    slices : parts of every stage that warps of their own sum; a power of two.
    resident : blocks of a multiprocessor that registers have to do for.
    """

    rows: Cut
    columns: Cut
    depth: int = 16
    stages: int = 4
    slices: int = 1
    resident: int = 1

    def __str__(self) -> str:
        sliced = f", {self.slices} slices of k" if self.slices > 1 else ""
        return (
            f"tiles of {self.rows.block}x{self.columns.block} for {self.threads} threads of {self.rows.own}x"
            f"{self.columns.own}{sliced}, {self.stages} stages of {self.depth} positions"
        )

    @property
    def slice_threads(self) -> int:
        return self.rows.warps * self.columns.warps * WARP

    @property
    def threads(self) -> int:
        return self.slice_threads * self.slices

    @property
    def cuts(self) -> tuple[Cut, Cut]:
        return self.rows, self.columns

    def layouts(self, shape: MatrixProduct) -> tuple[Layout, Layout]:
        left, right = (
            Layout(cut.block, self.depth, side.own_step != 1, itemsize(shape.dtype))
            for cut, side in zip(self.cuts, shape.sides, strict=True)
        )
        return left, right

    def shares(self, side: Side, layout: Layout, shape: MatrixProduct) -> Shares:
        if layout.is_turned and side.dtype == shape.dtype:
            return Shares(layout, 1, self.threads)
        return shares_of(side, layout, shape.inner.extent, self.threads)

    def why_not(self, shape: MatrixProduct, gpu: Gpu) -> str:
        """Why a GPU cannot run the product in this configuration; empty where it can."""
        if any(n < 1 or n & (n - 1) for cut in self.cuts for n in (cut.warps, cut.own)):
            return "warps and elements are powers of two"
        if (self.rows.lanes, self.columns.lanes) not in ((8, 4), (4, 8)):
            return "a warp has 8 lanes along one side and 4 along the other"
        if self.slices & (self.slices - 1) or self.rows.own % self.slices:
            return "slices are a power of two of a thread's rows"
        if self.stages < 2 or self.depth % (2 * self.slices):
            return "stages are two or more, of an even number of positions for each slice"
        for layout, cut, side in zip(self.layouts(shape), self.cuts, shape.sides, strict=True):
            if cut.own % layout.vector:
                return "a thread's part is no whole vector"
            if reason := self.shares(side, layout, shape).why_not:
                return reason
        if self.threads > gpu.max_threads or self.threads * self.registers(shape) * self.resident > gpu.registers:
            return f"{self.threads} threads take more registers than there are"
        if self.shared_elements(shape) * itemsize(shape.dtype) > gpu.block_shared_bytes:
            return "its stages take more shared memory than there is"
        return ""

    def registers(self, shape: MatrixProduct) -> int:
        own = self.rows.own, self.columns.own
        needed = (own[0] * own[1] + sum(own)) * itemsize(shape.dtype) // 4 + _ADDRESSES
        return -(-needed // 8) * 8

    def shared_elements(self, shape: MatrixProduct) -> int:
        """Elements of shared memory of a block: its stages, and afterwards the sums of its slices."""
        staged = self.stages * sum(layout.elements for layout in self.layouts(shape))
        return max(staged, self.slices * self.rows.block * self.columns.block if self.slices > 1 else 0)


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


def ranked_core_configs(shape: MatrixProduct, gpu: Gpu) -> list[CoreConfig]:
    """The fitting configurations, from the least estimated time on; Unfit where none fits."""
    fitting = [config for config in _candidates() if not config.why_not(shape, gpu)]
    if not fitting:
        raise Unfit("no tile fits into registers and shared memory")
    return sorted(fitting, key=lambda config: seconds(counts_of(config, shape, gpu), gpu))


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


def counts_of(config: CoreConfig, shape: MatrixProduct, gpu: Gpu) -> Counts:
    """What a kernel does: a step is a position of k of all of a tile."""
    rows, columns, depth = (_number(line.extent) for line in (shape.left.line, shape.right.line, shape.inner))
    outer, places = (_number(shape.extent(*variables)) for variables in (shape.outer, shape.batch))
    tiles = -(-rows // config.rows.block) * -(-columns // config.columns.block) * places
    deep = -(-depth // config.depth) * config.depth * outer
    each = -(-tiles // gpu.processors)
    size = itemsize(shape.dtype)
    warps = min(each, config.resident) * config.threads / LANES
    reached = _share(config) * min(1.0, _LONE + _MORE * warps)
    return Counts(
        steps=each * deep,
        cores=config.rows.block * config.columns.block * size / 4 / reached,
        copied=(config.rows.block + config.columns.block) * size,
        copies_rate="own_bytes_per_second",
        far_ahead=True,
        between={"block_seconds": 2.0},
    )


def _number(extent: Extent) -> int:
    return extent if isinstance(extent, int) else _UNKNOWN
