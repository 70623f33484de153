"""A consumer that multiplies the products of every step by scales of its rows and of the tile's columns.

    sums[i, j] += down[i, b]·across[b] · Σ_{k in block b} A[i, k]·B[j, k]

A thread loads the scales of its rows before it waits for the step's tiles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import ir, tirx

from tvm_cascade.tile.emit import bind, kernel_extent, put, registers
from tvm_cascade.tile.fragment import DTYPE, ROWS, placed
from tvm_cascade.tile.skeletons.product.promoted import PromotedConsumer
from tvm_cascade.tile.skeletons.product.raster import Tile
from tvm_cascade.tile.work import GROUP_ROWS


class ScaledConsumer(PromotedConsumer):
    """Emits a consumer whose products have scales.

    Attributes
    ----------
    scales : of a thread's rows in the step under way, two for each 64 rows.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.scales = registers("scales", len(ROWS) * len(self.sums))

    def _start(self, tile: Tile, turn: ir.Expr) -> None:
        """Loads the scales of a step."""
        shape, feed, threads = self.feed.shape, self.feed, self.threads
        assert shape.scales is not None
        inner = shape.inner.places(turn * feed.left.depth)
        places = {**tile.batch, **inner, **shape.right.line.places(tile.first_column)}
        across = self._product(shape.scales.across, places)
        for part in range(len(self.sums)):
            first = tile.first_row + self.index * self.config.own_rows + (part * GROUP_ROWS + threads.warp * 16)
            for r in ROWS:
                last = kernel_extent(shape.left.line.extent) - 1
                row = bind("scaled_row", tirx.min(first + threads.lane // 4 + 8 * r, last))
                down = self._product(shape.scales.down, {**places, **shape.left.line.places(row)})
                put(self.scales, len(ROWS) * part + r, down * across)

    def _product(self, factors: Sequence[ir.Expr], places: dict[tirx.Var, ir.Expr]) -> ir.Expr:
        values = [placed(factor, places, self.feed.buffers) for factor in factors]
        return math.prod(values, start=tirx.const(1.0, DTYPE))

    def _added(self, wide: ir.Expr, narrow: ir.Expr, part: int, row: int) -> ir.Expr:
        """The sum with the scaled products."""
        return wide + narrow * self.scales[len(ROWS) * part + row]
