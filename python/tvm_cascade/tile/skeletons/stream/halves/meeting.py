"""The meeting of a row tile's pieces, for each half of the columns by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from tvm import ir

from tvm_cascade.tile.emit import branches, when
from tvm_cascade.tile.merge.lanes import in_no_lane
from tvm_cascade.tile.pieces import Piece
from tvm_cascade.tile.shape import Product
from tvm_cascade.tile.skeletons.stream.epilogue import Epilogue, Staged
from tvm_cascade.tile.skeletons.stream.halves.columns import half_of
from tvm_cascade.tile.skeletons.stream.halves.config import HalvesConfig
from tvm_cascade.tile.skeletons.stream.pieces.grid import GridMeeting
from tvm_cascade.tile.skeletons.stream.pieces.meeting import Group
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.work import Work

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


class HalfMeeting(GridMeeting):
    """Emits what a group does with a state that may be of a part of the axis.

    Parameters
    ----------
    name : of the kernel.
    group : whose half of the columns it is.
    """

    def __init__(self, tiling: Tiling, name: str, group: int) -> None:
        assert isinstance(tiling.config, HalvesConfig)
        self.group, self.spread, self.most = group, tiling.config.spread, tiling.config.most_pieces
        super().__init__(tiling, f"{name}_{group}", self.most, 1, _MET + group)

    def add_barrier(self, pool: Any) -> None:
        """It has none in shared memory."""

    def columns_of(self, product: Product) -> range:
        """The group's half."""
        return half_of(product, self.group, self.spread)

    def first_column(self, product: Product, work: Work) -> ir.Expr | int:
        """The first of the block's columns of a product."""
        assert isinstance(work, PieceWork)
        return 0 if self.spread == 1 else work.chunk * (product.width // self.spread)

    def begin(self, fold: Group) -> None:
        """Asks for the launch's set, where states are left."""
        if self.most > 1:
            super().begin(fold)

    def hand_over(self, folded: Staged, work: PieceWork, epilogue: Epilogue) -> None:
        """Stores the results of a whole axis; leaves the state of a part."""
        if self.most == 1:
            epilogue.emit(folded)
            return
        with branches(in_no_lane(work.piece.is_whole)) as (part, whole):
            with part:
                self.leave(folded, work.piece)
                with when(folded.threads.leads):
                    folded.left_is_read()
            with whole:
                epilogue.emit(folded)

    def settle_all(self, folded: Staged, each_work: Callable[[], AbstractContextManager[PieceWork]]) -> None:
        """Merges the group's share of every tile of rows that it has a part of."""
        if self.most == 1:
            return

        @contextmanager
        def each_piece() -> Iterator[tuple[Piece, Work]]:
            with each_work() as work:
                yield work.piece, work

        self.settle(folded, each_piece)
