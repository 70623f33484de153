"""How one side of a result is cut into the elements of blocks, warps and threads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cut:
    """The cut of rows, or of columns.

    Attributes
    ----------
    warps : of a block along this side.
    lanes : of a warp along this side, 4 or 8; the other side has the other number.
    own : elements of a thread.
    """

    warps: int
    lanes: int
    own: int

    @property
    def warp(self) -> int:
        """Elements of a warp."""
        return self.lanes * self.own

    @property
    def block(self) -> int:
        """Elements of a block."""
        return self.warps * self.warp
