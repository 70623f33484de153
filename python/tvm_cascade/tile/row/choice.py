"""Ranks the configurations of contiguous rows by their length, dtypes and number: a table of rules.

A row is a warp's, a block's, or that of several blocks. What outputs along the axis read again waits in registers, or
in shared memory at several blocks per multiprocessor, or is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.estimate import NOMINAL
from tvm_cascade.tile.memory import itemsize
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.row.config import IN_FLIGHT_BYTES, RowConfig
from tvm_cascade.tile.row.elements import STAGED_REGISTERS, registers_of, staged_bytes, staged_streams, why_not_staged
from tvm_cascade.tile.row.segment import Peel, even_share, peel_of
from tvm_cascade.tile.row.shape import Row

_IN_FLIGHT_POSITIONS = 32
"""Positions in flight per thread, as a further limit to `IN_FLIGHT_BYTES`."""

_WIDE_IN_FLIGHT_BYTES = 64
"""The same for several elements a position, whose sums take registers, and for rows that are read again."""

_KEPT_BYTES = {
    "block": {128: 128, 256: 64, 512: 128, 1024: 128},
    "block of several inputs": {128: 64, 256: 64, 512: 256, 1024: 128},  # each of 512 threads has 128 registers
    "block of few rows": {128: 32, 256: 128, 512: 128, 1024: 128},  # alone on a multiprocessor; more are done sooner
    "block of shifted streams": {128: 128, 256: 80},  # which take the time of shared memory
    "block of float8": {128: 128, 256: 128, 512: 128},  # as few threads as that takes
    "share": {256: 128, 512: 256, 1024: 128},  # some blocks of a cluster merge while others read
    "share of few rows": {128: 64, 256: 128, 512: 128, 1024: 128},
}
"""Most bytes of own elements of a row, or of a share of a row in a cluster, in the registers of each of its threads."""

_NARROWED_REGISTERS = 24
"""Of a thread that keeps a row which is written in float8, beside one for each position. That so many blocks find room
is told to the compiler: 4096 rows of 2560, 4096 and 7168 elements took 15.3, 18.4 and 31.8 µs then, and 17.6, 22.7 and
53.6 else (measured)."""

_WARP_KEPT_BYTES = 128
"""Most bytes of row data resident in a thread's registers, for a warp per row."""

_WARP_VECTORS, _WARP_KEPT_VECTORS = 8, 4
"""Rows up to as many vectors a lane are a warp's; those that are kept for outputs are a block's sooner, if narrow."""

_LANE_VECTORS, _LEAST_LANES = 4, 4
"""Vectors of a lane up to which fewer lanes than a warp's share a row, and the fewest that do. By a warp each, 200000
rows of 32 float32 values take 3.3 to 5.3 times as long as by 4 lanes, 100000 of 100 values 1.3 to 2.0 times as long as
by 8 (measured on an H100: variance, softmax, entropy)."""

_LATENT_THREADS = 512
"""Of a multiprocessor, which hide each other's latencies: rows that have fewer are not left to fewer lanes."""

_WARP_NARROW_POSITIONS = 32
"""That a lane keeps of narrow rows."""

_RESIDENT_OF_WARPS = 8
"""Blocks of warps with many kept vectors."""

_MOST_KEPT_BYTES = 256
"""Of a row, in the registers of a thread, whatever the number of threads."""

_FEW_ROWS = 2
"""For each processor: fewer rows than this leave processors idle."""

_LEAST_SEGMENTS = 4
"""Blocks below which to share a row gains less than their merge costs."""

_CLUSTER_BYTES = 16 * 1024
"""Of a row that one block of a cluster reads at least, where rows are few; a merge over blocks takes about 1 µs."""

_WRITING_CLUSTER_BYTES, _WRITING_CLUSTER_LEAST = 4 * 1024, 32 * 1024
"""The same where it writes as much, of rows that are longer than a block alone does in that time."""

_CLUSTER_KEPT_BYTES, _CLUSTER_SHARE_BYTES = 128 * 1024, 32 * 1024
"""Of a row that a block of a cluster keeps where rows are few, half of a multiprocessor's registers, and where many."""

_GRID_BYTES, _MOST_OF_GRID = 32 * 1024, 128
"""Of a row that one block of the grid reads at least; it may have many more blocks than a cluster."""

_SHARING_BLOCKS = 8
"""Of a row, where there are no clusters, and the row is not long enough for more."""

_MOST_THREADS = 1024
"""Of a block."""

_STAGED_SHARE_BYTES = 64 * 1024
"""Of a block: three of a multiprocessor have room, so that one reads while another merges and a third writes."""

_LONE_STAGED_SHARE_BYTES = 128 * 1024
"""The same where what all rows share is read twice: the cache beside one such share holds it."""

_LEAST_STAGED_BYTES = 16 * 1024
"""Of a row: shorter ones are kept in registers."""

_STAGED_POSITIONS, _STAGED_POSITION_BYTES = 16, 64
"""That a thread works on at once; fewer where each of several streams takes registers to be shifted."""

_THREAD_POSITIONS, _THREAD_BYTES, _THREADS, _LONE_THREADS = 64, 64, 256, 512
"""Of a staged share, for each thread: of many positions, or of many bytes up to so many threads; a block alone has
more."""

_OTHER_REGISTERS, _RIM_REGISTERS = 16, 4
"""Of a thread, besides the elements that it works on, and for the rim of rows that have one."""

_STREAM_REGISTERS = 2
"""Where a stream is, for outputs that are written vector by vector."""

_AHEAD_REGISTERS = 8
"""Of a thread, where what outputs read beside a row waits too."""

_LOOP_REGISTERS = 4
"""Of a thread that goes chunk by chunk through a row that has a rim."""

_UNPEELED_VECTORS = 8
"""Rows up to as many vectors a lane are read as they are: a rim would be much of them."""

_ONE_CHUNK_POSITIONS, _MOST_SLOTS = 40, 13 / 12
"""Of a thread that has a row in one chunk; and work of warps, over the least, for which more may be under way."""


def ranked_configs(row: Row, gpu: Gpu) -> list[RowConfig]:
    """Partitions of a row, from the most to the least preferred by its length, its dtypes and the number of rows.

    The first is what the table of rules says. Others are what it says next, and neighbours of all.
    """
    length, vector = row.length, row.widest_vector
    if not isinstance(length, int):
        return _of_any_length(row, gpu)
    is_peeled = vector < row.widest_load and length > WARP * _UNPEELED_VECTORS * vector
    peel = peel_of(row, row.widest_load) if is_peeled else None
    case = _Case(row, length, vector if peel is None else peel.vector, gpu, peel)
    found = [config for rule in RULES if (config := rule(case)) is not None]
    found += [near for config in list(found) for near in _neighbours(config)]
    first, *others = dict.fromkeys(case.completed(config) for config in found)
    return [first, *(config for config in others if case.may_take(config))]


def _of_any_length(row: Row, gpu: Gpu) -> list[RowConfig]:
    """What rows of some lengths take, as far as it needs to know none: that of `NOMINAL` positions first."""
    peel = peel_of(row, row.widest_load) if row.widest_load > row.widest_vector else None
    vector = row.widest_vector if peel is None else peel.vector
    peels = {length: None if peel is None else replace(peel, length=length) for length in (NOMINAL, *_LENGTHS)}
    cases = [_Case(row, length, vector, gpu, one) for length, one in peels.items()]
    found = [case.completed(config) for case in cases if (config := _of_such_rows(case)) is not None]
    found = found or [cases[0].completed(_of_a_block(cases[0]))]  # positions are too wide for registers
    return [one for one in dict.fromkeys(found) if not one.lacks(row, gpu)]


@dataclass(frozen=True)
class _Case:
    """Rows of a length on a GPU: their own, or one that they may have."""

    row: Row
    length: int
    vector: int
    gpu: Gpu
    peel: Peel | None

    @cached_property
    def vectors(self) -> int:
        return -(-(self.length if self.peel is None else self.peel.most) // self.vector)

    @property
    def nbytes(self) -> int:
        return self.length * self.row.own_bytes

    @cached_property
    def is_few(self) -> bool:
        """Whether rows are known to be so few that processors are idle where each is a block's."""
        return isinstance(self.row.count, int) and self.row.count < _FEW_ROWS * self.gpu.processors

    @cached_property
    def lanes(self) -> int:
        """Of a warp, that share a row: so few that each has several vectors, where there are rows enough."""
        lanes, count = WARP, self.row.count
        if not isinstance(count, int) or self.peel is not None:
            return lanes
        while lanes > _LEAST_LANES and -(-2 * self.vectors // lanes) <= _LANE_VECTORS:
            if count * lanes < 2 * _LATENT_THREADS * self.gpu.processors or count * lanes // 2 % WARP:
                break
            lanes //= 2
        return lanes

    @cached_property
    def is_read_again(self) -> bool:
        """Whether data that all rows share are read in both passes."""
        return any(s.is_shared and any(s.beside(other) for other in self.row.written) for s in self.row.folded)

    @cached_property
    def read_bytes(self) -> int:
        return max(1, sum(stream.stride * itemsize(stream.dtype) for stream in self.row.folded))

    def in_flight(self, share: int, few: bool = False) -> int:
        wide = (len(self.row.folded) > 1 and not few) or bool(self.row.position_outputs)
        most = (_WIDE_IN_FLIGHT_BYTES if wide else IN_FLIGHT_BYTES) // (self.vector * self.row.own_bytes)
        return max(1, min(most, _IN_FLIGHT_POSITIONS // self.vector, share))

    def kept(self, vectors: int, kind: str, segments: int = 1) -> RowConfig | None:
        """The fewest threads that can keep so many vectors: fewer wait for each other less.

        Parameters
        ----------
        kind : of what; see `_KEPT_BYTES`.
        """
        for threads, own in _KEPT_BYTES[kind].items():
            each = -(-vectors // threads)
            # What all rows share is in registers too, and halves next to what they are widened to.
            cached = own if self.row.is_narrow else own * 3 // 2
            if each * self.vector * self.row.own_bytes <= own and each * self.vector * self.read_bytes <= cached:
                return replace(_block(threads, self.vector, each, segments, segments > 1), kept=True)
        return None

    def kept_by_a_cluster(self, segments: int, kind: str) -> RowConfig | None:
        share = even_share(self.length, segments, self.vector, self.peel)
        if share is None or not 1 < segments <= self.gpu.largest_cluster:
            return None
        return self.kept(share // self.vector, kind, segments)

    @cached_property
    def staged(self) -> RowConfig | None:
        """Rows that wait in shared memory; None for such as bulk copies cannot bring, and for short ones."""
        row, gpu, peel, vector, own = self.row, self.gpu, self.peel, self.vector, self.row.own_bytes
        if not gpu.has_clusters or self.nbytes < _LEAST_STAGED_BYTES or not staged_streams(row):
            return None
        segments, largest = 1, _LONE_STAGED_SHARE_BYTES if self.is_read_again else _STAGED_SHARE_BYTES
        while self.nbytes > largest * segments and segments < gpu.largest_cluster:
            segments, largest = 2 * segments, _STAGED_SHARE_BYTES
        if (positions := even_share(self.length, segments, vector, peel)) is None:
            return None
        shifted = 1 if peel is None else max(1, peel.shifted(row))
        vectors = max(1, min(_STAGED_POSITIONS // vector, _STAGED_POSITION_BYTES // (vector * own * shifted)))
        needed = max(positions // _THREAD_POSITIONS, min(_THREADS, positions * own // _THREAD_BYTES))
        threads = min(_MOST_THREADS, max(128, 1 << (needed - 1).bit_length()))
        room = gpu.shared_bytes // staged_bytes(row, positions, gpu)
        if room == 1:
            threads = max(threads, _LONE_THREADS)
        written = registers_of(row.written, vector, peel)
        apart = written + _STREAM_REGISTERS * len(row.written) if written * vectors > STAGED_REGISTERS else 0
        registers = _OTHER_REGISTERS + max(vectors * vector * len(row.folded), apart)
        registers += 0 if peel is None else _RIM_REGISTERS
        while threads > _THREADS and _blocks_of(gpu, registers, threads) < room:
            threads //= 2
        resident = max(1, min(room, _blocks_of(gpu, registers, threads)))
        chosen = replace(_block(threads, vector, vectors, segments, segments > 1), staged=True, resident=resident)
        return None if why_not_staged(row, positions, chosen.chunk, gpu, peel) else chosen

    def completed(self, chosen: RowConfig) -> RowConfig:
        chosen = replace(chosen, peeled=self.peel is not None, ahead=self._is_ahead(chosen))
        if self.peel is not None:
            chosen = _filled(chosen, self.peel, self.in_flight(self.length))
            chosen = replace(chosen, resident=self._resident_of_peeled(chosen))
        return replace(chosen, why=self._why(chosen))

    def _is_ahead(self, config: RowConfig) -> bool:
        """Whether data that only outputs read are prefetched with the row, as no other block hides their latency.

        That is where all blocks are on their multiprocessors at once, and leave registers for it.
        """
        row = self.row
        beside = sum(not any(s.beside(other) for other in row.folded) for s in row.written)
        if not config.kept or not beside or not isinstance(row.count, int):
            return False
        blocks = -(-row.count * config.segments * config.sharing // config.threads)
        cached = config.vectors * config.vector * (len(row.folded) + beside)
        registers = _OTHER_REGISTERS + _AHEAD_REGISTERS + cached
        return -(-blocks // self.gpu.processors) <= _blocks_of(self.gpu, registers, config.threads)

    def _resident_of_peeled(self, config: RowConfig) -> int:
        """Resident blocks per multiprocessor; the compiler needs spare registers for head, tail and shifts."""
        if config.staged or config.ahead or config.resident > 1:
            return config.resident
        return resident_threads(self.row, config, self.gpu) // config.threads

    def _why(self, chosen: RowConfig) -> str:
        if not isinstance(self.row.length, int):
            kept = f", and registers keep its first {chosen.chunk} positions" if chosen.kept else ""
            return f"the length of a row is not known before the launch{kept}"
        size = f"a row of {max(1, self.nbytes // 1024)} KiB"
        if chosen.staged:
            return f"{size} waits in shared memory, of {chosen.resident} blocks a multiprocessor"
        if chosen.segments > 1 and self.is_few:
            return f"{self.row.count} rows would leave most of {self.gpu.processors} multiprocessors idle"
        if chosen.clustered:
            return f"{size} is more than the registers of one block keep"
        if chosen.kept:
            return f"{size} stays in the registers of {'a warp' if chosen.is_of_warps else 'a block'}"
        if self.row.position_outputs:
            return f"{size} does not stay in registers, and is read again for what is written"
        return f"{size} is {'short' if chosen.is_of_warps else 'long enough for a block'}"

    def may_take(self, other: RowConfig) -> bool:
        spills = other.kept and other.vectors * other.vector * self.row.own_bytes > _MOST_KEPT_BYTES
        return not spills and not other.lacks(self.row, self.gpu)


def _of_a_warp(case: _Case) -> RowConfig | None:
    """Short rows are a warp's, unless they are so few that a block each has a multiprocessor to itself."""
    row, vectors = case.row, case.vectors
    if vectors > WARP * _WARP_VECTORS or (case.is_few and vectors > WARP):
        return None
    each = -(-vectors // case.lanes)
    found = RowConfig(128, case.lanes, case.vector, case.in_flight(each))
    if not row.position_outputs:
        return found
    kept = each * case.vector * case.row.own_bytes <= _WARP_KEPT_BYTES
    if kept:
        found = replace(found, vectors=each, kept=True)
    if each <= _WARP_KEPT_VECTORS:
        return found
    if not kept or (row.is_narrow and each * case.vector > _WARP_NARROW_POSITIONS):
        return None
    return replace(found, resident=_RESIDENT_OF_WARPS)


def _of_several_blocks(case: _Case) -> RowConfig | None:
    rows, nbytes, gpu = case.row.count, case.nbytes, case.gpu
    if not isinstance(rows, int):
        return None
    spread, clusters = gpu.processors // max(1, rows), gpu.has_clusters
    if case.row.position_outputs:
        if spread < _LEAST_SEGMENTS or not clusters:
            return None
        shares = nbytes // _WRITING_CLUSTER_BYTES if nbytes >= _WRITING_CLUSTER_LEAST else 1
        blocks = max(-(-nbytes // _CLUSTER_KEPT_BYTES), min(gpu.largest_cluster, spread, shares))
        return case.kept_by_a_cluster(1 << max(0, blocks - 1).bit_length(), "share of few rows")
    most = gpu.largest_cluster if clusters else _SHARING_BLOCKS
    if spread >= _LEAST_SEGMENTS * most and nbytes >= _LEAST_SEGMENTS * most * _GRID_BYTES:
        segments, clusters = min(spread * 2, nbytes // _GRID_BYTES, _MOST_OF_GRID), False
    else:
        segments = min(most, spread, nbytes // (_CLUSTER_BYTES if clusters else _GRID_BYTES))
        if segments < _LEAST_SEGMENTS:
            return None
        segments = 1 << (segments.bit_length() - 1)
    share = -(-case.length // (case.vector * segments))
    threads = 128 if share <= 256 else 256
    return _block(threads, case.vector, case.in_flight(-(-share // threads), few=True), segments, clusters)


def _with_position_outputs(case: _Case) -> RowConfig | None:
    """Rows that wait for their outputs in registers, or in shared memory; None for those that are read again."""
    if not case.row.position_outputs:
        return None
    return next((config for rule in WAITING if (config := rule(case)) is not None), None)


def _narrowed(case: _Case) -> RowConfig | None:
    row, gpu = case.row, case.gpu
    if case.peel is not None or case.is_few or not row.is_narrow:
        return None
    if not all(dtype_of(o.buffer).startswith("float8_e") for o in row.position_outputs):
        return None
    if (kept := case.kept(case.vectors, "block of float8")) is None:
        return None
    each = max(32, _NARROWED_REGISTERS + kept.vectors * case.vector)
    return replace(kept, resident=max(1, gpu.registers // (each * kept.threads)))


def _shifted(case: _Case) -> RowConfig | None:
    """Many rows whose outputs read several shifted streams, if few threads keep them."""
    if case.peel is None or case.is_few or case.peel.shifted(case.row) <= 1:
        return None
    return case.kept(case.vectors, "block of shifted streams")


def _staged_if_many(case: _Case) -> RowConfig | None:
    """Many narrow rows, whose conversions leave too few registers, and wide ones that share nothing that is read twice.

    Of those, a block has to have room for several.
    """
    if case.staged is None or case.is_few:
        return None
    wide = case.staged.segments == 1 and not case.is_read_again
    return case.staged if case.row.is_narrow or wide else None


def _kept_by_a_block(case: _Case) -> RowConfig | None:
    several = sum(not stream.is_shared for stream in case.row.folded) > 1
    kind = "block of several inputs" if several else "block of few rows" if case.is_few else "block"
    return case.kept(-(-case.length // case.vector), kind)


def _kept_for_what_is_shared(case: _Case) -> RowConfig | None:
    """Rows that a cluster keeps, beside data that all rows share, which are read twice."""
    gpu = case.gpu
    if not gpu.has_clusters or not case.is_read_again:
        return None
    blocks = min(gpu.largest_cluster, -(-case.nbytes // _CLUSTER_SHARE_BYTES))
    kept = case.kept_by_a_cluster(1 << (blocks - 1).bit_length(), "share")
    if kept is None:
        return None
    cached = kept.vectors * case.vector * case.read_bytes // 4
    return replace(kept, resident=max(1, gpu.registers // ((_OTHER_REGISTERS + cached) * kept.threads)))


def _of_a_block(case: _Case) -> RowConfig:
    vectors = case.vectors
    if case.row.position_outputs:
        threads = next((t for t in (128, 256, 512) if vectors <= t), 1024)
    elif case.is_few:
        threads = next((t for t in (128, 256) if vectors <= 8 * t), 512)
    else:
        threads = 128 if vectors <= 512 else 256
    return _block(threads, case.vector, case.in_flight(-(-vectors // threads), case.is_few))


_LENGTHS = tuple(1 << power for power in range(7, 14))
"""For which configurations are offered where none is known."""

_OPEN_THREADS = 128
"""Of a block that has such a row: so few that a multiprocessor has several rows, of which some are read while others
are merged and written. Rows of 16384 float32 values took 187 µs so, and 237 by blocks of 1024 threads."""


def _of_such_rows(case: _Case) -> RowConfig | None:
    """What rows whose length is not known before the launch may take."""
    if (of_a_warp := _of_a_warp(case)) is not None:
        return of_a_warp
    if not case.row.position_outputs:
        return _of_a_block(case)
    kept = _kept_by_a_block(case)
    return kept if kept is not None and kept.threads == _OPEN_THREADS else None


Rule = Callable[[_Case], RowConfig | None]

RULES: tuple[Rule, ...] = (_of_a_warp, _of_several_blocks, _with_position_outputs, _of_a_block)
"""All that apply are candidates, from the most preferred on."""

WAITING: tuple[Rule, ...] = (
    _narrowed, _shifted, _staged_if_many, _kept_by_a_block, _kept_for_what_is_shared, lambda case: case.staged,
)  # fmt: skip
"""Of rows whose outputs along the axis read them again, the first that applies."""


def _block(threads: int, vector: int, vectors: int, segments: int = 1, clustered: bool = False) -> RowConfig:
    return RowConfig(threads, threads, vector, vectors, segments, clustered)


def _neighbours(config: RowConfig) -> Iterator[RowConfig]:
    """Half and twice as many threads; where elements are not resident, half and twice as many in flight."""
    if config.staged:
        return
    for threads in (config.threads // 2, config.threads * 2):
        if WARP <= threads <= _MOST_THREADS:
            vectors, sharing = config.vectors, config.sharing if config.is_of_warps else threads
            if config.kept and not config.is_of_warps:
                vectors = -(-vectors * config.threads // threads)
            yield replace(config, threads=threads, sharing=sharing, vectors=vectors, resident=1)
    for vectors in (config.vectors // 2, config.vectors * 2):
        if vectors and not config.kept:
            yield replace(config, vectors=vectors)


def _blocks_of(gpu: Gpu, registers: int, threads: int) -> int:
    """Blocks that a processor's registers are enough for, where each thread has so many."""
    unit = gpu.register_unit
    return gpu.registers // (-(-registers // unit) * unit * threads)


def resident_threads(row: Row, config: RowConfig, gpu: Gpu) -> int:
    """Threads of a multiprocessor that its registers are enough for, at least those of a block."""
    peel = peel_of(row, config.vector) if config.peeled else None
    beside = [s for s in row.written if not any(s.beside(other) for other in row.folded)]
    registers = _OTHER_REGISTERS + config.vectors * config.vector * len(row.folded)
    registers += registers_of(beside, config.vector, peel) if config.kept else _LOOP_REGISTERS
    if peel is not None:
        registers += _RIM_REGISTERS
    if config.kept and not isinstance(row.length, int):
        rest = config.of_the_rest
        registers += _LOOP_REGISTERS + rest.vectors * rest.vector * len(row.folded)
    return max(1, _blocks_of(gpu, registers, config.threads)) * config.threads


def _filled(config: RowConfig, peel: Peel, most: int) -> RowConfig:
    """The partition of a row that a block reads once, with few absent vectors in its last chunk.

    Parameters
    ----------
    most : vectors of a thread that may be under way at once, where a row has several chunks.
    """
    if config.is_of_warps or config.segments > 1 or config.kept or config.staged:
        return config
    vectors, longest = peel.most // peel.vector, _ONE_CHUNK_POSITIONS // config.vector
    sizes = {config.threads, 128}
    cuts = [(each, threads) for threads in sizes for each in range(1, most + 1)]
    cuts += [(each, threads) for threads in sizes if (each := -(-vectors // threads)) <= longest]
    slots = {cut: _slots(vectors, *cut) for cut in cuts}
    enough = [cut for cut in cuts if slots[cut] <= min(slots.values()) * _MOST_SLOTS]
    each, threads = max(enough, key=lambda cut: (cut[0] * cut[1], cut[1]))
    return replace(config, vectors=each, threads=threads, sharing=threads)


def _slots(vectors: int, each: int, threads: int) -> int:
    """Vectors that the warps of a block go through, of a row of so many: all of a chunk where a lane has any."""
    full, rest = divmod(vectors, threads * each)
    return each * (full * (threads // WARP) + min(threads // WARP, -(-rest // WARP)))
