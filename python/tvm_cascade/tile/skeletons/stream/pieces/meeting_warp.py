"""The warp of a block that sees to its meetings with other blocks in global memory, while consumers fold.

claim       the set of states of the launch, while the first tiles are under way
arrive      at an item, once consumers have left the block's state of it
wait        for all other pieces; tell the consumers; depart; the last makes the item's word zero
release     the set, once consumers have merged

None of this has the consumers wait for memory, and the fences behind it wait for none of their results' stores.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from tvm import tirx

from tvm_cascade.tile.attention.pieces import Piece
from tvm_cascade.tile.emit import put, registers, when
from tvm_cascade.tile.skeletons.stream.pieces.grid import GridMeeting
from tvm_cascade.tile.skeletons.stream.pieces.meeting import EachPiece


class MeetingWarp:
    """Emits one thread of it."""

    def __init__(self, meeting: GridMeeting) -> None:
        self.meeting = meeting

    def run(self, each_piece: EachPiece) -> None:
        """From the block's first piece to the end of its last."""
        meeting, states = self.meeting, self.meeting.states
        self._claim()
        with each_piece() as (piece, _), self._where_shared(piece):
            meeting.left.wait(piece.side, 0)
            states.arrive(piece.first_block)
        with each_piece() as (piece, _), self._where_shared(piece):
            put(meeting.told, piece.side, states.wait(piece.first_block, piece.blocks))
            meeting.met.arrive(piece.side)
            with when(states.depart(piece.first_block, piece.blocks) != 0):
                states.clear(piece.first_block)
        meeting.merged.wait(0, 0)
        meeting.sets.release(states.set)

    def _where_shared(self, piece: Piece) -> AbstractContextManager[None]:
        """As of the meeting, for one thread."""
        return nullcontext() if self.meeting.is_of_all else when(tirx.Not(piece.is_whole))

    def _claim(self) -> None:
        meeting = self.meeting
        own = registers("own_set", 1, "int32")
        meeting.sets.allocate()
        meeting.sets.request()
        put(own, 0, meeting.sets.obtain())
        put(meeting.set, meeting.own_set, own[0])
        meeting.known.arrive(0)
        meeting.states.set = own[0]
