"""The configuration of a stream kernel: tile sizes and pipeline stages within the device's limits."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tvm_cascade.algebra.fold import Reference
from tvm_cascade.analysis.tir import product
from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.attention.program import TileProgram
from tvm_cascade.tile.attention.shape import Stream
from tvm_cascade.tile.attention.tile_schedule import TileSchedule, schedule_tiles, share_of_lengths, visited_tiles
from tvm_cascade.tile.cost import Counts, seconds
from tvm_cascade.tile.hopper.copy import BOX_BYTES
from tvm_cascade.tile.machine.family import WIDEST, Family
from tvm_cascade.tile.machine.table import family_of
from tvm_cascade.tile.machine.wgmma import WGMMA
from tvm_cascade.tile.memory import WORD_BYTES
from tvm_cascade.tile.operand import MATRIX_DTYPES, STORED_BYTES, Operand, Unfit
from tvm_cascade.tile.work import GROUP_ROWS, WARP_GROUP, Registers

REGISTERS = 240
"""Registers of a consumer thread when two consumer warp groups and a producer share the 64 Ki of a multiprocessor."""

BUSY_SHARES = Registers(40, 232)
"""Registers of a producer's thread that keeps page numbers or ranges of tiles, and of a consumer's where there are two:
with 24 and 240 the former spills. A block has no more than what it is launched with, 168 of each thread."""

_COLUMNS = 128
"""Positions of a tile where they fit: tiles of 64 take 1.02 to 1.15 of the time, those of 96 to 112 or 160 to 176 1.02
to 1.25 (measured, of causal rows of 512 to 32768 positions)."""

_TILE_OVERHEAD = 1024
"""Elements of right operands of 16 bits whose products take as long as the fixed part of a tile (measured)."""

_HIDING = {1: 1.5, 2: 1.15, 3: 1.0}
"""Time by the number of consumers: three hide more of each other's exponentials (measured at 64 columns, but for one,
which is never chosen)."""

_ROW_TILE_OVERHEAD = {(2, True): 64, (1, True): 180, (2, False): 180, (1, False): 250}
"""Positions whose products take as long as the fixed part of a tile of rows, by how much of it can be hidden: by the
stages of the left operand, and whether stores have memory of their own (measured at 128 columns; two stages without
such memory, which are not listed, count as memory without the stages)."""

_OVERHEAD_OF_TWO = 32
"""The same of two scores, of whose products each position has about twice as many (measured)."""

_HIDING_OF_TWO = {2: 1.35, 3: 1.25}
"""Time by the number of consumers of two scores, whose maps have no products of their own group beside them (measured,
of rows of 64 to 128 elements, to 10 %)."""

_STARVED = 1.5
"""Time where short rows have fewer than four stages: copies for the next rows then wait for these (measured)."""

_OVERHEAD_REGISTERS = 32

_MASK_REGISTERS = 12
"""Of masks of two scores with products of their own each: with none for them, 88 to 192 bytes spill (seen)."""

_REFERENCE_REGISTERS = 5
"""Of two rows: what weights are times, and how large they are."""

_LOADED_REGISTERS = 16
"""Of operands that a warp loads while it multiplies those that it has loaded before."""

_NARROW = 64
"""Columns of operands up to which three consumers are tried."""


def boxed(columns: int, size: int) -> int:
    """Bytes of a row of an operand, filled up to whole swizzle boxes."""
    return -(-columns * size // BOX_BYTES) * BOX_BYTES


class Tiles:
    """What every kernel of a stream asks of its configuration, and what it is where there is no choice.

    Attributes
    ----------
    columns : positions of the cascade axis in a tile; a multiple of 16.
    consumers : warp groups that compute.
    stages : tiles of each right operand in flight.
    blocks : that are launched at most.
    left_stages : tiles of the left operand in flight.
    ping_pong : the consumers take turns with the tensor cores.
    own_staging : stores have shared memory of their own, so that the next left operand can come meanwhile.
    optimistic : tiles are folded without moving the reference, where the program allows it. Causal attention takes 0.83
        to 0.92 of the time then, rows of two tiles 1.4 times as long (measured).
    widening : warp groups that convert tiles on the way to the tensor cores: one for each feed, or for both.
    spread : blocks over which the columns of the products are spread; each computes all scores.
    kept : whole items of a block at most, whose states it keeps, where results wait for the end of a kernel beside it;
        one where none is kept.
    fetches_ahead : its kernels bring into the cache what a later kernel reads: products take longer than copies.
    family : that multiplies; no choice, but the card's.
    """

    columns: int
    consumers: int
    stages: int
    blocks: int
    left_stages, ping_pong, own_staging, optimistic, widening = 1, False, False, False, 0
    fetches_ahead = False
    spread, kept = 1, 1
    family: Family = WGMMA

    @property
    def row_groups(self) -> int:
        return self.consumers

    @property
    def rows(self) -> int:
        return self.row_groups * GROUP_ROWS

    @property
    def threads(self) -> int:
        return WARP_GROUP * (1 + self.consumers + self.widening)

    def registers(self, program: TileProgram) -> int:
        stream = program.stream
        widths, scores = sum(p.width for p in stream.products), len(stream.scores)
        weights, of_rows, of_masks = len({str(p.component.lift / p.symbol) for p in stream.products}), 0, 0
        if scores > 1:  # which hold the weights; of those relative to a reference, some again past branches
            of_rows = sum(isinstance(step, Reference) for step in stream.fold.steps)
            masked = weights > 1 and bool(program.element.masks)
            weights = int(of_rows > 0 and (program.near_zero is not None or masked))
            of_masks = _MASK_REGISTERS if masked and not weights else 0
        loaded = self.family.through_registers * _LOADED_REGISTERS
        own = scores * self.columns // 2 + weights * self.columns // 4 + of_masks
        return own + widths // 2 + _OVERHEAD_REGISTERS + loaded + of_rows * _REFERENCE_REGISTERS

    def stage_bytes(self, stream: Stream) -> int:
        """Bytes of shared memory for a tile of each right operand, as copies bring it."""
        return sum(rows * boxed(columns, operand.stored_size) for operand, rows, columns in self.right_tiles(stream))

    def read_bytes(self, stream: Stream) -> int:
        return sum(rows * columns * operand.stored_size for operand, rows, columns in self.right_tiles(stream))

    def right_tiles(self, stream: Stream) -> list[tuple[Operand, int, int]]:
        found = [(score.right, self.columns, score.depth) for score in stream.scores]
        for p in (p for p in stream.products if p.tile is None):
            found.append((p.value, p.width, self.columns) if p.is_transposed else (p.value, self.columns, p.width))
        return found

    @abstractmethod
    def shared_bytes(self, program: TileProgram) -> int:
        """Bytes of shared memory of a block."""

    @abstractmethod
    def shares(self, stream: Stream, finds: bool = False) -> Registers:
        """Registers of the roles.

        Parameters
        ----------
        finds : a warp of the producer's group finds the tiles of rows.
        """

    def fits(self, program: TileProgram, gpu: Gpu) -> bool:
        """Whether registers and shared memory suffice, and tiles are multiples of an instruction's depth."""
        stream = program.stream
        if stream.widened and not self.widening:
            return False
        if any(self.columns % MATRIX_DTYPES[p.value.dtype].step for p in stream.products):
            return False
        if any(operand.dtype not in self.family.dtypes for operand in stream.operands):
            return False
        shares = self.shares(stream, finds=program.loads_bounds)
        of_block = shares.of_block(self.consumers, self.widening)
        if self.registers(program) > shares.consumer or of_block > gpu.registers:
            return False
        return self.shared_bytes(program) <= gpu.block_shared_bytes

    def lacks(self, program: TileProgram, gpu: Gpu) -> str:
        """Why a kernel does not fit, in words; empty where it does."""
        return "" if self.fits(program, gpu) else f"{self} needs more registers or shared memory than there are"

    @abstractmethod
    def counts(self, program: TileProgram, gpu: Gpu) -> Counts:
        """What a kernel does beside what its function asks for; nothing where extents are symbolic."""

    def leaving_room(self, program: TileProgram) -> Sequence[Tiles] | None:
        """With fewer blocks, which have as many tiles of rows each; None where blocks have parts of such tiles."""
        return None

    def beside(self, program: TileProgram, processors: int, gpu: Gpu) -> Tiles | None:
        """On some multiprocessors alone, whose blocks keep the states of whole items; None where that is unfit.

        Two stream kernels share a device so: one folds tiles of many rows, the other waits for its states at the end.
        A block of each on every multiprocessor, with half the registers and stages, took 47.7 µs where this takes 38.2
        (measured, a prefix of 8192 keys and 64 sequences of 256).
        """
        return None

    def may_wait_late(self, stream: Stream) -> bool:
        """Whether all that is stored goes through a fix-up, also that of whole items."""
        return False


@dataclass(frozen=True)
class StreamConfig(Tiles):
    """Of tiles of 64 rows for each consumer; a block has tiles of rows in turn, and copies for the next meanwhile."""

    columns: int = 128
    consumers: int = 2
    stages: int = 2
    left_stages: int = 1
    ping_pong: bool = True
    blocks: int = 1
    own_staging: bool = False
    optimistic: bool = True
    family: Family = field(default=WGMMA, compare=False, repr=False)

    fetches_ahead = True

    def shared_bytes(self, program: TileProgram) -> int:
        stream = program.stream
        left = boxed(stream.depth, stream.left.size)
        lefts = sum(boxed(one.width, one.size) for one in stream.lefts)
        staged = max((boxed(p.width, STORED_BYTES) for p in stream.products), default=0)
        staging = staged if self.own_staging or staged > left else 0
        stage = self.stage_bytes(stream) + len(program.rows_along) * boxed(self.columns, WORD_BYTES)
        return self.rows * (self.left_stages * lefts + staging) + self.stages * stage + 1024

    def shares(self, stream: Stream, finds: bool = False) -> Registers:
        moved = BUSY_SHARES if self.consumers == 2 and (stream.paged or finds) else Registers(24, REGISTERS)
        if self.consumers > 2:
            moved = Registers(32, 160)
        return self.family.registers(moved, 1 + self.consumers)

    def lacks(self, program: TileProgram, gpu: Gpu) -> str:
        """Also where a bulk copy has no tile of rows."""
        if not program.stream.left.boxes_rows(self.rows):
            return f"{program.stream.left}: its rows are several variables, which {self} does not pack"
        return super().lacks(program, gpu)

    def counts(self, program: TileProgram, gpu: Gpu) -> Counts:
        """Of the busiest block, positions of a warp group's rows."""
        shared_out = tile_schedule(self, program)
        if shared_out is None:
            return Counts()
        starved = _STARVED if _is_starved(self, program.stream) else 1.0
        return Counts(
            steps=shared_out.span * share_of_lengths(program) * starved,
            products=position_flops(program.stream),
            products_rate=products_rate(program.stream),
            between={"block_seconds": 1.0},
        )

    def leaving_room(self, program: TileProgram) -> list[StreamConfig]:
        """Where each tile of rows visits as many positions, and extents are known."""
        rows = program.stream.extent(program.stream.row)
        places = product(program.stream.extent(var) for var in program.stream.batch)
        if program.uneven or not isinstance(rows, int) or not isinstance(places, int):
            return []
        items = places * -(-rows // self.rows)
        return [replace(self, blocks=n) for n in range(1, self.blocks) if items % n == 0]


def ranked_configs(program: TileProgram, gpu: Gpu) -> list[StreamConfig]:
    """The fitting configurations, from the most to the least preferred: by their times, of one score 128 columns first.

    Unfit where none does.
    """
    stream = program.stream
    check_widths(stream)
    for operand in stream.operands:
        if operand.widened is not None:
            raise Unfit(f"{operand} is {operand.stored}, which kernels of {operand.widened} convert for few rows alone")
    fitting = [c for c in _candidates(program, gpu) if c.fits(program, gpu)]
    if not fitting:
        raise Unfit("no tile of 64 positions or more fits into registers and shared memory")
    one = len(stream.scores) == 1
    unusual = {c: (one and c.columns != _COLUMNS) or _is_starved(c, stream) for c in fitting}
    return sorted(fitting, key=lambda config: (unusual[config], seconds(config.counts(program, gpu), gpu)))


def check_widths(stream: Stream) -> None:
    """Checks that a warp group holds rows of the operands' widths; Unfit where it does not."""
    widest = max((p.width for p in stream.products), default=0)
    if widest > WIDEST:
        raise Unfit(f"rows of {widest} elements; a warp group's accumulators hold {WIDEST}")
    if any(p.width % 8 for p in stream.products) or any(score.depth % 8 for score in stream.scores):
        raise Unfit("the operands' rows are no multiple of 8 elements")


def tile_schedule(config: StreamConfig, program: TileProgram) -> TileSchedule | None:
    """The static schedule of the tiles of rows, costs in positions × warp groups; None where extents are symbolic."""
    stream = program.stream
    own = visited_tiles(program, GROUP_ROWS, config.columns)
    places = product(stream.extent(var) for var in stream.batch)
    if own is None or not isinstance(places, int):
        return None
    visited = np.pad(own, (0, -len(own) % config.row_groups), mode="edge").reshape(-1, config.row_groups).mean(axis=1)
    staged = min(config.left_stages, 2), config.own_staging
    overhead = _ROW_TILE_OVERHEAD[staged] if len(stream.scores) == 1 else _OVERHEAD_OF_TWO
    costs = visited * _tile_cost(config, stream) + config.consumers * overhead
    return schedule_tiles(costs, places, config.blocks, program.uneven)


def tile_flops(config: Tiles, stream: Stream) -> float:
    """Of the products of a block's tile, with as many as take as long as what is done beside them."""
    return _tile_cost(config, stream) * position_flops(stream)


def position_flops(stream: Stream) -> float:
    return 2.0 * GROUP_ROWS * (stream.summed + sum(p.width for p in stream.products))


def products_rate(stream: Stream) -> str:
    """The name of the rate of products of several consumers: of one score of narrow rows, exponentials take as long."""
    return "tensor_narrow_rows" if _is_narrow(stream) and len(stream.scores) == 1 else "tensor_long_rows"


def _candidates(program: TileProgram, gpu: Gpu) -> list[StreamConfig]:
    """Configurations from the most to the least preferred of those that waste alike; of several scores narrow ones too.

    Two consumers of narrow tiles take turns with the tensor cores on their own (measured: 3 % less than by barriers).
    """
    stream, family = program.stream, family_of(gpu)
    length = stream.extent(stream.position)
    narrow = _is_narrow(stream)
    found = []
    for columns in (_COLUMNS, 112, 96, 80, 64, *((48, 32) if len(stream.scores) > 1 else ())):
        few = isinstance(length, int) and length <= 2 * columns
        for consumers in (3, 2) if (narrow or not family.deferred) and not few else (2,):
            turns = family.deferred and not few and (consumers == 3 or not narrow)
            for stages, left_stages, own in ((4, 2, True), (3, 2, True), (2, 2, True), (2, 1, True), (2, 1, False)):
                sizes = columns, consumers, stages, left_stages
                found.append(
                    StreamConfig(*sizes, turns, gpu.processors, own, optimistic=not few, family=family)
                )  # fmt: skip
    return found


def _is_narrow(stream: Stream) -> bool:
    return max([score.depth for score in stream.scores] + [p.width for p in stream.products]) <= _NARROW


def _tile_cost(config: Tiles, stream: Stream) -> float:
    """Positions whose products take as long as a block's tile.

    Of two scores, one of few columns takes as long as its left rows are read from shared memory, at half the rate of
    products; maps have no products of their own group beside them, so that the fixed part is twice as long, with each
    product once more; and two products leave no registers for the addresses of left rows in one of two stages.
    """
    two = len(stream.scores) > 1
    parts = 2 * len(stream.products) + (len(stream.products) > 1) * (config.left_stages - 1) if two else 1
    scores = sum(score.depth * score.right.size for score in stream.scores)
    products = sum(p.width * p.value.size for p in stream.products)
    least = max(config.columns, GROUP_ROWS // 2 + config.columns // 2) if two else config.columns
    mean = (products * config.columns + scores * least) / (products + scores)
    overhead = _TILE_OVERHEAD * parts / ((products + scores) / 2)
    return config.consumers * (mean + overhead) * (_HIDING_OF_TWO if two else _HIDING)[config.consumers]


def _is_starved(config: StreamConfig, stream: Stream) -> bool:
    """Whether rows are so short, and stages so few, that copies for the next rows wait for these."""
    length = stream.extent(stream.position)
    return isinstance(length, int) and length <= 2 * config.columns and config.stages < 4
