"""The feed of a product kernel: a ring of tiles of both operands, shared by the blocks of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import Extent, product
from tvm_cascade.tile.emit import bind, digits, kernel_extent, named, put, variable, when
from tvm_cascade.tile.fragment import placed
from tvm_cascade.tile.hopper.barrier import Barriers, Ring
from tvm_cascade.tile.hopper.copy import BOX_BYTES, TensorMap
from tvm_cascade.tile.machine.family import Family
from tvm_cascade.tile.product.boxes import BoxedLine
from tvm_cascade.tile.product.lines import Line
from tvm_cascade.tile.product.matrix import MatrixProduct, Side
from tvm_cascade.tile.skeletons.product.config import ProductConfig, steps_of
from tvm_cascade.tile.skeletons.product.gather import Gather, Landing, Pieces, Realigned
from tvm_cascade.tile.skeletons.product.raster import Tile
from tvm_cascade.tile.work import GROUP_ROWS, WARP_GROUP, Threads


class ProductFeed:
    """Tiles of both operands that are copied, waited for and released together.

    Attributes
    ----------
    full, empty : a barrier for each stage; a stage is empty when all blocks that it is copied to have read it.
    """

    def __init__(self, shape: MatrixProduct, config: ProductConfig, buffers: Mapping[tirx.Var, Any]) -> None:
        self.shape, self.config, self.buffers = shape, config, buffers
        self.landing: Landing | None = None
        self.copied: Any = None
        self.left = TileOperand(shape.left, shape.inner, config.rows, 1, buffers)
        across = config.columns, config.cluster
        self.rights = [TileOperand(side, shape.inner, *across, buffers) for side in shape.rights]

    def allocate(self, pool: Any) -> None:
        config = self.config
        self.left.allocate("left_tiles", pool, config.stages, config.behind(self.shape) + 1)
        for right in self.rights:
            right.allocate("right_tiles", pool, config.stages, config.behind(self.shape) + 1)
        self.full = Barriers(pool, config.stages, 1 + (WARP_GROUP if self.gathers else 0))
        self.empty = Barriers(pool, config.stages, config.consumers * config.cluster * config.family.arrivals)

    def share(self, first: ProductFeed) -> None:
        """Uses the stages of the feed of another product, in turns with it."""
        self.full, self.empty = first.full, first.empty
        for own, other in zip(self.operands, first.operands, strict=True):
            own.share(other)

    @property
    def memory(self) -> ir.Expr:
        """A pointer to the tiles of the right operands, which are in one piece."""
        return self.rights[0].tiles.ptr_to([0, 0, 0, 0])

    @property
    def operands(self) -> list[TileOperand]:
        return [self.left, *self.rights]

    @property
    def gathers(self) -> list[TileOperand]:
        return [operand for operand in self.operands if operand.copies is None]

    @property
    def inner(self) -> ir.Expr:
        return (kernel_extent(self.shape.inner.extent) + (self.left.depth - 1)) // self.left.depth

    @property
    def steps(self) -> ir.Expr:
        return self.inner * kernel_extent(product(self.shape.extent(var) for var in self.shape.outer))

    @property
    def may_be_none(self) -> bool:
        """Whether tiles may have no steps: axes of no length, or a condition that fails."""
        return self.shape.where is not None or not isinstance(steps_of(self.shape), int)

    def any(self, tile: Tile) -> ir.Expr:
        """Whether there are steps for a tile."""
        where = self.shape.where
        return self.steps > 0 if where is None else placed(where, tile.batch, self.buffers)

    def part(self, rank: ir.Expr | int) -> tuple[ir.Expr, ir.Expr]:
        """The first of the steps that a block does, and how many."""
        if self.config.splits == 1:
            return tirx.const(0, "int32"), self.steps
        first = bind("first_step", rank * self.steps // self.config.splits)
        return first, bind("own_steps", (rank + 1) * self.steps // self.config.splits - first)

    @property
    def may_begin(self) -> bool:
        """Whether the first tiles on the right can be copied before the kernel waits for those before it."""
        return not self.gathers and self.shape.where is None and self.config.cluster == 1

    def begin(self, tile: Tile, rank: ir.Expr | int) -> None:
        """Copies the tiles on the right of a block's first steps, as many as there are stages."""
        first, count = self.part(rank)
        self.copied = variable("copied_early", tirx.min(count, self.config.stages))
        with T.serial(self.copied[0]) as stage:
            self.full.announce(stage, self._expected())
            places, deep = self._at(tile, first + stage)
            for right in self.rights:
                right.copy(stage, tile.first_column, deep, places, rank, self.full.pointer(stage))

    def _at(self, tile: Tile, step: ir.Expr) -> tuple[dict[tirx.Var, ir.Expr], ir.Expr]:
        """Where the tiles of a step are: values of all variables but those of lines, and where on the inner one."""
        places = {**tile.batch, **digits(step // self.inner, self.shape.outer, self.shape.extent)}
        return places, step % self.inner * self.left.depth if self.shape.outer else step * self.left.depth

    def _expected(self) -> Any:
        expected = [operand.expected for operand in self.operands]
        return sum(expected[1:], expected[0])

    def fill(self, ring: Ring, tile: Tile, step: ir.Expr, rank: ir.Expr | int, threads: Threads) -> None:
        """Copies the tiles of a step into the next stage, once that is empty: by one thread, or by the warp group."""
        places, deep = self._at(tile, step)
        firsts = (tile.first_row, *(tile.first_column for _ in self.rights))
        barrier = self.full.pointer(ring.stage)

        def gather() -> None:
            for operand, first in zip(self.operands, firsts, strict=True):
                if operand.gather is not None:
                    operand.gather.copy(ring.stage, first, deep, places, threads.thread)
            if self.landing is not None:
                self.landing.follow(threads.thread)

        ahead = self.landing is not None and self.landing.ahead
        if ahead:
            gather()
        self.empty.wait(ring.stage, ring.parity)

        def copy(operands: Sequence[TileOperand], firsts: Sequence[ir.Expr]) -> None:
            for operand, first in zip(operands, firsts, strict=True):
                operand.copy(ring.stage, first, deep, places, rank, barrier)

        with when(threads.leads) if self.gathers else nullcontext():
            if self.copied is None:
                self.full.announce(ring.stage, self._expected())
                copy(self.operands, firsts)
            else:
                with when(self.copied[0] <= 0):
                    self.full.announce(ring.stage, self._expected())
                    copy(self.rights, firsts[1:])
                copy([self.left], firsts[:1])
                put(self.copied, 0, self.copied[0] - 1)
        if not ahead:
            gather()
        ring.advance()

    def start(self) -> Ring:
        gathers = [operand.gather for operand in self.operands if operand.gather is not None]
        self.landing = (
            Landing(self.full, self.config.stages, self.config.behind(self.shape), gathers) if gathers else None
        )
        return Ring("produced", self.config.stages, 1)

    def finish(self, threads: Threads) -> None:
        if self.landing is not None:
            self.landing.finish(threads.thread)

    def address_blocks(self, threads: Threads) -> None:
        """Finds the barriers of the blocks of the cluster, one for each of the first warps."""
        if self.config.cluster > 1:
            self.peers = self.empty.of_block(tirx.min(threads.warp, self.config.cluster - 1))

    def follow(self, first: ProductFeed) -> None:
        """Uses what another feed, whose stages it shares, knows of the blocks of the cluster."""
        if self.config.cluster > 1:
            self.peers = first.peers

    def release(self, stage: ir.Expr, threads: Threads) -> None:
        """A consumer has read a stage: who leads those that multiply together tells each block that copies to it."""
        if self.config.cluster == 1:
            with self.config.family.leading(threads):
                self.empty.arrive(stage)
            return
        with when(tirx.And(threads.lane == 0, threads.warp < self.config.cluster)):
            self.empty.arrive_at(self.peers, stage)


# The operands of a product in shared memory.


class TileOperand:
    """Tiles of an operand: `length` of its own line, 128 bytes of what is summed over (or as many rows).

    Parameters
    ----------
    shares : blocks of a cluster that copy a part each, for all of them.

    Attributes
    ----------
    copies : its bulk copies; None where threads copy it.
    """

    def __init__(self, side: Side, inner: Line, length: int, shares: int, buffers: Mapping[tirx.Var, Any]) -> None:
        self.side, self.inner, self.length, self.shares, self.buffers = side, inner, length, shares, buffers
        self.extent, self.depth = side.line.extent, BOX_BYTES // side.operand.size
        self.copies: TensorMap | None = None
        own, others = buffers[side.operand.buffer], list(buffers.values())
        whole = shares > 1 or side.across or (side.box and not isinstance(self.extent, int))
        self.there = length if whole else _at_most(length, self.extent)
        if isinstance(side.line, BoxedLine):
            self.copies = TensorMap(side.operand, own, side.line.size, self.depth, others=others)
        elif side.bulk and side.across:
            self.copies = TensorMap(side.operand, own, self.depth, self._columns() // shares, others=others)
        elif side.bulk and isinstance(self.there, int):
            self.copies = TensorMap(side.operand, own, self.there // shares, self.depth, others=others)
        elif side.bulk:
            self.copies = TensorMap(side.operand, own, length, self.depth, self.there, others=others)

    def _columns(self) -> int:
        """Columns of a tile that boxes cover: no more of them than there are columns for."""
        if self.shares > 1 or not isinstance(self.extent, int):
            return self.length
        return min(self.length, -(-self.extent // self.depth) * self.depth)

    @property
    def bytes(self) -> int:
        return self.length * BOX_BYTES

    @property
    def boxes(self) -> int:
        """Boxes of rows that are copied one by one; 1 of rows that follow one another."""
        return -(-self.there // GROUP_ROWS) if self.side.box and isinstance(self.there, int) else 1

    @property
    def expected(self) -> int | ir.Expr:
        if self.copies is None or isinstance(self.there, int):
            return 0 if self.copies is None else self.copies.tile_bytes * self.boxes * self.shares
        return self.there * BOX_BYTES

    def allocate(self, name: str, pool: Any, stages: int, under_way: int) -> None:
        """Shared memory, [stage, box, row, column], and what copies by threads go by, for so many steps."""
        boxes, rows = (self.length // self.depth, self.depth) if self.side.across else (1, self.length)
        shape = (stages, boxes, rows, self.depth)
        element = self.side.operand.dtype if self.side.operand.size > 1 else "uint8"
        self.tiles = named(name, pool.alloc(shape, element, align=1024))
        given = self.side, self.inner, self.tiles, shape, self.buffers
        self.gather: Gather | None = None if self.side.bulk else Pieces(*given)
        if self.side.starts_anywhere:
            self.gather = Realigned(*given)
            self.gather.stage_in(pool, under_way)

    def share(self, other: TileOperand) -> None:
        """Uses the shared memory of an operand of another product, whose tiles have the same form."""
        self.tiles, self.gather = other.tiles, None

    def copy(
        self, stage: ir.Expr, first: ir.Expr, deep: ir.Expr, places: Mapping[tirx.Var, ir.Expr], rank: ir.Expr | int,
        barrier: ir.Expr,
    ) -> None:  # fmt: skip
        """Issues the bulk copies of a tile, or of this block's share of it.

        Parameters
        ----------
        first, deep : where the tile starts, on its own line and on what is summed over.
        """
        if self.copies is None:
            return
        operand, share = self.side.operand, self.length // self.shares
        own = first + rank * share if self.shares > 1 else first
        if self.side.start is not None:
            own = own + placed(self.side.start, places, self.buffers)
        blocks = (1 << self.shares) - 1 if self.shares > 1 else None

        def target(box: int) -> ir.Expr:
            if self.shares == 1:
                return self.tiles.ptr_to([stage, box, of_box, 0])
            if self.side.across:
                return self.tiles.ptr_to([stage, rank * (share // self.depth) + box, 0, 0])
            return self.tiles.ptr_to([stage, box, rank * share, 0])

        row, column = (deep, own) if self.side.across else (own, deep)
        for of_box in range(0, self.boxes * GROUP_ROWS, GROUP_ROWS):
            at = {**places, **self.side.line.corner(first + of_box)}
            fixed = {d: placed(operand.indices[d], at, self.buffers) for d in operand.fixed}
            self.copies.load_at(target, row, column, fixed, barrier, blocks=blocks)

    def matrix(self, family: Family, threads: Threads, first: ir.Expr | None = None) -> Any:
        """The tile as products read it: a right operand, or a left one from `first` on, a multiple of 64."""
        own: ir.Expr | int = 0 if first is None else first
        at = [0, own // GROUP_ROWS, 0, 0] if self.side.across else [0, 0, own, 0]
        return family.matrix(self.tiles.ptr_to(at), self.depth, self.side.across, threads, left=first is not None)

    def offset(self, family: Family, stage: ir.Expr, further: int = 0) -> ir.Expr:
        """The offset of a pipeline stage, and of so many multiples of 64 further on."""
        return family.offset(stage, self.bytes, further * GROUP_ROWS * BOX_BYTES)


def _at_most(length: int, extent: Extent) -> int | ir.Expr:
    """How much of a tile is copied: no more than there is, also where the launch alone knows how much.

    What of a tile is outside of the tensor alone need not be zero, since nothing of the result depends on it. A bulk
    copy takes longer the more of its box is outside (measured: 1.3 times with one of 128 rows inside).
    """
    if isinstance(extent, int):
        return min(length, extent)
    return tirx.max(tirx.min(kernel_extent(extent), length), 1)
