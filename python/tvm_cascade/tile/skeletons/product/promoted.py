"""A consumer whose sums leave the tensor cores every few steps, and are added in float32.

    for every `promoted` steps along k:    narrow = Σ A @ Bᵀ on tensor cores;    sums += narrow in float32

The tensor cores of Hopper keep about twelve bits of sums of float8 products, relative to the largest of them; what is
lost then does not grow with k. While one consumer adds, the products of the other are under way.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import put, registers
from tvm_cascade.tile.skeletons.product.consumer import Consumer
from tvm_cascade.tile.skeletons.product.raster import Tile


class PromotedConsumer(Consumer):
    """Emits a consumer warp group with two registers for each element.

    Attributes
    ----------
    narrow : what the tensor cores have summed since the last promotion, like `sums`.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        count = self.config.columns // 2
        self.narrow = [[registers(f"narrow_{part}", count) for _ in of_part] for part, of_part in enumerate(self.sums)]

    @property
    def summed(self) -> list[list[Any]]:
        """The narrow sums."""
        return self.narrow

    def _sum_tile(self, tile: Tile) -> None:
        """The sums of a tile, promoted after every few steps and at the end."""
        count, every = self.feed.part(self.rank)[1], self.config.promoted
        for array in (array for of_part in self.sums for array in of_part):
            with T.unroll(self.config.columns // 2) as k:
                put(array, k, tirx.const(0.0, "float32"))
        self._begin(tile)
        with T.serial((count + (every - 1)) // every) as turn:
            self._start(tile, turn)
            self._sum_steps(tirx.const(1, "int32") if every == 1 else tirx.min(every, count - turn * every))
            self._promote()

    def _begin(self, tile: Tile) -> None:
        """Emits what comes before the first turn: nothing."""

    def _start(self, tile: Tile, turn: ir.Expr) -> None:
        """Emits what comes before the steps of a turn: nothing."""

    def _promote(self) -> None:
        for part, (sums, narrow) in enumerate(zip(self.sums, self.narrow, strict=True)):
            for wide, own in zip(sums, narrow, strict=True):
                for k in range(self.config.columns // 2):
                    put(wide, k, self._added(wide[k], own[k], part, k // 2 % 2))

    def _added(self, wide: ir.Expr, narrow: ir.Expr, part: int, row: int) -> ir.Expr:
        """The sum with what the tensor cores have summed, of one of a thread's rows."""
        return wide + narrow
