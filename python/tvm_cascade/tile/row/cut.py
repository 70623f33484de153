"""What every partition of rows over threads states, for contiguous and for strided reduction axes."""

from __future__ import annotations

from typing import Protocol


class Cut(Protocol):
    """The partition of rows over blocks, threads and vectors."""

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
        """Vectors in flight per thread."""

    @property
    def segments(self) -> int:
        """Blocks that share a row."""

    @property
    def resident(self) -> int:
        """Resident blocks per multiprocessor that the register budget allows for."""

    @property
    def sharing(self) -> int:
        """Threads of one block that share a row, or a segment of it."""

    @property
    def chunk(self) -> int:
        """Positions that those threads have in flight together."""

    @property
    def kept(self) -> bool:
        """Row data stay in registers for the second pass; otherwise they are read again."""

    @property
    def ahead(self) -> bool:
        """Whether data that only outputs read are prefetched with the row."""
