"""A feed as copies fill it, and as products read it: the same, unless a warp group converts its tiles on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm_cascade.tile.attention.operands.feed import Feed, arrivals_of, staged_tiles
from tvm_cascade.tile.attention.operands.widen import WideTiles, is_widened
from tvm_cascade.tile.hopper.barrier import Barriers
from tvm_cascade.tile.hopper.copy import TensorMap
from tvm_cascade.tile.skeletons.stream.pieces.config import WIDE_STAGES, PiecesConfig

_GROUP_WARPS = 4


class FeedPair:
    """Tiles of operands in shared memory, with their barriers.

    Attributes
    ----------
    is_widened : its tiles are converted.
    stored : for copies.
    wide : for products.
    """

    def __init__(self, pool: Any, config: PiecesConfig, name: str, copies: Sequence[TensorMap]) -> None:
        self.config, self.copies = config, copies
        self.is_widened = any(map(is_widened, copies))
        self.stored_tiles = [staged_tiles(name, pool, config.stages, one) for one in copies]
        self.wide_copies = [WideTiles(one.operand, one.rows, one.columns) for one in copies]
        self.wide_tiles = [
            staged_tiles(f"wide_{name}", pool, WIDE_STAGES, one) for one in self.wide_copies if self.is_widened
        ]

    def add_barriers(self, pool: Any) -> None:
        """Barriers of both, after all tiles."""
        stages, readers = self.config.stages, self.config.consumers
        converting = self.config.converting_warps or _GROUP_WARPS
        full = Barriers(pool, stages, arrivals_of(self.copies))
        empty = Barriers(pool, stages, converting if self.is_widened else readers)
        self.stored = self.wide = Feed(self.copies, self.stored_tiles, full, empty)
        if self.is_widened:
            full, empty = Barriers(pool, WIDE_STAGES, converting), Barriers(pool, WIDE_STAGES, readers)
            self.wide = Feed(self.wide_copies, self.wide_tiles, full, empty)

    @property
    def barriers(self) -> list[Barriers]:
        """All of them."""
        feeds = (self.stored, self.wide) if self.is_widened else (self.stored,)
        return [barriers for feed in feeds for barriers in (feed.full, feed.empty)]
