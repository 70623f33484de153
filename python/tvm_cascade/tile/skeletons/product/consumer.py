"""What consumer warp groups of the product skeleton do: sums of products of tiles, one stage after the other."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, kernel_extent, put, registers
from tvm_cascade.tile.fragment import DTYPE, ROWS, placed
from tvm_cascade.tile.hopper.barrier import Ring
from tvm_cascade.tile.skeletons.product.feed import ProductFeed
from tvm_cascade.tile.skeletons.product.raster import Tile
from tvm_cascade.tile.work import GROUP_ROWS, Threads


class Steps:
    """Emits steps along k of one consumer warp group.

    Attributes
    ----------
    feeds : of all products that consumers sum.
    index : the number of the group among the consumers.
    sums : registers of its accumulators, for each 64 rows one array of each sum of products.
    left : matrices of a stage in shared memory; None where the left operand is in registers.
    ring, read : the stage at hand, and the first that is not released.
    """

    def __init__(self, feeds: Sequence[ProductFeed], threads: Threads, rank: ir.Expr | int, left_shared: bool) -> None:
        feed = feeds[0]
        self.feeds, self.feed, self.threads, self.config, self.rank = feeds, feed, threads, feed.config, rank
        self.family = feed.config.family
        self.index = bind("consumer", threads.group - 1)
        parts = self.config.own_rows // GROUP_ROWS
        self.sums = [
            [registers(f"sums_{part}", self.config.columns // 2) for _ in feed.rights] for part in range(parts)
        ]
        self.left, self.rights = self.matrices(feed, left_shared)
        self.ring, self.read = Ring("filled", self.config.stages, 0), Ring("read", self.config.stages, 0)
        feed.address_blocks(threads)

    def matrices(self, feed: ProductFeed, left_shared: bool = True) -> tuple[Any, list[Any]]:
        first = self.index * self.config.own_rows
        left = feed.left.matrix(self.family, self.threads, first) if left_shared else None
        return left, [right.matrix(self.family, self.threads) for right in feed.rights]

    @property
    def count(self) -> ir.Expr:
        return self.feed.part(self.rank)[1]

    def clear(self, sums: Sequence[Sequence[Any]]) -> None:
        for array in (array for of_part in sums for array in of_part):
            with T.unroll(self.config.columns // 2) as k:
                put(array, k, tirx.const(0.0, "float32"))

    def sum(self, into: list[list[Any]], count: ir.Expr) -> None:
        """The sums of so many steps, one at least; a stage is released once the products after its are under way."""
        if not self.family.deferred:
            self.clear(into)
            with T.serial(count):
                self._step(into, first=False)
                self.release()
            return
        self._step(into, first=True)
        with T.serial(count - 1):
            self._step(into, first=False)
            self.family.wait(1)
            self.release()
        self.family.wait(0)
        self.release()

    def wait(self) -> None:
        self.feed.full.wait(self.ring.stage, self.ring.parity)

    def release(self) -> None:
        self.feed.release(self.read.stage, self.threads)
        self.read.advance()

    def _step(self, into: list[list[Any]], first: bool) -> None:
        self.wait()
        feed, family, stage = self.feed, self.family, self.ring.stage
        family.fence()
        family.multiply_shared(
            into, self.config.columns, self.left, self.rights, feed.left.depth, feed.shape.dtypes,
            [feed.left.offset(family, stage, part) for part in range(len(into))],
            [operand.offset(family, stage) for operand in feed.rights], add=not first,
        )  # fmt: skip
        family.commit()
        self.ring.advance()


class Summing(ABC):
    """How a consumer sums a tile."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps

    def turns(self) -> AbstractContextManager[None]:
        """What is written within is done by consumers side by side."""
        return nullcontext()

    @abstractmethod
    def sum(self, tile: Tile) -> None:
        """Emits the sums of a tile, of one step at least."""


class PlainSumming(Summing):
    """All steps on tensor cores, one after the other."""

    def sum(self, tile: Tile) -> None:
        self.steps.sum(self.steps.sums, self.steps.count)


class PromotedSumming(Summing):
    """Sums leave the tensor cores every few steps, and are added in float32.

        for every `promoted` steps along k:    narrow = Σ A @ Bᵀ on tensor cores;    sums += narrow in float32

    The tensor cores of Hopper keep about twelve bits of sums of float8 products, relative to the largest of them; what
    is lost then does not grow with k. While one consumer adds, the products of the other are under way.

    Attributes
    ----------
    narrow : what the tensor cores have summed since the last promotion, like `sums`.
    scales : what that is multiplied by; None for nothing.
    """

    def __init__(self, steps: Steps) -> None:
        super().__init__(steps)
        count, feed = steps.config.columns // 2, steps.feed
        self.narrow = [[registers(f"narrow_{part}", count) for _ in of_part] for part, of_part in enumerate(steps.sums)]
        self.scales = StepScales(feed, steps.threads, steps.index, len(steps.sums)) if feed.shape.scales else None

    def sum(self, tile: Tile) -> None:
        """Emits the sums of a tile, promoted after every few steps and at the end."""
        steps = self.steps
        count, every = steps.count, steps.config.promoted
        steps.clear(steps.sums)
        if self.scales is not None:
            self.scales.load(tile, tirx.const(0, "int32"))
        with T.serial((count + (every - 1)) // every) as turn:
            if self.scales is not None:
                self.scales.start(tile, turn)
            steps.sum(self.narrow, tirx.const(1, "int32") if every == 1 else tirx.min(every, count - turn * every))
            self._promote()

    def _promote(self) -> None:
        for part, (sums, narrow) in enumerate(zip(self.steps.sums, self.narrow, strict=True)):
            for wide, own in zip(sums, narrow, strict=True):
                for k in range(self.steps.config.columns // 2):
                    scaled = own[k] if self.scales is None else own[k] * self.scales.of(part, k // 2 % 2)
                    put(wide, k, wide[k] + scaled)


class StepScales:
    """Scales of a consumer's rows and of the tile's columns, by which the products of every step are multiplied.

        sums[i, j] += down[i, b]·across[b] · Σ_{k in block b} A[i, k]·B[j, k]

    A thread loads the scales of a step while the products of the one before are under way.

    Attributes
    ----------
    scales : of a thread's rows in the step under way, two for each of its `parts` of 64 rows.
    down, across : of its rows and of the tile's columns in the next one.
    """

    def __init__(self, feed: ProductFeed, threads: Threads, index: ir.Expr, parts: int) -> None:
        self.feed, self.threads, self.index, self.parts = feed, threads, index, parts
        count = len(ROWS) * parts
        self.scales, self.down, self.across = (
            registers(name, n) for name, n in (("scales", count), ("down_ahead", count), ("across_ahead", 1))
        )

    def start(self, tile: Tile, turn: ir.Expr) -> None:
        """Takes the scales of a step, and loads those of the next one."""
        for k in range(len(ROWS) * self.parts):
            put(self.scales, k, self.down[k] * self.across[0])
        self.load(tile, bind("next_step", tirx.min(turn + 1, self.feed.steps - 1)))

    def load(self, tile: Tile, step: ir.Expr) -> None:
        shape, feed, threads = self.feed.shape, self.feed, self.threads
        assert shape.scales is not None
        inner = shape.inner.places(step * feed.left.depth)
        places = {**tile.batch, **inner, **shape.right.line.places(tile.first_column)}
        put(self.across, 0, self._product(shape.scales.across, places))
        for part in range(self.parts):
            first = tile.first_row + self.index * feed.config.own_rows + (part * GROUP_ROWS + threads.warp * 16)
            for r in ROWS:
                last = kernel_extent(shape.left.line.extent) - 1
                row = bind("scaled_row", tirx.min(first + threads.lane // 4 + 8 * r, last))
                value = self._product(shape.scales.down, {**places, **shape.left.line.places(row)})
                put(self.down, len(ROWS) * part + r, value)

    def _product(self, factors: Sequence[ir.Expr], places: dict[tirx.Var, ir.Expr]) -> ir.Expr:
        values = [placed(factor, places, self.feed.buffers) for factor in factors]
        return math.prod(values, start=tirx.const(1.0, DTYPE))

    def of(self, part: int, row: int) -> ir.Expr:
        return self.scales[len(ROWS) * part + row]
