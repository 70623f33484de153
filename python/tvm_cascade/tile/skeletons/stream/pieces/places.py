"""The items of a kernel of few rows, a tile of rows at a place each, and how blocks share out their live tiles.

Where masks leave the same tiles alive at every place, shares are closed forms. Where that depends on the place, as of
lengths in a tensor, the places that differ are *sequences*, whose live tiles the device counts; all items of a
sequence follow one another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tvm import ir, tirx

from tvm_cascade.analysis.tir import product
from tvm_cascade.tile.attention.pieces import Cut, PieceWork, SharedItems, WholeItems
from tvm_cascade.tile.attention.ragged import RaggedCut
from tvm_cascade.tile.emit import bind, in_register, kernel_extent
from tvm_cascade.tile.live import Rows, TileRange, live_tiles
from tvm_cascade.tile.skeletons.stream.pieces.config import is_of_place, sequences_of
from tvm_cascade.tile.skeletons.stream.tiling import Tiling


class Places:
    """The items of a program in a configuration.

    Parameters
    ----------
    spread : items of each tile of rows at a place, one after the other.
    sharing : blocks that share an item and have nothing else, of a cluster or of the grid; None where they have parts
        of several.
    whole : blocks have whole items alone.
    by_length : how blocks share items of lengths that the device counts; None where shares are of the longest length.

    Attributes
    ----------
    cut : the shares of blocks.
    has_one_piece : each block has one, known beforehand.
    of_sequences : the variables by which live tiles differ.
    """

    def __init__(
        self, tiling: Tiling, spread: int = 1, sharing: int | None = None,
        by_length: type[RaggedCut] | None = RaggedCut, whole: bool = False,
    ) -> None:  # fmt: skip
        self.spread = spread
        self.tiling, self.stream, self.config = tiling, tiling.stream, tiling.config
        rows = self.stream.extent(self.stream.row)
        self.row_tiles = kernel_extent((rows + (self.config.rows - 1)) // self.config.rows)
        places = kernel_extent(product(self.stream.extent(var) for var in self.stream.batch))
        items = self.row_tiles * places * spread
        self.of_sequences, sequences = sequences_of(tiling.program) if by_length else ([], None)
        self.differ, self.has_one_piece = sequences is not None, sequences is None and sharing is not None
        if by_length is not None and sequences is not None:
            self.cut: Cut = by_length(items, tiling.tile_count(), self.config.blocks, sequences, self._tiles_of)
            return
        visited = self._visited(self._known_slacks())
        tiles = tirx.max(visited.end - visited.first, 1)
        if sharing is not None:
            self.cut = SharedItems(items, tiles, sharing)
        else:
            self.cut = (WholeItems if whole else Cut)(items, tiles, self.config.blocks)

    @contextmanager
    def each(self, block: ir.Expr) -> Iterator[PieceWork]:
        """What is written within is done for every piece that a block has."""
        alike = None if self.differ else in_register("first_visited", self._visited(self._known_slacks()).first)
        others = [v for v in self.stream.batch if not any(v.same_as(own) for own in self.of_sequences)]
        with self.cut.each(block) as piece:
            sequence, item = self.cut.apart(piece.item)
            number = item // self.spread
            first_row = bind("first_row", number % self.row_tiles * self.config.rows)
            batch = self.tiling.batch(number // self.row_tiles, others) | self.tiling.batch(sequence, self.of_sequences)
            visited = in_register("first_visited", self._visited_at(batch).first) if alike is None else alike
            first = bind("first_tile", visited + piece.first)
            yield PieceWork(first_row, batch, TileRange(first, bind("end_tile", visited + piece.end)), piece)

    def _known_slacks(self) -> tuple[ir.Expr, ...]:
        """Those that are the same at every place."""
        return tuple(slack for slack in self.tiling.program.skip if not is_of_place(slack, self.stream))

    def _tiles_of(self, sequence: ir.Expr) -> ir.Expr:
        """The live tiles of an item of a sequence."""
        visited = self._visited_at(self.tiling.batch(sequence, self.of_sequences))
        return visited.end - visited.first

    def _visited_at(self, batch: dict[tirx.Var, ir.Expr]) -> TileRange:
        """The tiles that hold a live position of any row of a sequence."""
        return self._visited(tuple(self.tiling.placed(slack, batch) for slack in self.tiling.program.skip))

    def _visited(self, slacks: tuple[ir.Expr, ...]) -> TileRange:
        """The tiles that hold a live position of any row by some slacks: one at least."""
        rows = Rows(self.stream.row, tirx.const(0, "int32"), int(self.stream.extent(self.stream.row)))
        tiles = self.tiling.tile_count()
        live = live_tiles(slacks, self.stream.position, rows, self.config.columns, tiles)
        first = tirx.max(tirx.min(live.first, tiles - 1), 0)
        return TileRange(first, tirx.max(tirx.min(live.end, tiles), first + 1))
