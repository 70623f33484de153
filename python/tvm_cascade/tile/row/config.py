"""How a row kernel is cut: which threads share a row, and how much of it each has in flight; a table by shape."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import Enum

from tvm_cascade.analysis.extent import product
from tvm_cascade.tile.config import MULTIPROCESSORS
from tvm_cascade.tile.merge.cluster import LARGEST_CLUSTER
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.row.linear import VECTOR_BYTES, itemsize
from tvm_cascade.tile.row.shape import Row

IN_FLIGHT_BYTES, _IN_FLIGHT_POSITIONS = 128, 32
"""Of a thread, under way at once: more hides no more of the memory's latency, and takes registers from other blocks."""

_WIDE_IN_FLIGHT_BYTES = 64
"""The same where a position has several elements, whose sums take registers too, and where rows are read again."""

_KEPT_BYTES = {32: 128, 128: 128, 256: 64, 512: 128, 1024: 128}
"""Of a row's own elements that a thread keeps in registers until its outputs are written, by threads that share it."""

_SEVERAL_KEPT_BYTES = {32: 128, 128: 64, 256: 64, 512: 256, 1024: 128}
"""The same of rows of several inputs: of a block of 512 threads, each has 128 registers."""

_WARP_VECTORS, _WARP_KEPT_VECTORS = 8, 4
"""Rows up to as many vectors a lane are a warp's; those that are kept for outputs are a block's sooner."""

_CLUSTER_BYTES = 16 * 1024
"""Of a row that one block of a cluster reads at least, where rows are few; a merge over blocks takes about 1 µs."""

_CLUSTER_KEPT_BYTES = 128 * 1024
"""Of a row that one block of a cluster keeps: half of a multiprocessor's registers."""

_GRID_BYTES = 32 * 1024
"""Of a row that one block of the grid reads at least; it may have many more blocks than a cluster."""

_LEAST_SEGMENTS = 4
"""Blocks below which to share a row gains less than their merge costs."""

_FEW_ROWS = 2 * MULTIPROCESSORS
"""Fewer rows than this leave multiprocessors idle."""


class Team(Enum):
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
    team : who shares a row: a warp, a block, or several blocks, of a cluster or of the grid, each with a segment.
    threads : of a block.
    vector : neighbouring positions that a thread reads at once.
    vectors : how many of those it has in flight.
    segments : blocks of a row.
    kept : a row's elements stay in registers until its outputs are written; otherwise they are read again.
    staged : bulk copies bring a row's own elements to shared memory, where they are read, once or again.
    resident : blocks of a multiprocessor that registers have to do for.
    rows : that a team goes through, one after the other, of those that are staged; what all rows share stays.
    stages : rows of those that are at hand or under way at once.
    why : it was chosen, in words; empty where a caller did.
    """

    team: Team
    threads: int
    vector: int
    vectors: int
    segments: int = 1
    kept: bool = False
    staged: bool = False
    resident: int = 1
    rows: int = 1
    stages: int = 1
    why: str = field(default="", compare=False)

    @property
    def sharing(self) -> int:
        """Threads of one block that share a row, or a segment of it."""
        return WARP if self.team is Team.WARP else self.threads

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
            Team.WARP: "a warp a row",
            Team.BLOCK: "a block a row",
            Team.CLUSTER: f"a cluster of {self.segments} blocks a row",
            Team.GRID: f"{self.segments} blocks a row",
        }
        levels = {
            Team.WARP: "lanes",
            Team.BLOCK: "lanes and warps",
            Team.CLUSTER: "lanes, warps and the blocks of a cluster",
            Team.GRID: "lanes, warps and blocks",
        }
        kept = ", kept in registers" if self.kept else ""
        if self.staged:
            kept = ", brought to shared memory by bulk copies"
        if self.rows > 1:
            kept += f", {self.rows} rows one after the other, {self.stages} at hand or under way"
        because = f": {self.why}" if self.why else ""
        return (
            f"{who[self.team]} of {self.threads} threads, merged over {levels[self.team]}, "
            f"{self.vectors} loads of {self.vector} positions in flight{kept}{because}"
        )


def choose_row_config(row: Row, clusters: bool = True) -> RowConfig:
    """The cut of a row, from its length, its dtypes and how many rows there are.

    Parameters
    ----------
    clusters : whether the GPU has clusters of blocks.

    Raises
    ------
    Unfit
        Where there is none for its shape.
    """
    length = row.length
    if isinstance(length, int) and length == 0:
        raise Unfit("the axis is empty")
    vector = widest_vector(row)
    if not isinstance(length, int):
        chosen = RowConfig(Team.BLOCK, 256, vector, _in_flight(row, vector, 256))
        return dataclasses.replace(chosen, why="the length of a row is not known before the launch")
    chosen = _of_known_length(row, length, vector, clusters)
    return dataclasses.replace(chosen, why=_why(row, length, chosen))


def _of_known_length(row: Row, length: int, vector: int, clusters: bool) -> RowConfig:
    vectors, rows = -(-length // vector), row.count
    few = isinstance(rows, int) and rows < _FEW_ROWS
    chosen = _of_a_warp(row, vector, vectors, few)
    if chosen is None and isinstance(rows, int):
        chosen = _of_several_blocks(row, length, rows, vector, clusters)
    if chosen is None and row.whole_rows:
        chosen = _kept_by_a_block(row, length, vector)
    return chosen or _of_a_block(row, vector, vectors, few)


def _why(row: Row, length: int, chosen: RowConfig) -> str:
    size = f"a row of {max(1, length * own_bytes(row) // 1024)} KiB"
    rows = row.count
    if chosen.segments > 1 and isinstance(rows, int) and rows < _FEW_ROWS:
        return f"{rows} rows would leave most of {MULTIPROCESSORS} multiprocessors idle"
    if chosen.team is Team.CLUSTER:
        return f"{size} is more than the registers of one block keep"
    if chosen.kept:
        return f"{size} stays in the registers of {'a warp' if chosen.team is Team.WARP else 'a block'}"
    if row.whole_rows:
        return f"{size} does not stay in registers, and is read again for what is written"
    return f"{size} is {'short' if chosen.team is Team.WARP else 'long enough for a block'}"


def _of_a_warp(row: Row, vector: int, vectors: int, few: bool) -> RowConfig | None:
    """Short rows are a warp's, unless they are so few that a block each has a multiprocessor to itself."""
    most = _WARP_KEPT_VECTORS if row.whole_rows else _WARP_VECTORS
    if vectors > WARP * most or (few and vectors > WARP):
        return None
    each = -(-vectors // WARP)
    kept = bool(row.whole_rows) and each * vector * own_bytes(row) <= _KEPT_BYTES[WARP]
    return RowConfig(Team.WARP, 128, vector, each if kept else min(each, _in_flight(row, vector, each)), kept=kept)


def _of_several_blocks(row: Row, length: int, rows: int, vector: int, clusters: bool) -> RowConfig | None:
    """Blocks share rows that are too few for the multiprocessors, and such as one block cannot keep."""
    nbytes = length * own_bytes(row)
    spread = MULTIPROCESSORS // max(1, rows)
    if row.whole_rows:
        blocks = -(-nbytes // _CLUSTER_KEPT_BYTES)
        if spread >= _LEAST_SEGMENTS:
            blocks = max(blocks, min(LARGEST_CLUSTER, spread, nbytes // _CLUSTER_BYTES))
        elif row.is_narrow:  # their conversions take as long as it takes to read them again
            return None
        if not clusters:
            return None
        return _kept_by_a_cluster(row, length, vector, 1 << max(0, blocks - 1).bit_length())
    if spread >= _LEAST_SEGMENTS * LARGEST_CLUSTER and nbytes >= _LEAST_SEGMENTS * LARGEST_CLUSTER * _GRID_BYTES:
        return _shared(row, length, vector, Team.GRID, min(spread * 2, nbytes // _GRID_BYTES, 128))
    segments = min(LARGEST_CLUSTER, spread, nbytes // (_CLUSTER_BYTES if clusters else _GRID_BYTES))
    if segments < _LEAST_SEGMENTS:
        return None
    return _shared(row, length, vector, Team.CLUSTER if clusters else Team.GRID, 1 << (segments.bit_length() - 1))


def _shared(row: Row, length: int, vector: int, team: Team, segments: int) -> RowConfig:
    share = -(-length // (vector * segments))
    threads = 128 if share <= 256 else 256
    return RowConfig(team, threads, vector, _in_flight(row, vector, -(-share // threads), few=True), segments)


def _kept_by_a_cluster(row: Row, length: int, vector: int, segments: int) -> RowConfig | None:
    """Each block keeps its share; all shares are of one length."""
    if not 1 < segments <= LARGEST_CLUSTER or length % (segments * vector):
        return None
    share = length // (segments * vector)
    return _kept(row, vector, share, Team.CLUSTER, (512, 1024) if segments == LARGEST_CLUSTER else (1024,), segments)


def _kept_by_a_block(row: Row, length: int, vector: int) -> RowConfig | None:
    return _kept(row, vector, -(-length // vector), Team.BLOCK, (128, 256, 512, 1024))


def _kept(
    row: Row, vector: int, vectors: int, team: Team, candidates: tuple[int, ...], segments: int = 1
) -> RowConfig | None:
    """The fewest threads that can keep so many vectors: fewer wait for each other less."""
    several = sum(not stream.is_shared for stream in row.folded) > 1
    for threads in candidates:
        each = -(-vectors // threads)
        most = (_SEVERAL_KEPT_BYTES if several else _KEPT_BYTES)[threads]
        # What all rows share is held too, and halves beside what they are widened to.
        held = most if row.is_narrow else most * 3 // 2
        if each * vector * own_bytes(row) <= most and each * vector * _bytes_per_position(row) <= held:
            return RowConfig(team, threads, vector, each, segments, kept=True)
    return None


def _of_a_block(row: Row, vector: int, vectors: int, few: bool) -> RowConfig:
    if row.whole_rows:
        threads = next((t for t in (128, 256, 512) if vectors <= t), 1024)
    elif few:
        threads = next((t for t in (128, 256) if vectors <= 8 * t), 512)
    else:
        threads = 128 if vectors <= 512 else 256
    return RowConfig(Team.BLOCK, threads, vector, _in_flight(row, vector, -(-vectors // threads), few))


def _in_flight(row: Row, vector: int, share: int, few: bool = False) -> int:
    """Vectors of a thread that are under way at once, of those that it has to read."""
    wide = (len(row.folded) > 1 and not few) or bool(row.whole_rows)
    most = (_WIDE_IN_FLIGHT_BYTES if wide else IN_FLIGHT_BYTES) // (vector * own_bytes(row))
    return max(1, min(most, _IN_FLIGHT_POSITIONS // vector, share))


def own_bytes(row: Row) -> int:
    """Bytes of a position that no other row reads."""
    return max(1, sum(s.stride * itemsize(s.dtype) for s in row.folded if not s.is_shared))


def _bytes_per_position(row: Row) -> int:
    """Bytes that a fold reads of a position."""
    return max(1, sum(stream.stride * itemsize(stream.dtype) for stream in row.folded))


def widest_vector(row: Row) -> int:
    """Neighbours of a vector: as many as make a widest load of the narrowest input, where all lie on such bounds."""
    streams = [s for s in (*row.folded, *row.written) if s.stride == 1]
    neighbours = product(row.along.extents)
    if not isinstance(neighbours, int) or not row.folded:
        return 1
    narrowest = min((itemsize(s.dtype) for s in (*row.folded, *row.written)), default=4)
    vector = VECTOR_BYTES // narrowest
    while vector > 1 and (neighbours % vector or any(s.alignment % vector for s in streams)):
        vector //= 2
    return vector
