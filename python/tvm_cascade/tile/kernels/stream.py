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

from typing import Any

import sympy as sp
from tvm import ir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.domain import substitute
from tvm_cascade.tile.config import StreamConfig
from tvm_cascade.tile.element import Mask
from tvm_cascade.tile.fragment import NEIGHBOURS, ROWS
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
_PRODUCER_REGISTERS, _CONSUMER_REGISTERS = 24, 240
_TURN, _STORED = 2, 4
"""The first named barriers of the consumers' turns, and of their stores."""


class StreamKernel:
    """Emits the kernel of a tile program."""

    def __init__(
        self, program: TileProgram, config: StreamConfig, tail: Mask | None, skip: tuple[ir.Expr, ...]
    ) -> None:
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
        """Blocks run over tiles of rows fastest, so that neighbours share the right operands in the L2 cache."""
        stream, rows = self.stream, self.config.rows
        self.row_tiles = (stream.extent(stream.row) + (rows - 1)) // rows
        blocks = tirx.const(1, "int32") * self.row_tiles
        for var in stream.batch:
            blocks = blocks * stream.extent(var)
        block = named("block", T.cta_id([blocks]))
        groups = self.config.consumers + 1
        self.group = named("group", T.warpgroup_id([groups]))
        self.warp = named("warp", T.warp_id_in_wg([4]))
        self.lane = named("lane", T.lane_id([32]))
        self.thread = named("thread", T.thread_id([_WARP_GROUP * groups]))
        row_tile, rest = block % self.row_tiles, block // self.row_tiles
        if self.skip:  # the tiles of rows with most to do come first
            row_tile = self.row_tiles - 1 - row_tile
        self.first_row = bind("first_row", row_tile * rows)
        self.batch: dict[tirx.Var, ir.Expr] = {}
        for var in reversed(stream.batch):
            self.batch[var] = bind(var.name, rest % stream.extent(var))
            rest = rest // stream.extent(var)

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
        self.left_full = Barriers(pool, 1, 1)
        self.right_full, self.value_full = Barriers(pool, config.stages, 1), Barriers(pool, config.stages, 1)
        consumers = config.consumers
        self.right_empty = Barriers(pool, config.stages, consumers)
        self.value_empty = Barriers(pool, config.stages, consumers)
        pool.commit()
        with when(self.thread == 0):
            for barriers in (self.left_full, self.right_full, self.value_full, self.right_empty, self.value_empty):
                barriers.initialise()
        ptx("fence.proxy.async.shared::cta")
        T.evaluate(T.cuda.cta_sync())

    def _roles(self) -> None:
        tiles = self._tile_count()
        rows = Rows(self.stream.row, self.first_row, self.config.rows)
        visited = live_tiles(self._placed(self.skip), self.stream.position, rows, self.config.columns, tiles)
        first = bind("first_tile", tirx.max(tirx.min(visited.first, tiles - 1), 0))
        end = bind("end_tile", tirx.max(tirx.min(visited.end, tiles), first + 1))
        self.visited = TileRange(first, end)
        with branches(self.group == 0) as (producer, consumer):
            with producer:
                ptx("setmaxnreg.dec.sync.aligned.u32", _PRODUCER_REGISTERS)
                with when(self.warp == 0), when(T.cuda.elect_sync()):
                    self._produce()
            with consumer:
                ptx("setmaxnreg.inc.sync.aligned.u32", _CONSUMER_REGISTERS)
                _Consumer(self).run()

    def _tile_count(self) -> ir.Expr:
        length = self.stream.extent(self.stream.position)
        count = (length + (self.config.columns - 1)) // self.config.columns
        return tirx.const(count, "int32") if isinstance(count, int) else T.cast(count, "int32")

    def _placed(self, expressions: tuple[ir.Expr, ...]) -> tuple[ir.Expr, ...]:
        """Expressions over the frame at the block's own place in the batch."""
        from tvm_cascade.tile.fragment import rebound

        return tuple(rebound(substitute(e, dict(self.batch)), self.buffers) for e in expressions)

    def fixed(self, operand: Operand) -> dict[int, ir.Expr]:
        """The places of the dimensions that a tile of an operand does not run along."""
        return {d: substitute(operand.indices[d], dict(self.batch)) for d in operand.fixed}

    def _produce(self) -> None:
        for copies in (self.left, self.right, *self.values):
            copies.prefetch()
        self.left_full.announce(0, self.left.boxes * self.left.box_bytes)
        left = self.fixed(self.stream.left)
        self.left.load(lambda box: self.left_tile.ptr_to([box, 0, 0]), self.first_row, left, self.left_full.pointer(0))
        ring = Ring("produced", self.config.stages, 1)
        with T.serial(self.visited.end - self.visited.first) as step:
            row = (self.visited.end - 1 - step) * self.config.columns
            self.right_empty.wait(ring.stage, ring.parity)
            self.right_full.announce(ring.stage, self.right.boxes * self.right.box_bytes)
            target = self.right_tiles
            self.right.load(
                lambda box: target.ptr_to([ring.stage, box, 0, 0]), row, self.fixed(self.stream.right),
                self.right_full.pointer(ring.stage),
            )  # fmt: skip
            if self.values:
                self.value_empty.wait(ring.stage, ring.parity)
                self.value_full.announce(ring.stage, sum(m.boxes * m.box_bytes for m in self.values))
                for copies, tiles in zip(self.values, self.value_tiles, strict=True):
                    copies.load(
                        lambda box, tiles=tiles: tiles.ptr_to([ring.stage, box, 0, 0]), row,
                        self.fixed(copies.operand), self.value_full.pointer(ring.stage),
                    )  # fmt: skip
            ring.advance()


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
        self.first_row = bind("first_own_row", kernel.first_row + self.index * _GROUP_ROWS)
        upper = bind("row", self.first_row + kernel.warp * 16 + kernel.lane // 4)
        place = Place(kernel.batch, (upper, upper + 8), kernel.lane % 4 * 2, kernel.buffers)
        self.rows = RowFold(self.program, place, self.scores, self.columns)
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
        """From the first score to the last store."""
        for array in self.accumulators.values():
            with T.unroll(int(array.ty.shape[0])) as k:
                put(array, k, T.float32(0))
        self.rows.start()
        self._whole_range()
        if self.config.ping_pong:
            with when(self.index == 0):
                ptx("bar.arrive", T.uint32(_TURN), T.uint32(_WARP_GROUP * self.config.consumers))
        visited = self.kernel.visited
        self.kernel.left_full.wait(0, 0)
        self.kernel.right_full.wait(self.right.stage, self.right.parity)
        self._start_scores()
        wgmma.wait(0)
        self._release(self.kernel.right_empty, self.right)
        self._fold(visited.end - 1, first=True)
        with T.serial(visited.end - visited.first - 1) as step:
            self._tile(bind("tile", visited.end - 2 - step))
        if self.accumulators:
            self.kernel.value_full.wait(self.value.stage, self.value.parity)
            self._start_products()
        self.rows.across_lanes()
        wgmma.wait(0)
        self.kernel.epilogue.emit(self)

    def _tile(self, tile: ir.Expr) -> None:
        """Scores of this tile and products of the one before, overlapped."""
        threads = _WARP_GROUP * self.config.consumers
        self.kernel.right_full.wait(self.right.stage, self.right.parity)
        if self.config.ping_pong:
            ptx("bar.sync", T.cast(_TURN + self.index, "uint32"), T.uint32(threads))
        self._start_scores()
        if self.accumulators:
            self.kernel.value_full.wait(self.value.stage, self.value.parity)
            self._start_products()
        if self.config.ping_pong:
            ptx("bar.arrive", T.cast(_TURN + 1 - self.index, "uint32"), T.uint32(threads))
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
        wgmma.multiply_shared(self.scores, self.columns, self.left_matrix, self.right_matrix, steps, self.dtype, offset)
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

    def _fold(self, tile: ir.Expr, first: bool) -> None:
        self._fold_rows(tile, first)
        self._pack()

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
        tiles = self.kernel._tile_count()
        rows = Rows(self.stream.row, self.first_row, _GROUP_ROWS)
        self.whole: TileRange | None = TileRange(tirx.const(0, "int32"), tiles)
        for mask in self.kernel.masks:
            slacks = mask_slacks(mask)
            placed = None if slacks is None else self.kernel._placed(slacks)
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
