"""The table row of memory-bound kernels: row programs, which read every element of their rows once."""

from __future__ import annotations

import math
from dataclasses import replace

from tvm import tirx

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.program import Program
from tvm_cascade.devices.device import Gpu, Instructions
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.cost import Counts
from tvm_cascade.tile.estimate import NOMINAL, SECTOR_BYTES, Work, merge_operations
from tvm_cascade.tile.launch.dependent import Launch
from tvm_cascade.tile.memory import itemsize
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.row.choice import ranked_configs, resident_threads
from tvm_cascade.tile.row.config import IN_FLIGHT_BYTES, RowConfig
from tvm_cascade.tile.row.kernel import ContiguousKernel, StridedKernel
from tvm_cascade.tile.row.program import RowProgram, build_row_program, state_dtype
from tvm_cascade.tile.row.shape import Row, read_row
from tvm_cascade.tile.skeleton import Setting, Skeleton
from tvm_cascade.tile.state import COUNTER

# Ranks the configurations of strided rows: lanes over neighbouring rows, groups of threads over the axis.


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

_RESIDENT, _RESIDENT_OF_WIDE_STATES = 4, 2
"""Blocks of 256 threads of a multiprocessor, at 64 registers a thread; and where states take more than their usual."""

_LEAST_CHUNKS = 2
"""Of a segment: shorter ones cost more in their merge than they gain."""


def ranked_strided_configs(row: Row, gpu: Gpu) -> list[RowConfig]:
    """The partition with enough bytes in flight per processor, and enough blocks for all; then with fewer and more."""
    cut = _block(row, _vector(row, gpu), gpu)
    while cut.vector > 1 and _idle(row, cut, gpu):
        cut = replace(cut, vector=cut.vector // 2)
    vector, length = cut.vector, row.length
    most = max(1, min(IN_FLIGHT_BYTES // (vector * row.own_bytes), _IN_FLIGHT_ELEMENTS // vector, _MOST_VECTORS))
    if isinstance(length, int):
        segments = _segments(row, length, cut, gpu)
        share = -(-length // (cut.sharing * segments))
        kept = bool(row.position_outputs) and share <= 32 and share * vector * row.own_bytes <= _KEPT_BYTES
        most = share if kept else min(most, share)
        cut = replace(cut, segments=segments, clustered=bool(row.position_outputs) and segments > 1, kept=kept)
    chosen = replace(cut, vectors=most if cut.kept else _enough(row, replace(cut, vectors=most), gpu))
    flights = () if chosen.kept else (chosen.vectors // 2, chosen.vectors * 2)
    others = [replace(chosen, vectors=each) for each in flights if each and each <= _MOST_VECTORS]
    return [replace(one, why=_why(row, one)) for one in (chosen, *others)]


def _vector(row: Row, gpu: Gpu) -> int:
    """Rows of a thread, so that their states fit its registers and those of a block its shared memory."""
    registers = _state_registers(row)
    vector = row.widest_vector
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
    return min((itemsize(s.dtype) for s in row.folded), default=4)


def _state_registers(row: Row) -> int:
    parts = [state_dtype(row, c) for c in row.fold.components]
    parts += ["float32" for _ in row.fold.references] + [COUNTER]
    return sum(max(1, itemsize(dtype) // 4) for dtype in parts)


def _resident(row: Row, vector: int) -> int:
    wide = vector * _narrowest(row) > _NARROW_BYTES and vector * _state_registers(row) > _STATE_REGISTERS
    return _RESIDENT_OF_WIDE_STATES if wide else _RESIDENT


def _block(row: Row, vector: int, gpu: Gpu) -> RowConfig:
    def of(shape: tuple[int, int]) -> RowConfig:
        lanes, groups = shape
        return RowConfig(lanes * groups, groups, vector, 1, strided=True)

    enough = [one for one in map(of, _BLOCK_SHAPES) if (_blocks(row, one) or gpu.processors) >= gpu.processors]
    found = enough[0] if enough else of(_BLOCK_SHAPES[-1])
    if isinstance(row.length, int) and row.length <= _ALONE_POSITIONS and not row.position_outputs:
        alone = of(_ALONE)
        if (_blocks(row, alone) or gpu.processors) >= gpu.processors:
            return alone
    return of(_SHORT) if isinstance(row.length, int) and row.length < found.sharing else found


def _idle(row: Row, cut: RowConfig, gpu: Gpu) -> bool:
    """Whether multiprocessors stay idle that narrower vectors, of full sectors, would give work."""
    blocks = _blocks(row, cut)
    narrow = cut.lanes * (cut.vector // 2) * _narrowest(row) < SECTOR_BYTES
    if blocks is None or not isinstance(row.length, int) or narrow:
        return False
    return blocks * _segments(row, row.length, cut, gpu) < gpu.processors * _BUSY_PART[0] // _BUSY_PART[1]


def _blocks(row: Row, cut: RowConfig) -> int | None:
    """Of all rows; None where that is not known before the launch."""
    return -(-row.count // cut.rows) if isinstance(row.count, int) else None


def _segments(row: Row, length: int, cut: RowConfig, gpu: Gpu) -> int:
    """Blocks of the same rows as give every multiprocessor some; of clusters as many as there may be."""
    blocks = _blocks(row, cut)
    if blocks is None or blocks >= gpu.processors:
        return 1
    most = min(gpu.largest_cluster, cut.sharing) if row.position_outputs else WARP
    enough = _resident(row, cut.vector) * gpu.processors // blocks
    segments = max(1, min(most, enough, length // (cut.sharing * _LEAST_CHUNKS)))
    return 1 << (segments.bit_length() - 1) if row.position_outputs else segments


def _enough(row: Row, config: RowConfig, gpu: Gpu) -> int:
    blocks = _blocks(row, config)
    resident = _resident(row, config.vector)
    if blocks is not None:
        resident = min(resident, -(-blocks * config.segments // gpu.processors))
    each = config.threads * config.vector * row.own_bytes * resident
    least = _WRITTEN_IN_FLIGHT_BYTES if row.position_outputs else LEAST_IN_FLIGHT_BYTES
    return max(1, min(config.vectors, -(-least // each)))


def _why(row: Row, config: RowConfig) -> str:
    flight = config.threads * config.vector * config.vectors * row.own_bytes
    strided, lanes = row.axis.parts[-1].name, row.lanes.parts[-1].name
    return f"{strided} is not contiguous in memory, {lanes} is; a block has {max(1, flight // 1024)} KiB in flight"


_ISSUED = 2
"""Instructions for an operation of a merge."""

_UNTIL_WRITTEN = 1.5
"""By how much longer a thread takes that writes a row after all threads have read it: 2.8 to 4.4 µs, whatever their
number (measured on an H200, of rows whose blocks leave no room for others)."""


def _slots(config: RowConfig, length: int) -> int:
    """Positions that the threads of a row go through: all of a chunk, whether a row has them or not."""
    chunk, share = config.of_the_rest.chunk if config.kept else config.chunk, -(-length // config.segments)
    return -(-share // chunk) * chunk * config.segments


def _read_again(row: Row, config: RowConfig, length: int) -> int:
    """Bytes of a row that its outputs read again, from the second-level cache."""
    if not row.position_outputs or config.staged:
        return 0
    kept = config.chunk * config.segments if config.kept else 0
    return max(0, length - kept) * row.own_bytes


class RowSkeleton(Skeleton[RowProgram, RowConfig]):
    """Folds along an axis in memory: contiguous rows, or strided ones whose neighbours in memory are rows."""

    name, kind, covers = "row", "memory-bound kernel", "folds along rows or columns of memory"
    instructions, joint, guards = frozenset({Instructions.PTX}), True, True
    option = "row_kernels"

    def read(self, program: Program, group: Group, options: FuseOptions) -> RowProgram:
        return build_row_program(read_row(program, group, options.guards))

    def alternatives(self, program: RowProgram, setting: Setting) -> list[RowConfig]:
        ranked = ranked_strided_configs if program.row.is_strided else ranked_configs
        return ranked(program.row, setting.gpu)

    def lacks(self, program: RowProgram, config: RowConfig, setting: Setting) -> str:
        return config.lacks(program.row, setting.gpu)

    def counts(self, program: RowProgram, config: RowConfig, work: Work, setting: Setting) -> Counts:
        """All threads, and the merges of those of a row: of positions, and of levels; none of strided rows."""
        row, gpu = program.row, setting.gpu
        length, count = (n if isinstance(n, int) else NOMINAL for n in (row.length, row.count))
        threads = -(-count // config.rows) * config.segments * config.threads / gpu.processors
        if config.strided:
            return Counts(work, threads=threads / gpu.resident_threads)
        places = min(gpu.resident_threads, resident_threads(row, config, gpu)) if config.kept else gpu.resident_threads
        threads *= (_UNTIL_WRITTEN if row.position_outputs else 1.0) / places
        sharing = config.sharing * config.segments
        merges = -(-length // sharing) + math.log2(sharing)
        operations = merges * sum(merge_operations(stage) for stage in row.program.stages)
        between = {"merge_seconds": operations}
        again = _read_again(row, config, length) * count / gpu.processors
        if again:
            between["own_bytes_per_second"] = again
        work = work.live(computed=_slots(config, length) / length, read=1.0)
        issued = _ISSUED * operations * count * sharing
        return Counts(work, work.bytes if again else 0.0, threads, issued, between=between)

    def emit(self, program: RowProgram, config: RowConfig, name: str, _launch: Launch) -> tirx.PrimFunc:
        return (StridedKernel if config.strided else ContiguousKernel)(program, config).build(name)

    def fast_math(self, program: RowProgram) -> bool:
        """Where all inputs are of half width."""
        return program.row.is_narrow
