"""A fix-up of pieces of any blocks, in global memory: each of an item's blocks merges an equal share of its units.

A block leaves the states of its pieces as it comes to their ends, and merges after the last of them. All blocks fold
about as long; so none waits for long, and what one has left is in the L2 cache.

What concerns other blocks is done by one thread: by the first of the consumers; or, where a warp of the producer's
group has nothing else to do, by that, *apart*, so that consumers wait for barriers in shared memory alone:

    claim       the set of states of the launch, while the first tiles are under way
    arrive      at an item, once consumers have left the block's state of it
    wait        for all other pieces; tell the consumers; depart; the last makes the item's word zero
    release     the set, once consumers have merged

None of this has the consumers wait for memory, and the fences behind it wait for none of their results' stores.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.attention.pieces import SLOTS, EachWork, Piece, PieceWork
from tvm_cascade.tile.emit import bind, named, put, registers, when
from tvm_cascade.tile.fragment import QUAD
from tvm_cascade.tile.hopper.barrier import Barriers
from tvm_cascade.tile.merge.grid import ALL, SHARE, PieceStates
from tvm_cascade.tile.merge.lanes import WARP, in_no_lane
from tvm_cascade.tile.merge.places import FOUR
from tvm_cascade.tile.skeletons.stream.epilogue import Columns, Folded
from tvm_cascade.tile.skeletons.stream.pieces.fixup import HELD, FixUp, Unit
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.work import WARP_GROUP, Threads

_UNKNOWN = -1
"""The number of the launch's set before the leader has obtained it."""


class GridFixUp(FixUp):
    """Emits it.

    Parameters
    ----------
    groups : warp groups of a block that merge together, each of which has rows of its own.
    apart : a warp of the producer's group does what concerns other blocks.
    parts, part : groups that merge by themselves, and which of them it is.
    most_registers : of a thread, which hold elements of states while it merges.

    Attributes
    ----------
    meets : some item has several pieces.
    """

    def __init__(
        self, tiling: Tiling, name: str, pieces: int | None, groups: int, apart: bool = False, parts: int = 1,
        part: ir.Expr | int = 0, own_columns: Columns | None = None, most_registers: int = HELD,
    ) -> None:  # fmt: skip
        self.meets, self.part, self.parts, self.most_registers = pieces != 1, part, parts, most_registers
        super().__init__(tiling, pieces, own_columns)
        self.apart, blocks, self.count = apart and self.meets, tiling.config.blocks, groups * WARP_GROUP
        self.states = PieceStates(name, SLOTS * blocks, blocks, self.most_rows, self.form, parts, part)
        self.sharing = self._lanes_of_a_unit(pieces or 1)
        self.at_a_time = self._spans_of_a_unit(pieces or 1)

    def _lanes_of_a_unit(self, pieces: int) -> int:
        """As many as would have no unit of their own; no more than leave four neighbours that read a span together."""
        each = -(-self.spans * self.most_rows * QUAD // pieces)
        most = min(self.count // each, pieces, WARP // QUAD)
        return 1 << max(most, 1).bit_length() - 1

    def _spans_of_a_unit(self, pieces: int) -> int:
        """As many as registers hold, so that most loads are under way together, and all threads have some."""
        each = -(-self.spans * self.most_rows * QUAD // (self.count * pieces))
        most = min(each, self.most_registers // (FOUR * (self.at_once + 1)))
        return max(n for n in range(1, self.spans + 1) if self.spans % n == 0 and n <= max(most, 1))

    def allocate(self, pool: Any, threads: Threads) -> None:
        """Shared memory by which the thread that waits tells the others, and which set the launch has."""
        self.threads = threads
        self.told = named("told", pool.alloc((self.parts * SLOTS,), "int32", align=16))
        self.set = named("set_of_launch", pool.alloc((self.parts,), "int32", align=4 * self.parts))
        if self.apart:
            warps = self.count // WARP
            self.known, self.merged = Barriers(pool, 1, 1), Barriers(pool, 1, warps)
            self.left, self.met = Barriers(pool, SLOTS, warps), Barriers(pool, SLOTS, 1)

    def initialise(self) -> None:
        """Initialises the barriers between consumers and the warp that is apart; called by one thread."""
        if self.apart:
            for barriers in (self.known, self.merged, self.left, self.met):
                barriers.initialise()

    def begin(self, index: ir.Expr | int) -> None:
        """Asks for the launch's set, which is there by the time that the first state is left."""
        self.index = index
        if not self.meets or self.apart:
            return
        self.states.allocate()
        with when(self._leads):
            put(self.set, self.part, tirx.const(_UNKNOWN, "int32"))
            self.states.request()

    def leave(self, fold: Folded, work: PieceWork) -> None:
        piece = work.piece
        if not self.meets:
            T.evaluate(0)
            return
        if self.apart:
            self.known.wait(0, 0)
            self.states.find(self.set, self.part)
        else:
            self.states.tell(self._leads, self.set, self._meet, self.part)
        self.slot = bind("slot", self.threads.block * SLOTS + piece.side)
        self._leave_state(fold)
        if self.apart:
            self._tell(self.left, piece.side)
            return
        self._meet()
        with when(self._leads):
            self.states.arrive(piece.first_block)

    def settle(self, each_work: EachWork) -> None:
        """Merges the block's share of every item that it has a part of."""
        if not self.meets:
            return
        if self.apart:
            self._settle_apart(each_work)
            return
        with each_work() as work, when(in_no_lane(work.piece.is_whole)):
            piece = work.piece
            self.states.find(self.set, self.part)
            departed = registers("all_departed", 1, "int32")
            with when(self._leads):
                put(self.told, self._told_at(piece), self.states.wait(piece.first_block, piece.blocks))
                put(departed, 0, self.states.depart(piece.first_block, piece.blocks))
            self._meet()
            self._merge_share(work)
            with when(self._leads), when(departed[0] != 0):
                self.states.clear(piece.first_block)
        self._meet()
        with when(self._leads):
            with when(self.set[self.part] == _UNKNOWN):  # of a block that has left no state
                put(self.set, self.part, self.states.obtain())
            self.states.release(self.set[self.part])

    def _settle_apart(self, each_work: EachWork) -> None:
        with each_work() as work, self._where_shared(in_no_lane, work.piece):
            self.met.wait(work.piece.side, 0)
            self.states.find(self.set)
            self._merge_share(work)
        self._tell(self.merged, 0)

    def run_apart(self, each_work: EachWork) -> None:
        """What one thread of the warp that is apart does, from the block's first piece to the end of its last."""
        states, own = self.states, registers("own_set", 1, "int32")
        states.allocate()
        states.request()
        put(own, 0, states.obtain())
        put(self.set, 0, own[0])
        self.known.arrive(0)
        states.set = own[0]
        with each_work() as work, self._where_shared(tirx.Not, work.piece):
            self.left.wait(work.piece.side, 0)
            states.arrive(work.piece.first_block)
        with each_work() as work, self._where_shared(tirx.Not, work.piece):
            piece = work.piece
            put(self.told, piece.side, states.wait(piece.first_block, piece.blocks))
            self.met.arrive(piece.side)
            with when(states.depart(piece.first_block, piece.blocks) != 0):
                states.clear(piece.first_block)
        self.merged.wait(0, 0)
        states.release(states.set)

    def _where_shared(self, no: Callable[[ir.Expr], ir.Expr], piece: Piece) -> AbstractContextManager[None]:
        """Around what is done for pieces that are not the whole of their item; `no` negates."""
        return nullcontext() if self.is_of_all else when(no(piece.is_whole))

    def _tell(self, barriers: Barriers, number: ir.Expr | int) -> None:
        """Arrives at a barrier of the warp that is apart, one lane for what all of its warp have stored or loaded."""
        T.evaluate(T.cuda.warp_sync())
        with when(self.threads.lane == 0):
            barriers.arrive(number)

    def _merge_share(self, work: PieceWork) -> None:
        piece = work.piece
        told, units = bind("told_to", self.told[self._told_at(piece)]), self.units
        own = bind("own_piece", self.threads.block - piece.first_block)
        first, end = (
            bind("unit_bound", tirx.Select(told == SHARE, k * units // piece.blocks, whole))
            for k, whole in ((own, 0), (own + 1, tirx.Select(told == ALL, units, 0)))
        )
        self._merge_units(work, first, end, self._thread, self.count)

    def _told_at(self, piece: Piece) -> ir.Expr:
        return self.part * SLOTS + piece.side

    @property
    def _thread(self) -> ir.Expr:
        own = self.threads.warp * 32 + self.threads.lane
        return own if self.count == WARP_GROUP else self.index * WARP_GROUP + own

    @property
    def _leads(self) -> ir.Expr:
        return self._thread == 0

    def _meet(self) -> None:
        barrier = self.threads.named.take("fix-up" if self.parts == 1 else "fix-up of a part", self.parts)
        barrier.sync(self.count, self.part + barrier.first)

    def _put_scalars(self, row: ir.Expr, values: list[ir.Expr]) -> None:
        with when(self.threads.lane % QUAD == 0):
            for part, value in zip(self.scalars, values, strict=True):
                self.states.put(self.slot, part, row, value)

    def _put_four(self, part: int, row: ir.Expr, span: ir.Expr | int, values: list[ir.Expr]) -> None:
        self.states.put_four(self.slot, part, row, span, self.threads.lane % QUAD, values)

    def _get(self, unit: Unit, number: ir.Expr, part: int) -> ir.Expr:
        return self.states.get(unit.work.piece.slot(number), part, unit.row)

    def _get_four(self, unit: Unit, number: ir.Expr, part: int, span: ir.Expr, into: Any, first: int) -> None:
        place = T.address_of(into[first])
        self.states.get_four(unit.work.piece.slot(number), part, unit.row, span, unit.lane, place)
