"""The meeting of a row tile's pieces, for each half of the columns by itself."""

from __future__ import annotations

from tvm import ir

from tvm_cascade.tile.attention.pieces import PieceWork
from tvm_cascade.tile.attention.shape import Product
from tvm_cascade.tile.emit import branches, when
from tvm_cascade.tile.merge.lanes import in_no_lane
from tvm_cascade.tile.skeletons.stream.epilogue import Epilogue, Staged
from tvm_cascade.tile.skeletons.stream.halves.columns import GROUPS, chunk_column, half_of
from tvm_cascade.tile.skeletons.stream.halves.config import HalvesConfig
from tvm_cascade.tile.skeletons.stream.pieces.grid import GridMeeting
from tvm_cascade.tile.skeletons.stream.tiling import Tiling

_HELD = 80
"""Registers that hold elements of states: with twice as many the code, which runs once and so comes from the memory, is
twice as long (measured, of L5: 31.9 and 33.2 µs; with half as many 32.1)."""


class HalfMeeting(GridMeeting):
    """Emits what a group does with a state that may be of a part of the axis.

    Parameters
    ----------
    config : of the kernel.
    name : of the kernel.
    group : whose half of the columns it is: both groups run the same code where they have as many columns each.
    """

    most_registers = _HELD

    def __init__(self, tiling: Tiling, config: HalvesConfig, name: str, group: int | ir.Expr) -> None:
        self.spread = config.spread
        super().__init__(tiling, name, config.most_pieces, 1, parts=GROUPS, part=group)

    @property
    def is_of_both(self) -> bool:
        """Whether it is the meeting of both groups, each of which knows at run time which it is."""
        return not isinstance(self.part, int)

    def columns_of(self, product: Product) -> range:
        """The group's half; of groups that are alike as many columns, counted from the first of the half."""
        if isinstance(self.part, int):
            return half_of(product, self.part, self.spread)
        return range(len(half_of(product, 0, self.spread)))

    def first_column(self, product: Product, work: PieceWork) -> ir.Expr | int:
        """The column that those are counted from."""
        first = chunk_column(product, work, self.spread)
        return first if isinstance(self.part, int) else self.part * len(self.columns_of(product)) + first

    def hand_over(self, folded: Staged, work: PieceWork, epilogue: Epilogue) -> None:
        """Stores the results of a whole axis; leaves the state of a part."""
        if not self.meets:
            epilogue.emit(folded)
            return
        with branches(in_no_lane(work.piece.is_whole)) as (part, whole):
            with part:
                self.leave(folded, work)
                with when(folded.threads.leads):
                    folded.left_is_read()
            with whole:
                epilogue.emit(folded)
