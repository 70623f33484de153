"""Emits the kernel of a gauged product: the product kernel with consumers that have the left operand in registers.

    consumer    for step along k: wait for the stage; load A; statistics ⊕= f(A); A = e(A); sums += A @ Bᵀ

A is loaded for the statistics and for the products at once. One set of registers is filled while products read the
other, so that what is computed of A takes no time of the tensor cores.
"""

from __future__ import annotations

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.extract import Member
from tvm_cascade.tile.emit import bind
from tvm_cascade.tile.fragment import DTYPE, TilePrinter
from tvm_cascade.tile.hopper import wgmma
from tvm_cascade.tile.hopper.barrier import Ring
from tvm_cascade.tile.skeletons.product.config import ProductConfig
from tvm_cascade.tile.skeletons.product.consumer import Consumer
from tvm_cascade.tile.skeletons.product.epilogue import Epilogue
from tvm_cascade.tile.skeletons.product.gauged.feed import GaugedFeed
from tvm_cascade.tile.skeletons.product.gauged.lifted import LeftRegisters
from tvm_cascade.tile.skeletons.product.gauged.shape import GaugedProduct
from tvm_cascade.tile.skeletons.product.gauged.statistics import RowValues
from tvm_cascade.tile.skeletons.product.kernel import ProductKernel
from tvm_cascade.tile.skeletons.product.raster import Tile

_SETS = 2
"""Of registers of the left operand."""


class GaugedKernel(ProductKernel):
    """Emits the kernel of a gauged product."""

    def __init__(self, shape: GaugedProduct, config: ProductConfig) -> None:
        super().__init__(shape.product, config)
        self.gauged, self.rows = shape, RowValues(shape)

    def _made_feed(self) -> GaugedFeed:
        return GaugedFeed(self.shape, self.config, self.buffers)

    def _outputs(self) -> GaugedEpilogue:
        epilogue = GaugedEpilogue(self.shape, self.config, self.buffers)
        epilogue.values = self.rows
        return epilogue

    def _consumer(self) -> LiftingConsumer:
        consumer = LiftingConsumer(self.feed, self.threads, self.epilogue, self.partial, self.rank)
        consumer.prepare(self.gauged, self.rows)
        return consumer


class GaugedEpilogue(Epilogue):
    """Emits an epilogue whose results take values of rows beside sums of products."""

    values: RowValues

    def _finished(self, member: Member, row: int, index: ir.Expr) -> ir.Expr:
        shape = self.values.shape
        sums = {state: array[index] for state, array in zip(shape.sums, self.sums, strict=True)}
        symbols = {**sums, **self.values.of_row(row)}
        return TilePrinter(symbols, DTYPE, {})(self.values.finishes[member.result].value)


class LiftingConsumer(Consumer):
    """Emits a consumer warp group that has the left operand in registers."""

    def prepare(self, shape: GaugedProduct, rows: RowValues) -> None:
        """Registers of the left operand and of what rows have."""
        self.gauged, self.rows = shape, rows
        assert isinstance(self.feed, GaugedFeed)
        own = self.index * self.config.own_rows
        self.left_registers = LeftRegisters(shape, self.feed, own, self.threads, _SETS)
        self.groups = wgmma.steps_of(self.left_registers.depth, self.left_registers.dtype)
        self.ahead = Ring("loaded", self.config.stages, 0)
        rows.allocate()

    def _prepare_left(self) -> None:
        """Nothing: products read it from registers."""

    def _sum_tile(self, tile: Tile) -> None:
        steps = self.gauged.steps
        self._start(tile)
        self._load_first(tile)
        if steps > 1:
            self._overlapped(0, tile, 0)
        with T.serial(max(steps - 2, 0) // _SETS) as turn:
            for which in (1, 0):
                self._overlapped(which, tile, turn * _SETS + (2 - which))
        if steps > 2 and steps % _SETS:
            self._overlapped(1, tile, steps - 2)
        for group in range(self.groups):
            self._multiply((steps - 1) % _SETS, group, first=steps == 1)
        wgmma.wait(0)
        for _ in range(min(steps, 2)):
            self._release()
        self.ring.advance()
        self.rows.finish()

    def _start(self, tile: Tile) -> None:
        """What both rows of the thread begin with."""
        shape = self.feed.shape
        first = tile.first_row + self.index * self.config.own_rows + self.threads.warp * 16 + self.threads.lane // 4
        inside = [bind("own_inside", Epilogue.within(first + 8 * r, shape.left.line.extent)) for r in (0, 1)]
        places = [{**tile.batch, **shape.left.line.places(row)} for row in inside]
        self.rows.start(places, self.feed.buffers)

    def _load_first(self, tile: Tile) -> None:
        """The first step's part of the left operand, with nothing to multiply yet."""
        self.left_registers.along.fetch(tirx.const(0, "int32"), tile.batch)
        self.feed.full.wait(self.ahead.stage, self.ahead.parity)
        for group in range(self.groups):
            self._lift(0, group)
        self.ahead.advance()

    def _overlapped(self, which: int, tile: Tile, step: ir.Expr | int) -> None:
        """Multiplies a step and lifts the next one's part of the left operand meanwhile, instruction by instruction.

        What an instruction has read is free when so many others are under way as a step has.
        """
        left = self.left_registers
        left.along.fetch((step + 1) * tirx.const(left.depth, "int32"), tile.batch)
        for group in range(self.groups):
            self._multiply(which, group, first=isinstance(step, int) and step == 0)
            wgmma.wait(self.groups)
            if group == 0:
                self.feed.full.wait(self.ahead.stage, self.ahead.parity)
            self._lift(1 - which, group)
        if not isinstance(step, int) or step > 0:
            self._release()
        self.ring.advance()
        self.ahead.advance()

    def _lift(self, which: int, group: int) -> None:
        """What one instruction multiplies of the next stage's part of the left operand, and statistics of it."""
        left = self.left_registers
        left.load(which, group, self.ahead.stage)
        for word, row, pair in left.places(group):
            left.values(which, word)
            self.rows.fold(left, row, pair)
            if self.gauged.is_lifted:
                left.lift(which, word, pair, self.rows.element, self.rows.of_row(row))
        if self.gauged.is_lifted:
            left.pin(which, group)

    def _multiply(self, which: int, group: int, first: bool) -> None:
        feed, left = self.feed, self.left_registers
        wgmma.fence()
        (arrays,) = self.sums
        for sums, right, operand in zip(arrays, self.rights, feed.rights, strict=True):
            wgmma.multiply_registers(
                sums, self.config.columns, left.words[which], right, left.depth, feed.shape.dtypes,
                operand.offset(self.ring.stage), adds=not first, steps=range(group, group + 1),
            )  # fmt: skip
        wgmma.commit()
