"""The meeting of a cluster's blocks, which have a piece of the same rows each: merged from registers, share by share.

columns of a group        0 … 127 | 128 … 255            a share for each block of the cluster
block 0   keeps                     sends to block 1
block 1   sends to block 0          keeps

A thread has the same rows and columns in every block. So what it sends lies as its registers do, and each merges what
it keeps with what the same threads of the others have sent, in the order of the axis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import sympy as sp
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.algebra.cascade import LENGTH
from tvm_cascade.steps.program import program_of
from tvm_cascade.tile.dependent import wait_for_others
from tvm_cascade.tile.emit import bind, branches, kernel_extent, named, put, registers, when
from tvm_cascade.tile.fragment import DTYPE, NEIGHBOURS, ROWS
from tvm_cascade.tile.hopper.barrier import Barriers, cluster_arrive, cluster_wait, fence_barriers
from tvm_cascade.tile.merge.cluster import send_four_to_rank, take_four
from tvm_cascade.tile.merge.combine import Alone, merge
from tvm_cascade.tile.merge.lanes import WARP, in_no_lane
from tvm_cascade.tile.merge.pieces import BYTES, FOUR, as_float
from tvm_cascade.tile.rows import RowFold
from tvm_cascade.tile.shape import Product
from tvm_cascade.tile.skeletons.stream.epilogue import Epilogue, Staged
from tvm_cascade.tile.skeletons.stream.halves.columns import half_of, sent_registers, sent_scalars
from tvm_cascade.tile.skeletons.stream.halves.meeting import PieceWork
from tvm_cascade.tile.skeletons.stream.pieces.meeting import Group
from tvm_cascade.tile.skeletons.stream.states import row_states
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.state import COUNTER, Part, State
from tvm_cascade.tile.work import WARP_GROUP, Threads


@dataclass(frozen=True)
class Share:
    """What a block keeps of a group's folded rows; implements `epilogue.Staged`.

    Attributes
    ----------
    folded : the rows, with all columns of the group.
    first : of its columns, counted from the first of the group's.
    blocks : that have a share each.
    accumulators : of its columns.
    """

    folded: Staged
    first: Mapping[sp.Symbol, ir.Expr]
    blocks: int
    accumulators: Mapping[sp.Symbol, Any]

    def columns_of(self, product: Product) -> range:
        """As many as a share has, from the first of the group's on."""
        columns = self.folded.columns_of(product)
        return range(columns.start, columns.start + len(columns) // self.blocks)

    def block_columns(self, product: Product) -> ir.Expr | int:
        """How far to the right of those its own are."""
        return self.folded.block_columns(product) + self.first[product.component.symbol]

    @property
    def threads(self) -> Threads:
        """See `Folded`."""
        return self.folded.threads

    @property
    def work(self) -> Any:
        """See `Folded`."""
        return self.folded.work

    @property
    def rows(self) -> RowFold:
        """See `Folded`."""
        return self.folded.rows

    @property
    def index(self) -> ir.Expr:
        """See `Staged`."""
        return self.folded.index

    @property
    def own_rows(self) -> ir.Expr:
        """See `Staged`."""
        return self.folded.own_rows

    @property
    def first_row(self) -> ir.Expr:
        """See `Staged`."""
        return self.folded.first_row

    def left_place(self, box: int, row: ir.Expr, column: ir.Expr | int) -> ir.Expr:
        """See `Staged`."""
        return self.folded.left_place(box, row, column)

    def left_is_read(self) -> None:
        """See `Staged`."""
        self.folded.left_is_read()


class ClusterShares:
    """Emits the meeting for a group's half of the columns.

    Parameters
    ----------
    blocks : of the cluster.
    group : whose half it is.
    """

    spread = 1

    def __init__(self, tiling: Tiling, blocks: int, group: int) -> None:
        self.tiling, self.stream, self.program = tiling, tiling.stream, tiling.program
        self.blocks, self.group = blocks, group
        halves = {p.component.symbol: half_of(p, group) for p in self.stream.products}
        self.words = {symbol: len(columns) // 2 // blocks for symbol, columns in halves.items()}
        self.scalars = sent_scalars(self.stream)

    def allocate(self, pool: Any) -> None:
        """Shared memory for what the other blocks send."""
        shape = (self.blocks - 1, self.words_of_a_thread // FOUR, WARP_GROUP, FOUR)
        self.sent = named("sent", pool.alloc(shape, DTYPE, align=16))

    def add_barrier(self, pool: Any) -> None:
        """Adds the barrier at which it arrives."""
        self.arrived = Barriers(pool, 1, 1)

    def initialise(self) -> None:
        """Initialises that; called by one thread."""
        self.arrived.initialise()
        fence_barriers()

    @property
    def words_of_a_thread(self) -> int:
        """Registers that a thread sends to another block."""
        return sent_registers(self.stream, self.group, self.blocks)

    def settle_all(self, folded: Staged, each_work: Callable[[], AbstractContextManager[PieceWork]]) -> None:
        """Nothing: blocks have one piece, which they hand over."""

    def begin(self, fold: Group) -> None:
        """Nothing: shared memory is the block's own."""

    def hand_over(self, folded: Staged, work: PieceWork, epilogue: Epilogue) -> None:
        """Sends the others their shares of the state, merges the block's own, and stores its results."""
        threads = folded.threads
        self.rank = bind("own_rank", threads.block % self.blocks)
        self.thread = bind("own_thread", threads.warp * WARP + threads.lane)
        counter = Part(registers("folded", 1, COUNTER))
        counter.put(folded.rows.end - work.tiles.first * self.tiling.config.columns)
        with when(threads.leads):
            self.arrived.announce(0, (self.blocks - 1) * self.words_of_a_thread * WARP_GROUP * BYTES)
        cluster_arrive(relaxed=True)  # all groups of a block have read the tiles where it gets what is sent
        cluster_wait()
        self._send(folded, counter)
        share = self._share(folded)
        self.arrived.wait(0, 0)
        self._merge(share, counter)
        epilogue.emit(share)

    def _send(self, folded: Staged, counter: Part) -> None:
        scalars = self._scalars(folded, counter)
        scalars += [T.float32(0)] * (-len(scalars) % FOUR)
        for rank in range(self.blocks):
            with when(in_no_lane(self.rank == rank)):
                number = self.rank - tirx.Select(self.rank > rank, 1, 0)
                first = 0
                for symbol, words in self.words.items():
                    with T.unroll(words // FOUR) as k:
                        four = [folded.accumulators[symbol][rank * words + k * FOUR + e] for e in range(FOUR)]
                        self._send_four(rank, number, first + k, four)
                    first += words // FOUR
                for k in range(0, len(scalars), FOUR):
                    self._send_four(rank, number, first + k // FOUR, scalars[k : k + FOUR])

    def _send_four(self, rank: int, number: ir.Expr, k: ir.Expr | int, four: list[ir.Expr]) -> None:
        place = self.sent.ptr_to([number, k, self.thread, 0])
        send_four_to_rank(place, self.arrived.pointer(0), T.int32(rank), *four)

    def _scalars(self, folded: Staged, counter: Part) -> list[ir.Expr]:
        """What has a value per row, of both rows, and the count."""
        return [*(folded.rows.values[s][r] for s in self.scalars for r in ROWS), as_float(counter[0])]

    def _share(self, folded: Staged) -> Share:
        """The block's own: its columns' registers."""
        kept = {symbol: registers(f"{symbol}_kept", words) for symbol, words in self.words.items()}
        for symbol, words in self.words.items():
            for rank in range(self.blocks):
                with when(in_no_lane(self.rank != rank)), T.unroll(words) as k:
                    put(kept[symbol], k, folded.accumulators[symbol][rank * words + k])
        first = {symbol: self.rank * (words * 2) for symbol, words in self.words.items()}
        return Share(folded, first, self.blocks, kept)

    def _merge(self, share: Share, counter: Part) -> None:
        """All pieces of both rows, one row after the other."""
        if self.program.late:
            wait_for_others()
        for r, own in enumerate(row_states(self.stream, share, counter)):
            states = [self._state(own, r, number) for number in range(self.blocks)]
            inputs: dict[sp.Symbol, ir.Expr] = {
                LENGTH: tirx.Cast(DTYPE, kernel_extent(self.stream.extent(self.stream.position)))
            }
            inputs |= {symbol: share.rows.row_symbols(r)[symbol] for symbol in self.program.row_inputs}
            merge(program_of(self.stream.fold), states[0], Alone(), inputs, others=states[1:])
            for part, merged in zip(own.parts, states[0].parts, strict=True):
                if part is not counter:
                    with part.each() as number:
                        part.put(merged[number], number)

    def _state(self, own: State, row: int, number: int) -> State:
        """The state of a row in one of the pieces, in new registers."""
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
        """What another block has sent of a row."""
        four, first = registers("four", FOUR), 0
        for symbol, words in self.words.items():
            part = state.fragments[symbol]
            with T.unroll(words // FOUR) as k:  # two neighbours of the upper row, then of the lower one
                take_four(self.sent.ptr_to([number, first + k, self.thread, 0]), T.address_of(four[0]))
                for e in NEIGHBOURS:
                    part.put(four[2 * row + e], k * 2 + e)
            first += words // FOUR
        count = len(ROWS) * len(self.scalars)
        alike = registers("alike", -(-(count + 1) // FOUR) * FOUR)
        for k in range(0, count + 1, FOUR):
            take_four(self.sent.ptr_to([number, first + k // FOUR, self.thread, 0]), T.address_of(alike[k]))
        values = {symbol: alike[len(ROWS) * k + row] for k, symbol in enumerate(self.scalars)}
        for symbol, part in state.scalars.items():
            part.put(values[symbol])
        for reference in self.stream.fold.references:
            state.references[reference.symbol].put(values[reference.moved])
        state.counter.put(tirx.reinterpret(COUNTER, alike[count]))
