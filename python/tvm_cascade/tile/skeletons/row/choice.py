"""Ranks a row kernel's configurations by row length, dtypes and number of rows; a table by shape."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from tvm_cascade.analysis.extent import Extent
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.row.config import (
    IN_FLIGHT_BYTES,
    RowConfig,
    ThreadGroup,
    own_bytes,
    widest_vector,
)
from tvm_cascade.tile.row.linear import itemsize
from tvm_cascade.tile.row.peel import Peel, even_share
from tvm_cascade.tile.row.shape import Row
from tvm_cascade.tile.skeletons.row.fits import check_row_config
from tvm_cascade.tile.skeletons.row.peeled_choice import SHIFTED_KEPT_BYTES, chosen_peel, filled, resident_of
from tvm_cascade.tile.skeletons.row.staged_choice import (
    OTHER_REGISTERS,
    blocks_of,
    is_read_again,
    staged_config,
)

_IN_FLIGHT_POSITIONS = 32
"""Positions in flight per thread, as a further limit to `IN_FLIGHT_BYTES`."""

_WIDE_IN_FLIGHT_BYTES = 64
"""The same for several elements a position, whose sums take registers, and for rows that are read again."""

_KEPT_BYTES = {128: 128, 256: 64, 512: 128, 1024: 128}
"""Most bytes of row data resident in a thread's registers, by threads per row."""

_SEVERAL_KEPT_BYTES = {128: 64, 256: 64, 512: 256, 1024: 128}
"""The same for rows of several inputs; in a block of 512 threads, each has 128 registers."""

_WARP_KEPT_BYTES = 128
"""The same for a warp per row."""

_SHARE_KEPT_BYTES = {256: 128, 512: 256, 1024: 128}
"""The same for a block of a cluster, with many rows: some blocks merge while others read."""

_WARP_VECTORS, _WARP_KEPT_VECTORS = 8, 4
"""Rows up to as many vectors a lane are a warp's; those that are kept for outputs are a block's sooner, if narrow."""

_WARP_NARROW_POSITIONS = 32
"""That a lane keeps of narrow rows."""

_AHEAD_REGISTERS = 8
"""Of a thread, where what outputs read beside a row waits too."""

_RESIDENT_OF_WARPS = 8
"""Blocks of warps with many kept vectors."""

_CLUSTER_BYTES = 16 * 1024
"""Of a row that one block of a cluster reads at least, where rows are few; a merge over blocks takes about 1 µs."""

_WRITING_CLUSTER_BYTES, _WRITING_CLUSTER_LEAST = 4 * 1024, 32 * 1024
"""The same where it writes as much, of rows that are longer than a block alone does in that time."""

_FEW_KEPT_BYTES = {128: 32, 256: 128, 512: 128, 1024: 128}
"""What a thread keeps where rows are few: a block has a multiprocessor to itself, and more threads are done sooner."""

_FEW_SHARE_KEPT_BYTES = {128: 64, 256: 128, 512: 128, 1024: 128}
"""The same of the share of a cluster's block."""

_CLUSTER_KEPT_BYTES, _CLUSTER_SHARE_BYTES = 128 * 1024, 32 * 1024
"""Of a row that a block of a cluster keeps where rows are few, half of a multiprocessor's registers, and where many."""

_GRID_BYTES = 32 * 1024
"""Of a row that one block of the grid reads at least; it may have many more blocks than a cluster."""

_LEAST_SEGMENTS = 4
"""Blocks below which to share a row gains less than their merge costs."""

_MOST_THREADS = 1024
"""Of a block."""

_MOST_KEPT_BYTES = 256
"""Of a row, in the registers of a thread, whatever the number of threads."""

_FEW_ROWS = 2
"""For each processor: fewer rows than this leave processors idle."""

_SHARING_BLOCKS = 8
"""Of a row, where there are no clusters, and the row is not long enough for more."""


_NARROWED_KEPT_BYTES = 128
"""What a thread keeps of many rows that are written in float8, by blocks of as few threads as that takes."""

_NARROWED_REGISTERS = 24
"""Of such a thread, beside one for each position. That so many blocks find room is told to the compiler: 4096 rows of
2560, 4096 and 7168 elements took 15.3, 18.4 and 31.8 µs then, and 17.6, 22.7 and 53.6 else (measured)."""


def ranked_row_configs(row: Row, gpu: Gpu) -> list[RowConfig]:
    """Partitions of a row, from the most to the least preferred by its length, its dtypes and the number of rows.

    The first is what the table of shapes says. Others are what it says next, and neighbours of all.

    Parameters
    ----------
    gpu : whose processors it keeps busy; whether it has clusters of blocks, and bulk copies.
    """
    length, vector = row.length, widest_vector(row)
    if not isinstance(length, int):
        chosen = RowConfig(ThreadGroup.BLOCK, 256, vector, _in_flight(row, vector, 256))
        return [dataclasses.replace(chosen, why="the length of a row is not known before the launch")]
    peel = chosen_peel(row, length, vector)
    vector = vector if peel is None else peel.vector
    first, *others = _of_known_length(row, length, vector, gpu, peel)
    others += [near for config in (first, *others) for near in _neighbours(config)]
    ranked = [_completed(config, row, length, gpu, peel) for config in (first, *others)]
    return [ranked[0], *(config for config in dict.fromkeys(ranked[1:]) if _may_replace(ranked[0], config, row, gpu))]


def _completed(chosen: RowConfig, row: Row, length: int, gpu: Gpu, peel: Peel | None) -> RowConfig:
    """A partition with what follows from it."""
    chosen = dataclasses.replace(chosen, peeled=peel is not None, ahead=_is_ahead(row, chosen, gpu))
    if peel is not None:
        chosen = filled(chosen, peel, _in_flight(row, peel.vector, length))
        chosen = dataclasses.replace(chosen, resident=resident_of(row, chosen, peel, gpu))
    return dataclasses.replace(chosen, why=_why(row, length, chosen, gpu))


def _neighbours(config: RowConfig) -> Iterator[RowConfig]:
    """Half and twice as many threads; where elements are not resident, half and twice as many in flight."""
    if config.staged:
        return
    for threads in (config.threads // 2, config.threads * 2):
        if WARP <= threads <= _MOST_THREADS:
            shared = config.kept and config.thread_group is not ThreadGroup.WARP
            vectors = -(-config.vectors * config.threads // threads) if shared else config.vectors
            yield dataclasses.replace(config, threads=threads, vectors=vectors, resident=1)
    for vectors in (config.vectors // 2, config.vectors * 2):
        if vectors and not config.kept:
            yield dataclasses.replace(config, vectors=vectors)


def _may_replace(first: RowConfig, other: RowConfig, row: Row, gpu: Gpu) -> bool:
    """Whether a partition differs from the first, fits the rows, and spills no resident elements."""
    if other == first or (other.kept and other.vectors * other.vector * own_bytes(row) > _MOST_KEPT_BYTES):
        return False
    try:
        check_row_config(row, other, gpu)
    except Unfit:
        return False
    return True


def _is_ahead(row: Row, config: RowConfig, gpu: Gpu) -> bool:
    """Whether data that only outputs read are prefetched with the row, as no other block hides their latency.

    That is where all blocks are on their multiprocessors at once, and leave registers for it.
    """
    beside = sum(not any(s.beside(other) for other in row.folded) for s in row.written)
    if not config.kept or not beside or not isinstance(row.count, int):
        return False
    blocks = -(-row.count * config.segments * config.sharing // config.threads)
    cached = config.vectors * config.vector * (len(row.folded) + beside)
    registers = OTHER_REGISTERS + _AHEAD_REGISTERS + cached
    return -(-blocks // gpu.processors) <= blocks_of(gpu, registers, config.threads)


def _is_few(rows: Extent, gpu: Gpu) -> bool:
    """Whether rows are known to be so few that processors are idle where each is a block's."""
    return isinstance(rows, int) and rows < _FEW_ROWS * gpu.processors


def _of_known_length(row: Row, length: int, vector: int, gpu: Gpu, peel: Peel | None) -> list[RowConfig]:
    """The partitions that the table of shapes has for a row; the first that there is comes first."""
    vectors, rows = -(-(length if peel is None else peel.most) // vector), row.count
    few = _is_few(rows, gpu)
    found = [_of_a_warp(row, vector, vectors, few)]
    if isinstance(rows, int):
        found.append(_of_several_blocks(row, length, rows, vector, gpu, peel))
    if row.position_outputs:
        found.append(_with_position_outputs(row, length, vector, few, gpu, peel))
    return [*filter(None, found), _of_a_block(row, vector, vectors, few)]


def _with_position_outputs(
    row: Row, length: int, vector: int, few: bool, gpu: Gpu, peel: Peel | None
) -> RowConfig | None:
    """Rows that wait for their outputs in registers, or in shared memory; None for those that are read again.

    Many rows wait in shared memory: narrow ones, whose conversions leave too few registers, and wide ones of which a
    block has room for several, where they share nothing that is read twice. Others do where a block cannot keep them.
    """
    if peel is None and not few and (narrowed := _narrowed(row, length, vector, gpu)) is not None:
        return narrowed
    if peel is not None and not few and peel.shifted(row) > 1:
        soon = _kept(row, vector, peel.most // vector, ThreadGroup.BLOCK, SHIFTED_KEPT_BYTES)
        if soon is not None:
            return soon
    staged = staged_config(row, length, vector, gpu, peel) if gpu.has_clusters else None
    if staged is not None and not few and (row.is_narrow or (staged.segments == 1 and not is_read_again(row))):
        return staged
    kept = _kept_by_a_block(row, length, vector, few)
    if kept is None and gpu.has_clusters and is_read_again(row):
        blocks = min(gpu.largest_cluster, -(-length * own_bytes(row) // _CLUSTER_SHARE_BYTES))
        kept = _kept_by_a_cluster(row, length, vector, 1 << (blocks - 1).bit_length(), _SHARE_KEPT_BYTES, gpu, peel)
        if kept is not None:
            cached = kept.vectors * vector * _bytes_per_position(row) // 4
            resident = gpu.registers // ((OTHER_REGISTERS + cached) * kept.threads)
            kept = dataclasses.replace(kept, resident=max(1, resident))
    return kept or staged


def _narrowed(row: Row, length: int, vector: int, gpu: Gpu) -> RowConfig | None:
    """Rows of one input that are written in float8; None for others, and for those that a block does not keep."""
    if not row.is_narrow or not all(dtype_of(o.buffer).startswith("float8_e") for o in row.position_outputs):
        return None
    most = {threads: _NARROWED_KEPT_BYTES for threads in (128, 256, 512)}
    kept = _kept(row, vector, -(-length // vector), ThreadGroup.BLOCK, most)
    if kept is None:
        return None
    each = max(32, _NARROWED_REGISTERS + kept.vectors * vector)
    return dataclasses.replace(kept, resident=max(1, gpu.registers // (each * kept.threads)))


def _why(row: Row, length: int, chosen: RowConfig, gpu: Gpu) -> str:
    size = f"a row of {max(1, length * own_bytes(row) // 1024)} KiB"
    rows = row.count
    if chosen.staged:
        return f"{size} waits in shared memory, of {chosen.resident} blocks a multiprocessor"
    if chosen.segments > 1 and _is_few(rows, gpu):
        return f"{rows} rows would leave most of {gpu.processors} multiprocessors idle"
    if chosen.thread_group is ThreadGroup.CLUSTER:
        return f"{size} is more than the registers of one block keep"
    if chosen.kept:
        return f"{size} stays in the registers of {'a warp' if chosen.thread_group is ThreadGroup.WARP else 'a block'}"
    if row.position_outputs:
        return f"{size} does not stay in registers, and is read again for what is written"
    return f"{size} is {'short' if chosen.thread_group is ThreadGroup.WARP else 'long enough for a block'}"


def _of_a_warp(row: Row, vector: int, vectors: int, few: bool) -> RowConfig | None:
    """Short rows are a warp's, unless they are so few that a block each has a multiprocessor to itself."""
    if vectors > WARP * _WARP_VECTORS or (few and vectors > WARP):
        return None
    each = -(-vectors // WARP)
    if not row.position_outputs:
        return RowConfig(ThreadGroup.WARP, 128, vector, _in_flight(row, vector, each))
    kept = each * vector * own_bytes(row) <= _WARP_KEPT_BYTES
    if each <= _WARP_KEPT_VECTORS:
        return RowConfig(ThreadGroup.WARP, 128, vector, each if kept else _in_flight(row, vector, each), kept=kept)
    if not kept or (row.is_narrow and each * vector > _WARP_NARROW_POSITIONS):
        return None
    return RowConfig(ThreadGroup.WARP, 128, vector, each, kept=True, resident=_RESIDENT_OF_WARPS)


def _of_several_blocks(row: Row, length: int, rows: int, vector: int, gpu: Gpu, peel: Peel | None) -> RowConfig | None:
    """Blocks share rows that are too few for the multiprocessors."""
    nbytes = length * own_bytes(row)
    spread, clusters = gpu.processors // max(1, rows), gpu.has_clusters
    if row.position_outputs:
        if spread < _LEAST_SEGMENTS or not clusters:
            return None
        shares = nbytes // _WRITING_CLUSTER_BYTES if nbytes >= _WRITING_CLUSTER_LEAST else 1
        blocks = max(-(-nbytes // _CLUSTER_KEPT_BYTES), min(gpu.largest_cluster, spread, shares))
        segments = 1 << max(0, blocks - 1).bit_length()
        return _kept_by_a_cluster(row, length, vector, segments, _FEW_SHARE_KEPT_BYTES, gpu, peel)
    most = gpu.largest_cluster if clusters else _SHARING_BLOCKS
    if spread >= _LEAST_SEGMENTS * most and nbytes >= _LEAST_SEGMENTS * most * _GRID_BYTES:
        return _shared(row, length, vector, ThreadGroup.GRID, min(spread * 2, nbytes // _GRID_BYTES, 128))
    segments = min(most, spread, nbytes // (_CLUSTER_BYTES if clusters else _GRID_BYTES))
    if segments < _LEAST_SEGMENTS:
        return None
    return _shared(
        row, length, vector, ThreadGroup.CLUSTER if clusters else ThreadGroup.GRID, 1 << (segments.bit_length() - 1)
    )


def _shared(row: Row, length: int, vector: int, thread_group: ThreadGroup, segments: int) -> RowConfig:
    share = -(-length // (vector * segments))
    threads = 128 if share <= 256 else 256
    return RowConfig(thread_group, threads, vector, _in_flight(row, vector, -(-share // threads), few=True), segments)


def _kept_by_a_cluster(
    row: Row, length: int, vector: int, segments: int, most: Mapping[int, int], gpu: Gpu, peel: Peel | None
) -> RowConfig | None:
    """Each block keeps its share."""
    share = even_share(length, segments, vector, peel)
    if share is None or not 1 < segments <= gpu.largest_cluster:
        return None
    return _kept(row, vector, share // vector, ThreadGroup.CLUSTER, most, segments)


def _kept_by_a_block(row: Row, length: int, vector: int, few: bool) -> RowConfig | None:
    several = sum(not stream.is_shared for stream in row.folded) > 1
    most = _SEVERAL_KEPT_BYTES if several else _FEW_KEPT_BYTES if few else _KEPT_BYTES
    return _kept(row, vector, -(-length // vector), ThreadGroup.BLOCK, most)


def _kept(
    row: Row, vector: int, vectors: int, thread_group: ThreadGroup, most: Mapping[int, int], segments: int = 1
) -> RowConfig | None:
    """The fewest threads that can keep so many vectors: fewer wait for each other less.

    Parameters
    ----------
    most : threads -> bytes of a row's own elements that each of them keeps.
    """
    for threads, own in most.items():
        each = -(-vectors // threads)
        # What all rows share is in registers too, and halves next to what they are widened to.
        cached = own if row.is_narrow else own * 3 // 2
        if each * vector * own_bytes(row) <= own and each * vector * _bytes_per_position(row) <= cached:
            return RowConfig(thread_group, threads, vector, each, segments, kept=True)
    return None


def _of_a_block(row: Row, vector: int, vectors: int, few: bool) -> RowConfig:
    if row.position_outputs:
        threads = next((t for t in (128, 256, 512) if vectors <= t), 1024)
    elif few:
        threads = next((t for t in (128, 256) if vectors <= 8 * t), 512)
    else:
        threads = 128 if vectors <= 512 else 256
    return RowConfig(ThreadGroup.BLOCK, threads, vector, _in_flight(row, vector, -(-vectors // threads), few))


def _in_flight(row: Row, vector: int, share: int, few: bool = False) -> int:
    """Vectors in flight per thread, of those that it has to read."""
    wide = (len(row.folded) > 1 and not few) or bool(row.position_outputs)
    most = (_WIDE_IN_FLIGHT_BYTES if wide else IN_FLIGHT_BYTES) // (vector * own_bytes(row))
    return max(1, min(most, _IN_FLIGHT_POSITIONS // vector, share))


def _bytes_per_position(row: Row) -> int:
    """Bytes that a fold reads of a position."""
    return max(1, sum(stream.stride * itemsize(stream.dtype) for stream in row.folded))
