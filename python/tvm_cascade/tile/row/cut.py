"""What every partition of rows over threads states, for contiguous and for strided reduction axes."""

from __future__ import annotations

from typing import Protocol


class Cut(Protocol):
    """How a kernel is cut."""

    @property
    def threads(self) -> int:
        """Of a block."""

    @property
    def vector(self) -> int:
        """Neighbours in memory that a thread reads at once."""

    @property
    def positions(self) -> int:
        """Of a vector: all of it, or one where neighbours are rows."""

    @property
    def vectors(self) -> int:
        """That a thread has in flight."""

    @property
    def segments(self) -> int:
        """Blocks that share a row."""

    @property
    def resident(self) -> int:
        """Blocks of a multiprocessor that registers have to do for."""

    @property
    def sharing(self) -> int:
        """Threads of one block that share a row, or a segment of it."""

    @property
    def chunk(self) -> int:
        """Positions that those threads have in flight together."""

    @property
    def kept(self) -> bool:
        """A row's elements stay in registers until its outputs are written; otherwise they are read again."""

    @property
    def ahead(self) -> bool:
        """What outputs alone read is read with the row."""
