"""The feed of a gauged product: that of a product, and a word of each thread that keeps computations where they are."""

from __future__ import annotations

from typing import Any

from tvm_cascade.tile.emit import named
from tvm_cascade.tile.skeletons.product.feed import ProductFeed

PINNED_BYTES = 4
"""Of a word of a thread that keeps computations where they are."""


class GaugedFeed(ProductFeed):
    """Tiles of both operands.

    Attributes
    ----------
    pinned : a word of shared memory for each thread, which nothing reads.
    """

    def allocate(self, pool: Any) -> None:
        """Shared memory of tiles, of barriers and of the words."""
        super().allocate(pool)
        self.pinned = named("pinned", pool.alloc((self.config.threads,), "uint32", align=16))
