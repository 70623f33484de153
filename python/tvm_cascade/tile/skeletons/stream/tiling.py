"""Tile coordinates of a stream kernel: rows, positions and batch indices in kernel integers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import dtype_of, product, same, substitute
from tvm_cascade.tile.attention.pieces import Cut, PieceWork, RaggedCut, SharedItems, WholeItems
from tvm_cascade.tile.attention.program import TileProgram
from tvm_cascade.tile.attention.shape import Product
from tvm_cascade.tile.attention.tile_schedule import Item
from tvm_cascade.tile.element import Mask
from tvm_cascade.tile.emit import bind, digits, in_register, kernel_extent, ptx, put, registers
from tvm_cascade.tile.fragment import placed
from tvm_cascade.tile.hopper.copy import ROW_WARPS, TensorMap
from tvm_cascade.tile.live import Passing, Rows, TileRange, live_tiles, of_whole_tiles, sure, whole_tiles
from tvm_cascade.tile.merge.lanes import ALL_LANES, WARP
from tvm_cascade.tile.operand import Operand
from tvm_cascade.tile.skeletons.stream.config import Tiles
from tvm_cascade.tile.skeletons.stream.pieces.config import is_of_place, sequences_of
from tvm_cascade.tile.work import Order, Threads, Work
from tvm_cascade.transform.printer import cast

_SOUGHT = 4
"""Positions that a lane looks at together, so that their loads are under way at once."""


_COUNTED = 16
"""Tiles that a thread asks together."""

_CACHED = 1 << 24
"""Bytes of right operands that all blocks read at a time: a part of the L2 cache."""


class Tiling:
    """The tiles of a program in a configuration.

    Attributes
    ----------
    late : tensors that the kernel waits for where results are stored; see `Launch`.
    ragged : the last tile of the cascade axis may reach past its end.
    lane : of the thread, where whole warps ask for the tiles of rows whose bounds are loaded; None where they do not.
    needed : conditions that are asked once for each tile, which is passed over where one of them fails.
    at_once : others that are asked once for each tile that is visited.
    """

    lane: ir.Expr | None = None
    needed: tuple[ir.Expr, ...] = ()
    at_once: tuple[ir.Expr, ...] = ()

    def __init__(
        self, program: TileProgram, config: Tiles, buffers: dict[tirx.Var, Any], late: tuple[tirx.Var, ...]
    ) -> None:
        self.late = late
        self.program, self.config, self.stream, self.buffers = program, config, program.stream, buffers
        length = self.stream.extent(self.stream.position)
        self.ragged = not (isinstance(length, int) and length % config.columns == 0)

    @property
    def length(self) -> ir.Expr:
        return kernel_extent(self.stream.extent(self.stream.position))

    @property
    def row_count(self) -> ir.Expr:
        return kernel_extent(self.stream.extent(self.stream.row))

    def tile_count(self, columns: int | None = None) -> ir.Expr:
        """Tiles of the cascade axis; `columns`: of so many positions."""
        columns = columns or self.config.columns
        return kernel_extent((self.stream.extent(self.stream.position) + (columns - 1)) // columns)

    def end_position(self, work: Work) -> ir.Expr:
        return bind("end_position", tirx.min(work.tiles.end * self.config.columns, self.length))

    def placed(self, expression: ir.Expr, batch: dict[tirx.Var, ir.Expr]) -> ir.Expr:
        return placed(expression, batch, self.buffers)

    def copies(self, operand: Operand, rows: int, columns: int | None = None, row_warps: int = ROW_WARPS) -> TensorMap:
        """Bulk copies of an operand's tiles; threads copy rows of small pages."""
        return TensorMap(
            operand, self.buffers[operand.buffer], rows, columns, None, True, row_warps, list(self.buffers.values())
        )

    def value_copies(self, product: Product) -> TensorMap:
        """Of a tile of positions of V, along its rows or along its columns."""
        positions = self.config.columns
        if product.is_transposed:
            return self.copies(product.value, product.width, positions)
        return self.copies(product.value, positions)

    def fixed_of(self, copies: Sequence[TensorMap], work: Work) -> list[dict[int, ir.Expr]]:
        return [self.fixed(one.operand, work.batch) for one in copies]

    def fixed(self, operand: Operand, batch: dict[tirx.Var, ir.Expr]) -> dict[int, ir.Expr]:
        return {d: self.placed(operand.indices[d], batch) for d in operand.fixed}

    def visited(
        self, batch: dict[tirx.Var, ir.Expr], first_row: ir.Expr, count: int, columns: int | None = None
    ) -> TileRange:
        """The tiles that hold a live position of some rows; `columns`: of so many positions."""
        columns = columns or self.config.columns
        slacks = tuple(self.placed(slack, batch) for slack in self.program.skip)
        rows = self.rows_from(first_row, count)
        return live_tiles(slacks, self.stream.position, rows, columns, self.tile_count(columns))

    def ask_of_tiles(self) -> None:
        """Asks the conditions that are the same all over each tile; of ranges that are loaded for rows none are."""
        if not self.program.loads_bounds and not self.stream.paged:
            stream, config = self.stream, self.config
            program, sizes = self.program, (stream.row, config.rows, stream.position, config.columns)
            others = [one for one in program.of_blocks if not any(one is own for own in program.needed)]
            self.needed, self.at_once = (of_whole_tiles(every, *sizes) for every in (program.needed, others))

    @property
    def depend_on_data(self) -> bool:
        """Whether the device alone knows which tiles rows visit; of pages, others share out what there is."""
        return not self.stream.paged and (self.program.loads_bounds or bool(self.needed))

    def passes(
        self, conditions: Sequence[ir.Expr], batch: dict[tirx.Var, ir.Expr], first_row: ir.Expr, tile: ir.Expr
    ) -> ir.Expr:
        """Whether what is asked of a tile holds."""
        corner = ((self.stream.row, first_row), (self.stream.position, tile * self.config.columns))
        at = {**batch, **{var: cast(value, dtype_of(var)) for var, value in corner}}
        return tirx.all(*(self.placed(condition, at) for condition in conditions))

    @contextmanager
    def visits(self, work: Work, tiles: TileRange, passed: int = 0) -> Iterator[ir.Expr]:
        """A loop over the tiles that are visited, from the last on.

        Parameters
        ----------
        passed : so many of them are done before it.
        """
        if work.passing is None:
            with T.serial(tiles.end - tiles.first - passed) as step:
                yield tiles.end - (1 + passed) - step
            return
        if passed:
            work.passing.advance()
        with T.While(work.passing.tile >= tiles.first):
            tile = in_register("visited_tile", work.passing.tile)
            work.passing.advance()
            yield tile

    def whole(
        self, batch: dict[tirx.Var, ir.Expr], first_row: ir.Expr, count: int, passing: ir.Expr | None = None
    ) -> TileRange | None:
        """The tiles in which no mask drops anything of some rows; None where that is unknown.

        Parameters
        ----------
        passing : whether what is asked of tiles holds for all that are visited.
        """
        tiles, rows = self.tile_count(), self.rows_from(first_row, count)
        common = TileRange(tirx.const(0, "int32"), tiles)
        for mask in self.program.element.masks:
            if (known := sure(mask, self.needed, self.at_once)) is None:
                return None
            kept = tuple(self.placed(slack, batch) for slack in known.slacks)
            found = whole_tiles(kept, self.stream.position, rows, self.config.columns, tiles)
            if found is None:
                return None
            common = common.within(found)
        return common if passing is None else replace(common, end=tirx.Select(passing, common.end, common.first))

    @cached_property
    def whole_where(self) -> list[int]:
        """The numbers of the conditions that are asked at once of which tiles have to be whole."""
        found = [sure(mask, self.needed, self.at_once) for mask in self.program.element.masks]
        needed = [one for known in found if known is not None for one in known.conditions]
        return [k for k, own in enumerate(self.at_once) if any(own is one for one in needed)]

    def masks(self, passing: ir.Expr | None, at_once: Sequence[ir.Expr]) -> tuple[Mask, ...]:
        """The program's masks, in which what is asked of tiles is known."""
        answers = [*((one, passing) for one in self.needed), *zip(self.at_once, at_once, strict=True)]
        masks = self.program.element.masks
        if not answers:
            return masks

        def known(node: ir.Expr) -> ir.Expr:
            return next((answer for one, answer in answers if same(node, one)), node)

        kinds = [(kind, known) for kind in {type(one) for one, _ in answers}]
        return tuple(replace(one, condition=tvm_ffi.structural_map(one.condition, kinds)) for one in masks)

    def rows_from(self, first: ir.Expr, count: int) -> Rows:
        if self.lane is None:
            return Rows(self.stream.row, first, count)
        return Rows(self.stream.row, first, count, self._greatest, self._search)

    def _search(self, sums: Sequence[tuple[ir.Expr, ir.Expr]], tiles: TileRange) -> tuple[ir.Expr, ir.Expr]:
        """The first and the last position at which no sum is negative, which the lanes of a warp look for."""
        assert self.lane is not None
        position, lane, columns = self.stream.position, self.lane, self.config.columns
        found = registers("live_position", 2, "int32")
        put(found, 0, self.length)
        put(found, 1, T.int32(-1))
        known = [(h, in_register("greatest_of_rows", g)) for h, g in sums]
        first = bind("first_sought", tirx.max(tiles.first, 0) * columns)
        count = bind("sought", tirx.max(tirx.min(tiles.end * columns, self.length) - first, 0))
        with T.serial((count + (_SOUGHT * WARP - 1)) // (_SOUGHT * WARP)) as turn, T.unroll(_SOUGHT) as part:
            at = bind("position", tirx.min(first + (turn * _SOUGHT + part) * WARP + lane, self.length - 1))
            own = {position: cast(at, dtype_of(position))}
            live = bind("is_live", tirx.all(*(substitute(h, own) >= -g for h, g in known)))
            put(found, 0, tirx.Select(live, tirx.min(found[0], at), found[0]))
            put(found, 1, tirx.Select(live, tirx.max(found[1], at), found[1]))
        for end, nearest in enumerate(("min", "max")):
            ptx(f"redux_sync.{nearest}.s32", found[end], found[end], T.uint32(ALL_LANES))
        return found[0], found[1]

    def _greatest(self, value: ir.Expr, rows: Rows) -> ir.Expr:
        """The greatest value of an integer over rows, which the lanes of a warp share out."""
        assert self.lane is not None
        found, last = registers("greatest", 1, "int32"), self.row_count - 1
        for turn in range(-(-rows.count // WARP)):
            row = tirx.min(rows.first + tirx.min(self.lane + turn * WARP, rows.count - 1), last)
            own = T.cast(substitute(value, {rows.variable: cast(row, dtype_of(rows.variable))}), "int32")
            put(found, 0, tirx.max(found[0], own) if turn else own)
        ptx("redux_sync.max.s32", found[0], found[0], T.uint32(ALL_LANES))
        return found[0]

    def likely_tiles(self, row_tile: ir.Expr) -> ir.Expr:
        """About how many tiles a tile of rows visits at the first place: by its first and its last row, or counted."""
        first, last = row_tile * self.config.rows, self.row_count - 1

        def over(value: ir.Expr, rows: Rows) -> ir.Expr:
            ends = (tirx.min(row, last) for row in (rows.first, rows.first + (rows.count - 1)))
            return tirx.max(*(substitute(value, {rows.variable: cast(row, dtype_of(rows.variable))}) for row in ends))

        slacks = tuple(self.placed(slack, self.batch(T.int32(0))) for slack in self.program.skip)
        rows, tiles = Rows(self.stream.row, first, self.config.rows, over), self.tile_count()
        live = live_tiles(slacks, self.stream.position, rows, self.config.columns, tiles)
        begin, end = tirx.max(live.first, 0), tirx.min(live.end, tiles)
        if not self.needed:
            return tirx.max(end - begin, 1)
        count, at_first = registers("likely_tiles", 1, "int32"), self.batch(T.int32(0))
        put(count, 0, T.int32(1))
        with T.serial(tirx.max(end - begin, 0), unroll=_COUNTED) as step:
            passes = self.passes(self.needed, at_first, first, begin + step)
            put(count, 0, count[0] + T.cast(passes, "int32"))
        return count[0]

    def places_together(self) -> ir.Expr:
        """Places whose right operands the L2 cache keeps for all blocks."""
        stream = self.stream
        operands = {id(one): one for one in (*stream.rights, *(product.value for product in stream.products))}
        position = sum(one.width * one.size for one in operands.values())
        return tirx.max(_CACHED // position // self.length, 1)

    def batch(self, place: ir.Expr, variables: Sequence[tirx.Var] | None = None) -> dict[tirx.Var, ir.Expr]:
        """The batch index that a place is the number of; `variables`: of some of the batch alone."""
        return digits(place, self.stream.batch if variables is None else variables, self.stream.extent)

    def work(self, item: Item, lane: ir.Expr | None = None) -> Work:
        """A tile of rows; `lane`: of the thread, where whole warps ask for the tiles that are visited."""
        config = self.config
        first_row = bind("first_row", item.row_tile * config.rows)
        batch = self.batch(item.place)
        tiles, visited = self.tile_count(), self.visited(batch, first_row, config.rows)
        first = bind("first_tile", tirx.max(tirx.min(visited.first, tiles - 1), 0))
        end = bind("end_tile", tirx.max(tirx.min(visited.end, tiles), first + 1))
        tiles = TileRange(first, end)
        if lane is None or not self.needed:
            return Work(first_row, batch, tiles)
        passing = Passing(tiles, lane, partial(self.passes, self.needed, batch, first_row))
        return Work(first_row, batch, TileRange(first, in_register("end_visited", passing.tile + 1)), passing=passing)


# The items of a kernel of few rows, a tile of rows at a place each, and how blocks share out their live tiles.
#
# Where masks leave the same tiles alive at every place, shares are closed forms. Where that depends on the place, as of
# lengths in a tensor, the places that differ are *sequences*, whose live tiles the device counts; all items of a
# sequence follow one another.


class Places(Order[PieceWork]):
    """The items of a program in a configuration.

    Parameters
    ----------
    sharing : blocks that share an item and have nothing else, of a cluster or of the grid; None where they have parts
        of several.
    by_length : how blocks share items of lengths that the device counts; None where shares are of the longest length.

    Attributes
    ----------
    has_one_piece : each block has one, known beforehand.
    of_sequences : the variables by which live tiles differ.
    """

    def __init__(self, tiling: Tiling, sharing: int | None, by_length: type[RaggedCut] | None = RaggedCut) -> None:
        self.tiling, self.stream, self.config, self.spread = tiling, tiling.stream, tiling.config, tiling.config.spread
        rows = self.stream.extent(self.stream.row)
        self.row_tiles = kernel_extent((rows + (self.config.rows - 1)) // self.config.rows)
        places = kernel_extent(product(self.stream.extent(var) for var in self.stream.batch))
        items = self.row_tiles * places * self.spread
        self.of_sequences, sequences = sequences_of(tiling.program) if by_length else ([], None)
        self.differ, self.has_one_piece = sequences is not None, sequences is None and sharing is not None
        if by_length is not None and sequences is not None:
            self.cut: Cut = by_length(items, tiling.tile_count(), self.config.blocks, sequences, self._tiles_of)
            return
        visited = self._visited()
        tiles = tirx.max(visited.end - visited.first, 1)
        if sharing is not None:
            self.cut = SharedItems(items, tiles, sharing)
        else:
            self.cut = (WholeItems if self.config.kept > 1 else Cut)(items, tiles, self.config.blocks)

    @property
    def grid(self) -> ir.Expr:
        return self.cut.grid

    def allocate(self, pool: Any) -> None:
        self.cut.allocate(pool)

    def find(self, threads: Threads) -> None:
        self.cut.find(threads)

    @contextmanager
    def each(self, block: ir.Expr) -> Iterator[PieceWork]:
        alike = None if self.differ else in_register("first_visited", self._visited().first)
        others = [v for v in self.stream.batch if not any(v.same_as(own) for own in self.of_sequences)]
        with self.cut.each(block) as piece:
            sequence, item = self.cut.apart(piece.item)
            number = item // self.spread
            first_row = bind("first_row", number % self.row_tiles * self.config.rows)
            batch = self.tiling.batch(number // self.row_tiles, others) | self.tiling.batch(sequence, self.of_sequences)
            visited = in_register("first_visited", self._visited(batch).first) if alike is None else alike
            first = bind("first_tile", visited + piece.first)
            yield PieceWork(first_row, batch, TileRange(first, bind("end_tile", visited + piece.end)), piece)

    def _tiles_of(self, sequence: ir.Expr) -> ir.Expr:
        visited = self._visited(self.tiling.batch(sequence, self.of_sequences))
        return visited.end - visited.first

    def _visited(self, batch: dict[tirx.Var, ir.Expr] | None = None) -> TileRange:
        """The tiles that hold a live position of any row of a sequence, or of some sequence: one at least."""
        slacks = self.tiling.program.skip
        if batch is None:
            slacks = tuple(slack for slack in slacks if not is_of_place(slack, self.stream))
        else:
            slacks = tuple(self.tiling.placed(slack, batch) for slack in slacks)
        rows = Rows(self.stream.row, tirx.const(0, "int32"), int(self.stream.extent(self.stream.row)))
        tiles = self.tiling.tile_count()
        live = live_tiles(slacks, self.stream.position, rows, self.config.columns, tiles)
        first = tirx.max(tirx.min(live.first, tiles - 1), 0)
        return TileRange(first, tirx.max(tirx.min(live.end, tiles), first + 1))
