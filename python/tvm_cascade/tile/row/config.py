"""The configuration of a row kernel: the thread group of a row, and bytes in flight per thread."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from tvm_cascade.analysis.extent import product
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.row.linear import VECTOR_BYTES, itemsize
from tvm_cascade.tile.row.shape import Row

IN_FLIGHT_BYTES = 128
"""Bytes in flight per thread: more hides no more memory latency, and costs occupancy."""


class ThreadGroup(Enum):
    """The threads that share a row."""

    WARP = "warp"
    BLOCK = "block"
    CLUSTER = "cluster"
    GRID = "grid"


@dataclass(frozen=True)
class RowConfig:
    """The cut of a row.

    Attributes
    ----------
    thread_group : the threads of a row: a warp, a block, or several blocks of a cluster or the grid, a segment each.
    threads : of a block.
    vector : neighbouring positions that a thread reads at once.
    vectors : how many of those it has in flight.
    segments : blocks of a row.
    kept : a row's elements stay in registers until its outputs are written; otherwise they are read again.
    staged : bulk copies bring a row's own elements to shared memory, where they are read, once or again.
    peeled : vectors start where those of memory do, and what of a row lies before and after them is read apart.
    ahead : what outputs alone read is read with the row, and waits in registers as well; for rows that are kept.
    resident : blocks of a multiprocessor that registers have to do for.
    why : it was chosen, in words; empty where a caller did.
    """

    thread_group: ThreadGroup
    threads: int
    vector: int
    vectors: int
    segments: int = 1
    kept: bool = False
    staged: bool = False
    peeled: bool = False
    ahead: bool = False
    resident: int = 1
    why: str = field(default="", compare=False)

    @property
    def sharing(self) -> int:
        """Threads of one block that share a row, or a segment of it."""
        return WARP if self.thread_group is ThreadGroup.WARP else self.threads

    @property
    def positions(self) -> int:
        """Of a vector."""
        return self.vector

    @property
    def chunk(self) -> int:
        """Positions that those threads have in flight together."""
        return self.sharing * self.vector * self.vectors

    def __str__(self) -> str:
        who = {
            ThreadGroup.WARP: "a warp a row",
            ThreadGroup.BLOCK: "a block a row",
            ThreadGroup.CLUSTER: f"a cluster of {self.segments} blocks a row",
            ThreadGroup.GRID: f"{self.segments} blocks a row",
        }
        levels = {
            ThreadGroup.WARP: "lanes",
            ThreadGroup.BLOCK: "lanes and warps",
            ThreadGroup.CLUSTER: "lanes, warps and the blocks of a cluster",
            ThreadGroup.GRID: "lanes, warps and blocks",
        }
        kept = ", kept in registers" if self.kept else ""
        if self.ahead:
            kept += " with what outputs read beside them"
        if self.staged:
            kept = ", brought to shared memory by bulk copies"
        if self.peeled:
            kept += ", with the ends of rows apart from aligned loads"
        because = f": {self.why}" if self.why else ""
        return (
            f"{who[self.thread_group]} of {self.threads} threads, merged over {levels[self.thread_group]}, "
            f"{self.vectors} loads of {self.vector} positions in flight{kept}{because}"
        )


def own_bytes(row: Row) -> int:
    """Bytes of a position that no other row reads."""
    return max(1, sum(s.stride * itemsize(s.dtype) for s in row.folded if not s.is_shared))


def vector_of_memory(row: Row) -> int:
    """Elements of a widest load of the narrowest input."""
    return VECTOR_BYTES // min((itemsize(s.dtype) for s in (*row.folded, *row.written)), default=4)


def widest_vector(row: Row) -> int:
    """Elements of a vector: a widest load of the narrowest input, where all accesses are so aligned."""
    streams = [s for s in (*row.folded, *row.written) if s.stride == 1]
    neighbours = product(row.along.extents)
    if not isinstance(neighbours, int) or not row.folded:
        return 1
    vector = vector_of_memory(row)
    while vector > 1 and (neighbours % vector or any(s.alignment % vector for s in streams)):
        vector //= 2
    return vector
