"""The meeting of a row tile's pieces, for each half of the columns by itself.

A group leaves the state of its half in global memory. The last of an item's groups of that half to arrive merges all in
the order of the axis, register by register, and stores; which is as much for each of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.algebra.cascade import LENGTH
from tvm_cascade.steps.program import program_of
from tvm_cascade.tile.emit import bind, branches, computed_here, kernel_extent, ptx, put, registers, when
from tvm_cascade.tile.fragment import DTYPE, QUAD, ROWS
from tvm_cascade.tile.merge.combine import Alone, merge
from tvm_cascade.tile.merge.fragments import FragmentStates, batch_of
from tvm_cascade.tile.merge.lanes import in_no_lane
from tvm_cascade.tile.pieces import SLOTS, Piece
from tvm_cascade.tile.skeletons.stream.epilogue import Epilogue, Staged
from tvm_cascade.tile.skeletons.stream.halves.columns import half_of
from tvm_cascade.tile.skeletons.stream.halves.config import HalvesConfig
from tvm_cascade.tile.skeletons.stream.states import row_states
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.state import COUNTER, Part, PartForm, State
from tvm_cascade.tile.work import WARP_GROUP, Work

_MET = 6
"""The first named barrier of the groups at a meeting."""


@dataclass(frozen=True)
class PieceWork(Work):
    """A piece of a tile of rows.

    Attributes
    ----------
    piece : of the tile's axis.
    chunk : which of the chunks that columns are spread over blocks in.
    """

    piece: Piece
    chunk: ir.Expr


class HalfMeeting:
    """Emits what a group does with a state that may be of a part of the axis.

    Parameters
    ----------
    name : of the kernel.
    """

    def __init__(self, tiling: Tiling, name: str, group: int) -> None:
        assert isinstance(tiling.config, HalvesConfig)
        self.tiling, self.stream, self.group = tiling, tiling.stream, group
        self.most, self.spread = tiling.config.most_pieces, tiling.config.spread
        self.votes = registers("met", 1, "uint32")
        if self.most > 1:
            blocks = tiling.config.blocks
            self.states = FragmentStates(f"{name}_{group}", SLOTS * blocks, blocks, WARP_GROUP, self._form())

    def _form(self) -> list[PartForm]:
        widths = {p.component.symbol: len(half_of(p, self.group, self.spread)) // QUAD for p in self.stream.products}
        components = [PartForm(DTYPE, widths.get(c.symbol, 1)) for c in self.stream.fold.components]
        return [*components, *(PartForm(DTYPE) for _ in self.stream.fold.references)] * len(ROWS) + [PartForm(COUNTER)]

    def hand_over(self, folded: Staged, work: PieceWork, epilogue: Epilogue) -> None:
        """Stores the results of a whole axis, or of the last piece to arrive; leaves the state of any other."""
        if self.most == 1:
            epilogue.emit(folded)
            return
        put(self.votes, 0, T.uint32(1))
        with when(in_no_lane(work.piece.is_whole)):
            self._meet(folded, work)
        with branches(in_no_lane(self.votes[0] == 0)) as (storing, leaving):
            with storing:
                epilogue.emit(folded)
            with leaving, when(folded.threads.leads):
                folded.left_is_read()

    def _meet(self, folded: Staged, work: PieceWork) -> None:
        piece, threads = work.piece, folded.threads
        self.states.start()
        thread = bind("group_thread", computed_here(threads.warp * 32 + threads.lane))
        counter = Part(registers("folded", 1, COUNTER))
        counter.put(self.tiling.end_position(work) - work.tiles.first * self.tiling.config.columns)
        own = row_states(self.stream, folded, counter)
        self.states.leave(bind("slot", piece.own_slot(threads.block)), thread, own)
        self._barrier()
        put(self.votes, 0, T.uint32(0))
        with when(threads.leads):
            put(self.votes, 0, T.cast(self.states.arrive(piece.first_block, piece.blocks), "uint32"))
        arrived = tirx.NE(self.votes[0], T.uint32(0))
        ptx("bar.red.popc.u32", self.votes[0], T.uint32(_MET + self.group), T.uint32(WARP_GROUP), arrived)
        with when(in_no_lane(self.votes[0] == 0)):
            self._merge(folded, work, thread, own)

    def _barrier(self) -> None:
        ptx("bar.sync", T.uint32(_MET + self.group), T.uint32(WARP_GROUP))

    def _merge(self, folded: Staged, work: PieceWork, thread: ir.Expr, own: list[State]) -> None:
        piece, pieces, batch = work.piece, [], batch_of(self.most, sum(form.width for form in self._form()))
        for k in range(self.most):
            is_own = bind("is_own", piece.first_block + k == folded.threads.block)
            exists, slot = bind("exists", k < piece.blocks), bind("piece_slot", piece.slot(tirx.const(k, "int32")))
            pieces.append(self.states.take(slot, thread, is_own, exists, own, batch))
        length = tirx.Cast(DTYPE, self._length())
        for r in ROWS:
            inputs = {s: folded.rows.values[s][r] for s in self.tiling.program.row_inputs}
            first, *others = (states[r] for states in pieces)
            merge(program_of(self.stream.fold), first, Alone(), {**inputs, LENGTH: length}, others=others, batch=batch)

    def _length(self) -> ir.Expr:
        return kernel_extent(self.stream.extent(self.stream.position))
