"""The configuration of a column kernel: lanes over neighbouring rows, groups of threads over the axis."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.row.config import IN_FLIGHT_BYTES, own_bytes, widest_vector
from tvm_cascade.tile.row.linear import itemsize
from tvm_cascade.tile.row.program import state_dtype
from tvm_cascade.tile.row.segment import check_kept, check_segments, share_of_row
from tvm_cascade.tile.row.shape import Row
from tvm_cascade.tile.state import COUNTER

LEAST_IN_FLIGHT_BYTES, _WRITTEN_IN_FLIGHT_BYTES = 64 * 1024, 128 * 1024
"""Least bytes in flight per multiprocessor (Little's law); twice as many where writes equal reads."""

_BLOCK_SHAPES = ((32, 8), (16, 16), (8, 32))
"""(lanes, groups) of a block: the widest whose blocks are enough; eight lanes of 16 bytes are a line of the cache."""

_SHORT = (32, 4)
"""The same for axes shorter than the groups of another."""

_ALONE, _ALONE_POSITIONS = (128, 1), 16
"""The same for axes so short that a thread has all positions of its rows in flight, where its blocks are enough."""

_STATE_REGISTERS, _MOST_STATE_REGISTERS = 20, 64
"""Registers for a thread's states: large states mean fewer rows a thread, except for narrow loads."""

_NARROW_BYTES, _NARROW_BYTES_OF_HALVES = 8, 16
"""Loads that are no wider take more of the memory's time than registers for more states do; those of halves bring twice
as many rows, where no outputs along the axis take registers too."""

_HALF = 2
"""Bytes of a half-precision number."""

_STATE_BYTES = 96 * 1024
"""Most bytes of shared memory for the states of a block."""

_KEPT_BYTES = 128
"""Most bytes of row data resident in a thread's registers."""

_IN_FLIGHT_ELEMENTS, _MOST_VECTORS = 64, 32
"""Of a thread: what is computed from them takes registers too."""

_BUSY_PART = 2, 3
"""With blocks for so many of the processors, what narrower vectors cost is more than what idle processors do."""

_SECTOR_BYTES = 32
"""That memory moves at least."""

_RESIDENT, _RESIDENT_OF_WIDE_STATES = 4, 2
"""Blocks of 256 threads of a multiprocessor, at 64 registers a thread; and where states take more than their usual."""

_LEAST_CHUNKS = 2
"""Of a segment: shorter ones cost more in their merge than they gain."""


@dataclass(frozen=True)
class ColumnConfig:
    """The partition of a column kernel.

    Attributes
    ----------
    lanes : threads beside each other, each with a vector of rows.
    groups : of so many threads, that split the positions; a power of two, at most 32.
    vector : neighbouring rows that a thread reads at once, and folds.
    vectors : positions that it has in flight.
    segments : blocks of the same rows, at most 32; of a cluster, where outputs along the axis read the whole.
    kept : elements stay in registers until outputs are written; otherwise they are read again.
    resident : blocks of a multiprocessor that registers have to do for.
    why : it was chosen, in words; empty where a caller did.
    """

    lanes: int
    groups: int
    vector: int
    vectors: int
    segments: int = 1
    kept: bool = False
    resident: int = 1
    why: str = field(default="", compare=False)

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.lanes * self.groups

    @property
    def rows(self) -> int:
        """Of a block."""
        return self.lanes * self.vector

    @property
    def positions(self) -> int:
        """Of a vector."""
        return 1

    @property
    def sharing(self) -> int:
        """Threads of one block that share a row, or a segment of it."""
        return self.groups

    @property
    def chunk(self) -> int:
        """Positions that those threads have in flight together."""
        return self.groups * self.vectors

    @property
    def is_alone(self) -> bool:
        """Whether every thread has all positions of its rows."""
        return self.groups == 1 and self.segments == 1

    def is_cluster(self, gpu: Gpu) -> bool:
        """Whether the blocks of the same rows can be one block, or a cluster, where there are clusters."""
        count = self.segments
        return count == 1 or (count & (count - 1) == 0 and count <= min(gpu.largest_cluster, self.groups))

    @property
    def ahead(self) -> bool:
        """What outputs alone read is read when they are written."""
        return False

    def __str__(self) -> str:
        if self.is_alone:
            because = f": {self.why}" if self.why else ""
            rows = f"a thread for {self.vector} neighbouring rows, {self.lanes} a block"
            return f"{rows}, {self.vectors} loads in flight{because}"
        blocks = f"{self.segments} blocks for" if self.segments > 1 else "a block for"
        levels = "groups and blocks" if self.segments > 1 else "groups"
        kept = ", kept in registers" if self.kept else ""
        because = f": {self.why}" if self.why else ""
        return (
            f"{blocks} {self.rows} neighbouring rows, {self.lanes} lanes of {self.vector}, positions split over "
            f"{self.groups} groups of lanes, merged over {levels}, {self.vectors} loads of {self.vector} rows in flight"
            f"{kept}{because}"
        )


def ranked_column_configs(row: Row, gpu: Gpu) -> list[ColumnConfig]:
    """The partition with enough bytes in flight per processor, and enough blocks for all; then with fewer and more.

    Parameters
    ----------
    gpu : whose processors it keeps busy; how large its clusters are.
    """
    length = row.length
    vector = _vector(row, gpu)
    lanes, groups = _block_shape(row, vector, gpu)
    most_segments = WARP
    if row.position_outputs:
        most_segments = min(gpu.largest_cluster, groups)
    while vector > 1 and _idle(row, lanes, groups, vector, most_segments, gpu):
        vector //= 2
    most = max(1, min(IN_FLIGHT_BYTES // (vector * own_bytes(row)), _IN_FLIGHT_ELEMENTS // vector, _MOST_VECTORS))
    segments, kept = 1, False
    if isinstance(length, int):
        segments = _segments(row, length, lanes, groups, vector, most_segments, gpu)
        share = -(-length // (groups * segments))
        kept = bool(row.position_outputs) and share <= 32 and share * vector * own_bytes(row) <= _KEPT_BYTES
        most = share if kept else min(most, share)
    chosen = ColumnConfig(lanes, groups, vector, most, segments, kept)
    if not kept:
        chosen = dataclasses.replace(chosen, vectors=_enough(row, chosen, gpu))
    flights = () if kept else (chosen.vectors // 2, chosen.vectors * 2)
    others = [dataclasses.replace(chosen, vectors=each) for each in flights if each and each <= _MOST_VECTORS]
    return [dataclasses.replace(one, why=_why(row, one)) for one in (chosen, *others)]


def _vector(row: Row, gpu: Gpu) -> int:
    """Rows of a thread, so that their states fit its registers and those of a block its shared memory."""
    registers = _state_registers(row)
    vector = widest_vector(row)
    threads = max(lanes * groups for lanes, groups in _BLOCK_SHAPES)
    narrowest = _narrowest(row)
    narrow = _NARROW_BYTES_OF_HALVES if narrowest == _HALF and not row.position_outputs else _NARROW_BYTES
    shared = min(_STATE_BYTES, gpu.block_shared_bytes)
    while vector > 1:
        most = _MOST_STATE_REGISTERS if vector * narrowest <= narrow else _STATE_REGISTERS
        if vector * registers <= most and vector * registers * 4 * threads <= shared:
            break
        vector //= 2
    return vector


def _narrowest(row: Row) -> int:
    """Bytes of an element of the narrowest input."""
    return min((itemsize(s.dtype) for s in row.folded), default=4)


def _state_registers(row: Row) -> int:
    """Of one row's state."""
    parts = [state_dtype(row, c) for c in row.fold.components]
    parts += ["float32" for _ in row.fold.references] + [COUNTER]
    return sum(max(1, itemsize(dtype) // 4) for dtype in parts)


def _resident(row: Row, vector: int) -> int:
    """Blocks of a multiprocessor, of so many rows a thread."""
    wide = vector * _narrowest(row) > _NARROW_BYTES and vector * _state_registers(row) > _STATE_REGISTERS
    return _RESIDENT_OF_WIDE_STATES if wide else _RESIDENT


def _block_shape(row: Row, vector: int, gpu: Gpu) -> tuple[int, int]:
    enough = [s for s in _BLOCK_SHAPES if (_blocks(row, s[0] * vector) or gpu.processors) >= gpu.processors]
    lanes, groups = enough[0] if enough else _BLOCK_SHAPES[-1]
    if isinstance(row.length, int) and row.length <= _ALONE_POSITIONS and not row.position_outputs:
        blocks = _blocks(row, _ALONE[0] * vector)
        if blocks is None or blocks >= gpu.processors:
            return _ALONE
    if isinstance(row.length, int) and row.length < groups:
        lanes, groups = _SHORT
    return lanes, groups


def _idle(row: Row, lanes: int, groups: int, vector: int, most_segments: int, gpu: Gpu) -> bool:
    """Whether multiprocessors stay idle that narrower vectors, of full sectors, would give work."""
    narrowest = _narrowest(row)
    blocks = _blocks(row, lanes * vector)
    if blocks is None or not isinstance(row.length, int) or lanes * (vector // 2) * narrowest < _SECTOR_BYTES:
        return False
    segments = _segments(row, row.length, lanes, groups, vector, most_segments, gpu)
    return blocks * segments < gpu.processors * _BUSY_PART[0] // _BUSY_PART[1]


def _blocks(row: Row, rows: int) -> int | None:
    """Of so many rows each; None where that is not known before the launch."""
    return -(-row.count // rows) if isinstance(row.count, int) else None


def _segments(row: Row, length: int, lanes: int, groups: int, vector: int, most: int, gpu: Gpu) -> int:
    """Blocks of the same rows, up to so many: as give every multiprocessor some; clusters are of powers of two."""
    blocks = _blocks(row, lanes * vector)
    if blocks is None or blocks >= gpu.processors:
        return 1
    enough = _resident(row, vector) * gpu.processors // blocks
    segments = max(1, min(most, enough, length // (groups * _LEAST_CHUNKS)))
    return 1 << (segments.bit_length() - 1) if row.position_outputs else segments


def _enough(row: Row, config: ColumnConfig, gpu: Gpu) -> int:
    """Vectors in flight, no more than there have to be."""
    blocks = _blocks(row, config.rows)
    resident = _resident(row, config.vector)
    if blocks is not None:
        resident = min(resident, -(-blocks * config.segments // gpu.processors))
    each = config.threads * config.vector * own_bytes(row) * resident
    least = _WRITTEN_IN_FLIGHT_BYTES if row.position_outputs else LEAST_IN_FLIGHT_BYTES
    return max(1, min(config.vectors, -(-least // each)))


def _why(row: Row, config: ColumnConfig) -> str:
    flight = config.threads * config.vector * config.vectors * own_bytes(row)
    apart, beside = row.axis.variables[-1].name, row.lanes.variables[-1].name
    return (
        f"neighbours along {apart} lie apart in memory, those along {beside} do not; "
        f"a block has {max(1, flight // 1024)} KiB in flight"
    )


def check_column_config(row: Row, config: ColumnConfig, gpu: Gpu) -> None:
    """Checks that a GPU can run this configuration of a column kernel.

    Raises
    ------
    Unfit
        Where the extents that segments are cut from are not known, registers keep less than all of a share, or outputs
        read results that no block has.
    """
    check_kept(config, share_of_row(row, config))
    if row.position_outputs and not config.is_cluster(gpu):
        raise Unfit(f"{config}: no block has the results that outputs along the axis read")
    check_segments(row, config.segments, 0 if row.position_outputs else row.count)
