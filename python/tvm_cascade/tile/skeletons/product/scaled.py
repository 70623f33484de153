"""A consumer that multiplies the products of every step by scales of its rows and of the tile's columns.

    sums[i, j] += down[i, b]·across[b] · Σ_{k in block b} A[i, k]·B[j, k]

A thread loads the scales of a step while the products of the one before are under way.
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
    down, across : of its rows and of the tile's columns in the next one.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        count = len(ROWS) * len(self.sums)
        self.scales, self.down, self.across = (
            registers(name, n) for name, n in (("scales", count), ("down_ahead", count), ("across_ahead", 1))
        )

    def _begin(self, tile: Tile) -> None:
        """Loads the scales of the first step."""
        self._load(tile, tirx.const(0, "int32"))

    def _start(self, tile: Tile, turn: ir.Expr) -> None:
        """Takes the scales of a step, and loads those of the next one."""
        for k in range(len(ROWS) * len(self.sums)):
            put(self.scales, k, self.down[k] * self.across[0])
        self._load(tile, bind("next_step", tirx.min(turn + 1, self.feed.steps - 1)))

    def _load(self, tile: Tile, step: ir.Expr) -> None:
        shape, feed, threads = self.feed.shape, self.feed, self.threads
        assert shape.scales is not None
        inner = shape.inner.places(step * feed.left.depth)
        places = {**tile.batch, **inner, **shape.right.line.places(tile.first_column)}
        put(self.across, 0, self._product(shape.scales.across, places))
        for part in range(len(self.sums)):
            first = tile.first_row + self.index * self.config.own_rows + (part * GROUP_ROWS + threads.warp * 16)
            for r in ROWS:
                last = kernel_extent(shape.left.line.extent) - 1
                row = bind("scaled_row", tirx.min(first + threads.lane // 4 + 8 * r, last))
                value = self._product(shape.scales.down, {**places, **shape.left.line.places(row)})
                put(self.down, len(ROWS) * part + r, value)

    def _product(self, factors: Sequence[ir.Expr], places: dict[tirx.Var, ir.Expr]) -> ir.Expr:
        values = [placed(factor, places, self.feed.buffers) for factor in factors]
        return math.prod(values, start=tirx.const(1.0, DTYPE))

    def _added(self, wide: ir.Expr, narrow: ir.Expr, part: int, row: int) -> ir.Expr:
        """The sum with the scaled products."""
        return wide + narrow * self.scales[len(ROWS) * part + row]
