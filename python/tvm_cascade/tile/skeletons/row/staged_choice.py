"""Chooses how much of a row is staged by bulk copies, at several blocks per multiprocessor."""

from __future__ import annotations

from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.row.config import RowConfig, ThreadGroup, own_bytes
from tvm_cascade.tile.row.elements import registers_of
from tvm_cascade.tile.row.peel import Peel, even_share
from tvm_cascade.tile.row.shape import Row
from tvm_cascade.tile.row.staging import STAGED_REGISTERS, staged_bytes, staged_streams, why_not_staged

_SHARE_BYTES = 64 * 1024
"""Of a block: three of a multiprocessor have room, so that one reads while another merges and a third writes."""

_LONE_SHARE_BYTES = 128 * 1024
"""The same where what all rows share is read twice: the cache beside one such share holds it."""

_LEAST_BYTES = 16 * 1024
"""Of a row: shorter ones are kept in registers."""

_POSITIONS, _POSITION_BYTES = 16, 64
"""That a thread works on at once; fewer where each of several streams takes registers to be shifted."""

_THREAD_POSITIONS, _THREAD_BYTES, _THREADS, _LONE_THREADS = 64, 64, 256, 512
"""Of a share, for each thread: of many positions, or of many bytes up to so many threads; a block alone has more."""

OTHER_REGISTERS, RIM_REGISTERS = 16, 4
"""Of a thread, besides the elements that it works on, and for the rim of rows that have one."""

_STREAM_REGISTERS = 2
"""Where a stream is, for outputs that are written vector by vector."""


def staged_config(row: Row, length: int, vector: int, gpu: Gpu, peel: Peel | None = None) -> RowConfig | None:
    """The partition of rows with a second pass, on a GPU with bulk copies.

    None for such as these cannot bring, and for short ones.

    Parameters
    ----------
    gpu : whose blocks have to have room for shares.
    peel : of rows of which a rim is read apart.
    """
    own = own_bytes(row)
    if length * own < _LEAST_BYTES or not staged_streams(row):
        return None
    segments, largest = 1, _LONE_SHARE_BYTES if is_read_again(row) else _SHARE_BYTES
    while length * own > largest * segments and segments < gpu.largest_cluster:
        segments, largest = 2 * segments, _SHARE_BYTES
    if (positions := even_share(length, segments, vector, peel)) is None:
        return None
    shifted = 1 if peel is None else max(1, peel.shifted(row))
    vectors = max(1, min(_POSITIONS // vector, _POSITION_BYTES // (vector * own * shifted)))
    threads = _threads(positions, own)
    room = gpu.shared_bytes // staged_bytes(row, positions, gpu)
    if room == 1:
        threads = max(threads, _LONE_THREADS)
    written = registers_of(row.written, vector, peel)
    apart = written + _STREAM_REGISTERS * len(row.written) if written * vectors > STAGED_REGISTERS else 0
    registers = OTHER_REGISTERS + max(vectors * vector * len(row.folded), apart)
    registers += 0 if peel is None else RIM_REGISTERS
    while threads > _THREADS and blocks_of(gpu, registers, threads) < room:
        threads //= 2
    resident = max(1, min(room, blocks_of(gpu, registers, threads)))
    thread_group = ThreadGroup.CLUSTER if segments > 1 else ThreadGroup.BLOCK
    chosen = RowConfig(thread_group, threads, vector, vectors, segments, staged=True, resident=resident)
    return None if why_not_staged(row, positions, chosen.chunk, gpu, peel) else chosen


def blocks_of(gpu: Gpu, registers: int, threads: int) -> int:
    """Blocks that a processor's registers are enough for, where each thread has so many."""
    unit = gpu.register_unit
    return gpu.registers // (-(-registers // unit) * unit * threads)


def is_read_again(row: Row) -> bool:
    """Whether data that all rows share are read in both passes."""
    return any(s.is_shared and any(s.beside(other) for other in row.written) for s in row.folded)


def _threads(positions: int, own: int) -> int:
    needed = max(positions // _THREAD_POSITIONS, min(_THREADS, positions * own // _THREAD_BYTES))
    return min(1024, max(128, 1 << (needed - 1).bit_length()))
