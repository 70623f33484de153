"""The stream skeleton: a producer warp group copies tiles of the right operands; consumer warp groups fold them.

    producer    for tile: wait until the stage is empty; copy B; copy each V
    consumer    scores = A @ B[last]ᵀ; fold
                for tile, from the last but one to the first:
                    start scores = A @ Bᵀ;  start accumulators += weights @ V of the tile before
                    wait for the scores; fold them while the accumulators are still under way
                    wait for the accumulators; shift them
                accumulators += weights @ V[first];  finish;  store

Source of the schedule: FlashAttention-3 (Shah et al., 2024): warp specialisation, and the overlap of a tile's products
with the exponentials of the next. Everything between the products comes from the tile program.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sympy as sp
from tvm import ir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.domain import substitute
from tvm_cascade.analysis.extent import Extent
from tvm_cascade.tile.config import StreamConfig, padded
from tvm_cascade.tile.element import Mask
from tvm_cascade.tile.fragment import NEIGHBOURS, ROWS, rebound
from tvm_cascade.tile.hopper import wgmma
from tvm_cascade.tile.hopper.barrier import Barriers, Ring
from tvm_cascade.tile.hopper.copy import BOX_BYTES, TensorMap
from tvm_cascade.tile.hopper.script import bind, branches, named, ptx, put, registers, when
from tvm_cascade.tile.kernels.epilogue import Epilogue
from tvm_cascade.tile.live import Rows, TileRange, live_tiles, mask_slacks, whole_tiles
from tvm_cascade.tile.operand import Operand
from tvm_cascade.tile.program import TileProgram
from tvm_cascade.tile.rows import Place, RowFold

_WARP_GROUP = 128
_GROUP_ROWS = 64
_TURN = 2
"""The first named barrier of the consumers' turns."""


@dataclass(frozen=True)
class Work:
    """One tile of rows.

    Attributes
    ----------
    first_row : of the tile.
    batch : where it is in the batch.
    tiles : of the cascade axis that are visited.
    turn : how many the block has done before.
    """

    first_row: ir.Expr
    batch: dict[tirx.Var, ir.Expr]
    tiles: TileRange
    turn: ir.Expr


class StreamKernel:
    """Emits the kernel of a tile program."""

    def __init__(self, program: TileProgram, config: StreamConfig, tail: Mask | None, skip: tuple[ir.Expr, ...]) -> None:
        self.program, self.config, self.stream = program, config, program.stream
        self.masks = [*program.element.masks, *([tail] if tail else [])]
        self.skip = skip
        self.buffers: dict[tirx.Var, Any] = {}

    def build(self, name: str) -> tirx.PrimFunc:
        """The kernel with its launch, over the parameters of the unfused function."""
        with IRBuilder() as builder, T.prim_func():
            T.func_name(name)
            T.func_attr({"global_symbol": name})
            for param in self.stream.program.params:
                buffer = T.arg(param.name, T.Buffer(tuple(param.ty.shape), str(param.ty.dtype)))
                self.buffers[param] = buffer
            self._maps()
            T.device_entry()
            with T.attr({"tirx.launch_bounds_min_blocks_per_sm": 1}):
                self._places()
                self._shared()
                self._roles()
        return builder.get()

    def _own(self, operand: Operand) -> Any:
        return next(own for param, own in self.buffers.items() if param.same_as(operand.buffer))

    def _maps(self) -> None:
        config, stream = self.config, self.stream
        self.left = TensorMap(stream.left, self._own(stream.left), config.rows)
        self.right = TensorMap(stream.right, self._own(stream.right), config.columns)
        self.values = [TensorMap(p.value, self._own(p.value), config.columns) for p in stream.products]
        self.epilogue = Epilogue(self.program, config, self.buffers)

    def _places(self) -> None:
        """Blocks and threads. A persistent kernel has one block a multiprocessor, others one a tile of rows."""
        stream, config = self.stream, self.config
        self.row_tiles = _whole((stream.extent(stream.row) + (config.rows - 1)) // config.rows)
        self.works = self.row_tiles
        for var in stream.batch:
            self.works = self.works * stream.extent(var)
        blocks = tirx.min(self.works, config.blocks) if config.blocks else self.works
        self.blocks = blocks
        self.block = named("block", T.cta_id([blocks]))
        self.group = named("group", T.warpgroup_id([config.consumers + 1]))
        self.warp = named("warp", T.warp_id_in_wg([4]))
        self.lane = named("lane", T.lane_id([32]))
        self.thread = named("thread", T.thread_id([config.threads]))

    @contextmanager
    def each_work(self) -> Iterator[Work]:
        """What is written within is done for every tile of rows that the block has."""
        if not self.config.blocks:
            yield self._work(self.block, tirx.const(0, "int32"))
            return
        count = (self.works - self.block + (self.blocks - 1)) // self.blocks
        with T.serial(count) as turn:
            yield self._work(bind("work", self.block + turn * self.blocks), turn)

    def _work(self, index: ir.Expr, turn: ir.Expr) -> Work:
        """Tiles of rows run fastest, so that blocks that run together share the right operands in the L2 cache."""
        stream, config = self.stream, self.config
        row_tile, rest = index % self.row_tiles, index // self.row_tiles
        if self.skip:  # the tiles of rows with most to do come first
            row_tile = self.row_tiles - 1 - row_tile
        first_row = bind("first_row", row_tile * config.rows)
        batch: dict[tirx.Var, ir.Expr] = {}
        for var in reversed(stream.batch):
            batch[var] = bind(var.name, rest % stream.extent(var))
            rest = rest // stream.extent(var)
        tiles = self.tile_count()
        slacks = tuple(self.placed(slack, batch) for slack in self.skip)
        visited = live_tiles(slacks, stream.position, Rows(stream.row, first_row, config.rows), config.columns, tiles)
        first = bind("first_tile", tirx.max(tirx.min(visited.first, tiles - 1), 0))
        end = bind("end_tile", tirx.max(tirx.min(visited.end, tiles), first + 1))
        return Work(first_row, batch, TileRange(first, end), turn)

    def _shared(self) -> None:
        stream, config = self.stream, self.config
        pool = T.SMEMPool()
        dtype, box = stream.left.dtype, BOX_BYTES // 2
        self.left_tile = named("left_tile", pool.alloc((self.left.boxes, config.rows, box), dtype, align=1024))
        shape = (config.stages, self.right.boxes, config.columns, box)
        self.right_tiles = named("right_tiles", pool.alloc(shape, dtype, align=1024))
        self.value_tiles = [
            named("value_tiles", pool.alloc((config.stages, m.boxes, config.columns, box), dtype, align=1024))
            for m in self.values
        ]
        self.epilogue.allocate(pool, self.left_tile, self.left.boxes)
        self.left_full, self.left_empty = Barriers(pool, 1, 1), Barriers(pool, 1, config.consumers)
        self.right_full, self.value_full = Barriers(pool, config.stages, 1), Barriers(pool, config.stages, 1)
        consumers = config.consumers
        self.right_empty = Barriers(pool, config.stages, consumers)
        self.value_empty = Barriers(pool, config.stages, consumers)
        pool.commit()
        with when(self.thread == 0):
            for barriers in self._barriers():
                barriers.initialise()
        ptx("fence.proxy.async.shared::cta")
        T.evaluate(T.cuda.cta_sync())

    def _barriers(self) -> list[Barriers]:
        filled = [self.left_full, self.right_full, self.value_full]
        return [*filled, self.left_empty, self.right_empty, self.value_empty]

    def _roles(self) -> None:
        with branches(self.group == 0) as (producer, consumer):
            with producer:
                ptx("setmaxnreg.dec.sync.aligned.u32", self.config.producer_registers)
                with when(self.warp == 0), when(T.cuda.elect_sync()):
                    self._produce()
            with consumer:
                ptx("setmaxnreg.inc.sync.aligned.u32", self.config.consumer_registers)
                _Consumer(self).run()

    def tile_count(self) -> ir.Expr:
        """Tiles of the cascade axis."""
        return _whole((self.stream.extent(self.stream.position) + (self.config.columns - 1)) // self.config.columns)

    def placed(self, expression: ir.Expr, batch: dict[tirx.Var, ir.Expr]) -> ir.Expr:
        """An expression over the frame at a place in the batch."""
        return rebound(substitute(expression, dict(batch)), self.buffers)

    def fixed(self, operand: Operand, batch: dict[tirx.Var, ir.Expr]) -> dict[int, ir.Expr]:
        """The places of the dimensions that a tile of an operand does not run along."""
        return {d: self.placed(operand.indices[d], batch) for d in operand.fixed}

    def _produce(self) -> None:
        for copies in (self.left, self.right, *self.values):
            copies.prefetch()
        ring = Ring("produced", self.config.stages, 1)
        with self.each_work() as work:
            self.left_empty.wait(0, (work.turn & 1) ^ 1)
            self.left_full.announce(0, self.left.boxes * self.left.box_bytes)
            self.left.load(
                lambda box: self.left_tile.ptr_to([box, 0, 0]), work.first_row,
                self.fixed(self.stream.left, work.batch), self.left_full.pointer(0),
            )  # fmt: skip
            with T.serial(work.tiles.end - work.tiles.first) as step:
                row = (work.tiles.end - 1 - step) * self.config.columns
                self._copy([(self.right, self.right_tiles)], self.right_full, self.right_empty, ring, row, work)
                if self.values:
                    pairs = list(zip(self.values, self.value_tiles, strict=True))
                    self._copy(pairs, self.value_full, self.value_empty, ring, row, work)
                ring.advance()

    def _copy(
        self, pairs: list[tuple[TensorMap, Any]], full: Barriers, empty: Barriers, ring: Ring, row: ir.Expr, work: Work
    ) -> None:
        """Copies of a tile of each tensor into the next stage, as soon as that is empty."""
        empty.wait(ring.stage, ring.parity)
        full.announce(ring.stage, sum(copies.boxes * copies.box_bytes for copies, _ in pairs))
        for copies, tiles in pairs:
            fixed = self.fixed(copies.operand, work.batch)

            def target(box: int, tiles: Any = tiles) -> ir.Expr:
                return tiles.ptr_to([ring.stage, box, 0, 0])

            copies.load(target, row, fixed, full.pointer(ring.stage))


def _whole(count: Extent) -> ir.Expr:
    return tirx.const(count, "int32") if isinstance(count, int) else T.cast(count, "int32")


class _Consumer:
    """One consumer warp group."""

    def __init__(self, kernel: StreamKernel) -> None:
        self.kernel, self.config, self.stream = kernel, kernel.config, kernel.stream
        self.program, self.dtype = kernel.program, kernel.stream.left.dtype
        self.index = bind("consumer", kernel.group - 1)
        self.columns = self.config.columns
        self.scores = registers("scores", self.columns // 2)
        self.accumulators = {
            p.component.symbol: registers(f"{p.component.symbol}", p.value.width // 2) for p in self.stream.products
        }
        weights = dict.fromkeys(a.weight for a in self.program.accumulations)
        self.packed = {w: registers(f"{w}_packed", self.columns // 4, "uint32") for w in weights}
        self._descriptors()
        self.right, self.value = Ring("right", self.config.stages, 0), Ring("value", self.config.stages, 0)

    def _descriptors(self) -> None:
        kernel, columns = self.kernel, self.columns
        own = kernel.left_tile.ptr_to([0, self.index * _GROUP_ROWS, 0])
        self.left_matrix = wgmma.SharedMatrix(own, self.config.rows, transposed=False, name="left")
        self.right_matrix = wgmma.SharedMatrix(kernel.right_tiles.ptr_to([0, 0, 0, 0]), columns, False, "right")
        self.value_matrices = [
            wgmma.SharedMatrix(tiles.ptr_to([0, 0, 0, 0]), columns, True, "value") for tiles in kernel.value_tiles
        ]

    def run(self) -> None:
        """Every tile of rows that the block has."""
        if self.config.ping_pong:
            with when(self.index == 0):
                ptx("bar.arrive", T.uint32(_TURN), T.uint32(2 * _WARP_GROUP))
        with self.kernel.each_work() as work:
            self._place(work)
            self._stream(work)
        self.kernel.epilogue.drain(self)

    def _place(self, work: Work) -> None:
        kernel = self.kernel
        self.work = work
        self.first_row = bind("first_own_row", work.first_row + self.index * _GROUP_ROWS)
        upper = bind("row", self.first_row + kernel.warp * 16 + kernel.lane // 4)
        place = Place(work.batch, (upper, upper + 8), kernel.lane % 4 * 2, kernel.buffers)
        self.rows = RowFold(self.program, place, self.scores, self.columns)
        for array in self.accumulators.values():
            with T.unroll(int(array.ty.shape[0])) as k:
                put(array, k, T.float32(0))
        self.rows.start()
        self._whole_range()

    def _stream(self, work: Work) -> None:
        """From the first score to the last store."""
        kernel, tiles = self.kernel, work.tiles
        kernel.left_full.wait(0, work.turn & 1)
        kernel.right_full.wait(self.right.stage, self.right.parity)
        self._start_scores()
        wgmma.wait(0)
        self._release(kernel.right_empty, self.right)
        self._fold_rows(tiles.end - 1, first=True)
        self._pack()
        with T.serial(tiles.end - tiles.first - 1) as step:
            self._tile(bind("tile", tiles.end - 2 - step))
        if kernel.epilogue.own_staging:
            self._left_read()
        if self.accumulators:
            kernel.value_full.wait(self.value.stage, self.value.parity)
            self._start_products()
        self.rows.across_lanes()
        wgmma.wait(0)
        if self.accumulators:
            self._release(kernel.value_empty, self.value)
        kernel.epilogue.emit(self)

    def left_is_read(self) -> None:
        """The left operand's memory may be written again; said by one thread of the group."""
        self.kernel.left_empty.arrive(0)

    def _left_read(self) -> None:
        with when(tirx.And(self.kernel.lane == 0, self.kernel.warp == 0)):
            self.left_is_read()

    def _tile(self, tile: ir.Expr) -> None:
        """Scores of this tile and products of the one before, overlapped."""
        both, following = T.uint32(2 * _WARP_GROUP), (self.index + 1) % self.config.consumers
        self.kernel.right_full.wait(self.right.stage, self.right.parity)
        if self.config.ping_pong:
            ptx("bar.sync", T.cast(_TURN + self.index, "uint32"), both)
        self._start_scores()
        if self.accumulators:
            self.kernel.value_full.wait(self.value.stage, self.value.parity)
            self._start_products()
        if self.config.ping_pong:
            ptx("bar.arrive", T.cast(_TURN + following, "uint32"), both)
        wgmma.wait(1 if self.accumulators else 0)
        self._release(self.kernel.right_empty, self.right)
        self._fold_rows(tile, first=False)
        if self.accumulators:
            wgmma.wait(0)
            self._release(self.kernel.value_empty, self.value)
            self._shift_accumulators(tile)
        self._pack()

    def _start_scores(self) -> None:
        stage_bytes = self.kernel.right.boxes * self.kernel.right.box_bytes
        offset = T.cast(self.right.stage, "uint64") * T.uint64(stage_bytes)
        steps = -(-self.stream.depth // 16)
        wgmma.fence()
        wgmma.multiply_shared(
            self.scores, self.columns, self.left_matrix, self.right_matrix, steps, self.dtype, offset
        )
        wgmma.commit()

    def _start_products(self) -> None:
        wgmma.fence()
        for accumulation, copies, matrix in zip(
            self.program.accumulations, self.kernel.values, self.value_matrices, strict=True
        ):
            offset = T.cast(self.value.stage, "uint64") * T.uint64(copies.boxes * copies.box_bytes)
            product = accumulation.product
            wgmma.multiply_registers(
                self.accumulators[product.component.symbol], product.value.width, self.packed[accumulation.weight],
                matrix, self.columns // 16, self.dtype, offset,
            )  # fmt: skip
        wgmma.commit()

    def _release(self, empty: Barriers, ring: Ring) -> None:
        with when(tirx.And(self.kernel.lane == 0, self.kernel.warp == 0)):
            empty.arrive(ring.stage)
        ring.advance()

    def _fold_rows(self, tile: ir.Expr, first: bool) -> None:
        self.rows.map_scores(tile)
        if self.kernel.masks:
            if self.whole is None:
                self._mask(tile)
            else:
                with when(tirx.Or(tile < self.whole.first, tile >= self.whole.end)):
                    self._mask(tile)
        self.rows.step(tile, first)

    def _mask(self, tile: ir.Expr) -> None:
        for mask in self.kernel.masks:
            self.rows.mask(tile, mask.condition, mask.keeps, mask.value)

    def _whole_range(self) -> None:
        """The tiles in which no mask drops anything of the group's rows."""
        tiles = self.kernel.tile_count()
        rows = Rows(self.stream.row, self.first_row, _GROUP_ROWS)
        self.whole: TileRange | None = TileRange(tirx.const(0, "int32"), tiles)
        for mask in self.kernel.masks:
            slacks = mask_slacks(mask)
            placed = None if slacks is None else tuple(self.kernel.placed(s, self.work.batch) for s in slacks)
            found = None if placed is None else whole_tiles(placed, self.stream.position, rows, self.columns, tiles)
            self.whole = None if found is None or self.whole is None else self.whole.within(found)
        if self.whole is not None and self.kernel.masks:
            self.whole = TileRange(bind("whole_first", self.whole.first), bind("whole_end", self.whole.end))

    def _shift_accumulators(self, tile: ir.Expr) -> None:
        for accumulation in self.program.accumulations:
            symbol = accumulation.product.component.symbol
            if accumulation.shift == symbol:
                continue
            with T.unroll(accumulation.product.value.width // 8) as j:
                for r in ROWS:
                    for e in NEIGHBOURS:
                        put(self.accumulators[symbol], j * 4 + 2 * r + e,
                            self._shifted(accumulation.shift, r, j * 4 + 2 * r + e, tile))  # fmt: skip

    def _shifted(self, shift: sp.Expr, row: int, index: ir.Expr, tile: ir.Expr) -> ir.Expr:
        return self.rows.write_accumulator(shift, row, tile, {s: a[index] for s, a in self.accumulators.items()})

    def _pack(self) -> None:
        """Weights to the dtype of V, two in a register, in the order in which products read them."""
        kind = wgmma.PTX_DTYPE[self.dtype]
        for symbol, packed in self.packed.items():
            with T.unroll(self.columns // 4) as k:
                low, high = self.rows.weight(symbol, 2 * k), self.rows.weight(symbol, 2 * k + 1)
                ptx(f"cvt.rn.{kind}x2.f32", packed[k], high, low)
