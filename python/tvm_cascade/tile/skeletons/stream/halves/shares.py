"""The fix-up of a cluster's blocks, which have a piece of the same rows each: merged from registers, share by share.

columns of a group        0 … 127 | 128 … 255            a share for each block of the cluster
block 0   keeps                     sends to block 1
block 1   sends to block 0          keeps

A thread has the same rows and columns in every block. So what it sends lies as its registers do, and each merges what
it keeps with what the same threads of the others have sent, in the order of the axis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy as sp
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.algebra.cascade import LENGTH
from tvm_cascade.steps.program import program_of
from tvm_cascade.tile.attention.pieces import EachWork
from tvm_cascade.tile.attention.shape import Product
from tvm_cascade.tile.emit import bind, branches, named, put, registers, when
from tvm_cascade.tile.fragment import DTYPE, NEIGHBOURS, ROWS
from tvm_cascade.tile.hopper.barrier import Barriers, cluster_arrive, cluster_wait, fence_barriers
from tvm_cascade.tile.launch.dependent import wait_for_others
from tvm_cascade.tile.merge.cluster import send_four_to_rank
from tvm_cascade.tile.merge.combine import Alone, merge
from tvm_cascade.tile.merge.lanes import WARP, in_no_lane
from tvm_cascade.tile.merge.places import BYTES, FOUR, as_float, take_four
from tvm_cascade.tile.skeletons.stream.epilogue import Columns, Epilogue, Staged, row_states
from tvm_cascade.tile.skeletons.stream.halves.columns import GROUPS, half_of, sent_registers, sent_scalars
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.state import COUNTER, Part, State
from tvm_cascade.tile.work import WARP_GROUP, Threads, Work


@dataclass(frozen=True)
class ShareColumns(Columns):
    """A block's share of a group's half of the columns."""

    group: ir.Expr
    rank: ir.Expr
    blocks: int

    def of(self, product: Product) -> range:
        return range(len(half_of(product, 0)) // self.blocks)

    def first(self, product: Product, work: Work) -> ir.Expr:
        return self.group * len(half_of(product, 0)) + self.rank * len(self.of(product))


class Handed(Staged):
    """The folded rows of both groups, in registers of one name: of what a block keeps.

    Parameters
    ----------
    blocks : of the cluster, which have a share of the group's columns each.
    """

    def __init__(self, tiling: Tiling, threads: Threads, blocks: int, left_place: Callable[..., ir.Expr]) -> None:
        self.tiling, self.threads, self.blocks, self._left_place = tiling, threads, blocks, left_place
        self.index, self.rank = bind("group_of_two", threads.group - 1), bind("own_rank", threads.block % blocks)
        self.own_columns = ShareColumns(self.index, self.rank, blocks)
        self.own_rows = T.int32(0)  # both groups have all rows of the tile
        program, stream = tiling.program, tiling.stream
        self.halves = {p.component.symbol: len(half_of(p, 0)) for p in stream.products}
        self.all_accumulators = {s: registers(f"{s}", width // 2) for s, width in self.halves.items()}
        symbols = [*program.row_inputs, *(c.symbol for c in stream.row_components)]
        symbols += [move.moved for move in program.body.moves]
        self.values = {s: registers(str(s), len(ROWS)) for s in dict.fromkeys(symbols)}

    def start(self, work: Work) -> None:
        """Begins with what is done for both groups at once: registers of the block's own share."""
        self.place_rows(work, (), self.values, ROWS)
        self.rows.end = self.tiling.end_position(work)
        self.accumulators = {s: registers(f"{s}_kept", width // 2 // self.blocks) for s, width in self.halves.items()}

    def left_place(self, box: int, row: ir.Expr, column: ir.Expr | int) -> ir.Expr:
        """An address in the left operand's stage, whose boxes the groups have in turn."""
        return self._left_place(self.index + box * GROUPS, row, column)

    def left_is_read(self) -> None:
        """Nothing: no other rows follow."""


class ClusterShares:
    """Emits the fix-up, with the same code for both groups.

    Attributes
    ----------
    words_of_a_thread : registers that it sends to another block.
    """

    handed: Handed

    def __init__(self, tiling: Tiling, blocks: int, epilogue: Epilogue) -> None:
        self.epilogue = epilogue
        self.tiling, self.stream, self.program, self.blocks = tiling, tiling.stream, tiling.program, blocks
        self.words = {p.component.symbol: len(half_of(p, 0)) // 2 // blocks for p in self.stream.products}
        self.scalars, self.words_of_a_thread = sent_scalars(self.stream), sent_registers(self.stream, blocks)

    def allocate(self, pool: Any, threads: Threads) -> None:
        shape = (GROUPS, self.blocks - 1, self.words_of_a_thread // FOUR, WARP_GROUP, FOUR)
        self.sent = named("sent", pool.alloc(shape, DTYPE, align=16))

    def add_barrier(self, pool: Any) -> None:
        self.arrived = Barriers(pool, GROUPS, 1)

    def initialise(self) -> None:
        self.arrived.initialise()
        fence_barriers()

    def settle(self, each_work: EachWork) -> None:
        with each_work() as work:
            self._settle(self.handed, work)
        self.epilogue.drain(self.handed.threads)

    def _settle(self, handed: Handed, work: Work) -> None:
        """Sends the others their shares of the state, merges the block's own, and stores its results."""
        threads = handed.threads
        handed.start(work)
        self.group, self.rank = handed.index, handed.rank
        self.thread = bind("own_thread", threads.warp * WARP + threads.lane)
        counter = Part(registers("folded", 1, COUNTER))
        counter.put(handed.rows.end - work.tiles.first * self.tiling.config.columns)
        with when(threads.leads):
            self.arrived.announce(self.group, (self.blocks - 1) * self.words_of_a_thread * WARP_GROUP * BYTES)
        cluster_arrive(relaxed=True)  # all groups of a block have read the tiles where it gets what is sent
        cluster_wait()
        self._send(handed, counter)
        self._keep(handed)
        self.arrived.wait(self.group, 0)
        self._merge(handed, counter)
        self.epilogue.emit(handed)

    def _send(self, folded: Handed, counter: Part) -> None:
        scalars = [*(folded.rows.values[s][r] for s in self.scalars for r in ROWS), as_float(counter[0])]
        scalars += [T.float32(0)] * (-len(scalars) % FOUR)
        for rank in range(self.blocks):
            with when(in_no_lane(self.rank == rank)):
                number = self.rank - tirx.Select(self.rank > rank, 1, 0)
                first = 0
                for symbol, words in self.words.items():
                    with T.unroll(words // FOUR) as k:
                        four = [folded.all_accumulators[symbol][rank * words + k * FOUR + e] for e in range(FOUR)]
                        self._send_four(rank, number, first + k, four)
                    first += words // FOUR
                for k in range(0, len(scalars), FOUR):
                    self._send_four(rank, number, first + k // FOUR, scalars[k : k + FOUR])

    def _send_four(self, rank: int, number: ir.Expr, k: ir.Expr | int, four: list[ir.Expr]) -> None:
        place = self.sent.ptr_to([self.group, number, k, self.thread, 0])
        send_four_to_rank(place, self.arrived.pointer(self.group), T.int32(rank), *four)

    def _keep(self, handed: Handed) -> None:
        for symbol, words in self.words.items():
            for rank in range(self.blocks):
                with when(in_no_lane(self.rank != rank)), T.unroll(words) as k:
                    put(handed.accumulators[symbol], k, handed.all_accumulators[symbol][rank * words + k])

    def _merge(self, share: Handed, counter: Part) -> None:
        """All pieces of both rows, one row after the other."""
        if self.tiling.late:
            wait_for_others()
        for r, own in enumerate(row_states(self.stream, share, counter)):
            states = [self._state(own, r, number) for number in range(self.blocks)]
            inputs: dict[sp.Symbol, ir.Expr] = {LENGTH: tirx.Cast(DTYPE, self.tiling.length)}
            inputs |= {symbol: share.rows.row_symbols(r)[symbol] for symbol in self.program.row_inputs}
            merge(program_of(self.stream.fold), states[0], Alone(), inputs, others=states[1:])
            for part, merged in zip(own.parts, states[0].parts, strict=True):
                if part is not counter:
                    with part.each() as number:
                        part.put(merged[number], number)

    def _state(self, own: State, row: int, number: int) -> State:
        fold = self.stream.fold
        widths = {symbol: part.width for symbol, part in own.fragments.items()}
        dtypes = {component.symbol: DTYPE for component in fold.components}
        state = State.in_registers(fold, dtypes, DTYPE, f"_piece_{number}", widths)
        with branches(in_no_lane(self.rank == number)) as (sent, kept):
            with sent:
                self._take(state, row, T.int32(number) - tirx.Select(self.rank < number, 1, 0))
            with kept:
                state.copy(own)
                for symbol, part in own.fragments.items():
                    with part.each() as k:
                        state.fragments[symbol].put(part[k], k)
        return state

    def _take(self, state: State, row: int, number: ir.Expr) -> None:
        four, first = registers("four", FOUR), 0
        for symbol, words in self.words.items():
            part = state.fragments[symbol]
            with T.unroll(words // FOUR) as k:  # two neighbours of the upper row, then of the lower one
                take_four(self.sent.ptr_to([self.group, number, first + k, self.thread, 0]), T.address_of(four[0]))
                for e in NEIGHBOURS:
                    part.put(four[2 * row + e], k * 2 + e)
            first += words // FOUR
        count = len(ROWS) * len(self.scalars)
        alike = registers("alike", -(-(count + 1) // FOUR) * FOUR)
        for k in range(0, count + 1, FOUR):
            take_four(self.sent.ptr_to([self.group, number, first + k // FOUR, self.thread, 0]), T.address_of(alike[k]))
        values = {symbol: alike[len(ROWS) * k + row] for k, symbol in enumerate(self.scalars)}
        for symbol, part in state.scalars.items():
            part.put(values[symbol])
        for reference in self.stream.fold.references:
            state.references[reference.symbol].put(values[reference.moved])
        state.counter.put(tirx.reinterpret(COUNTER, alike[count]))
