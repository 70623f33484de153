"""Chooses the configuration of unaligned rows: whether they are peeled, and how much of them is resident."""

from __future__ import annotations

import dataclasses

from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.row.config import RowConfig, ThreadGroup, vector_of_memory
from tvm_cascade.tile.row.elements import registers_of
from tvm_cascade.tile.row.peel import Peel, peel_of
from tvm_cascade.tile.row.shape import Row
from tvm_cascade.tile.skeletons.row.staged_choice import OTHER_REGISTERS, RIM_REGISTERS, blocks_of

SHIFTED_KEPT_BYTES = {128: 128, 256: 80}
"""Of a row that a thread keeps whose outputs read several shifted streams: they take the time of shared memory."""

_LANE_VECTORS = 8
"""Rows up to as many vectors a lane are read as they are: a rim would be much of them."""

_LOOP_REGISTERS = 4
"""Of a thread that goes chunk by chunk through a row that has a rim."""

_ONE_CHUNK_POSITIONS, _MOST_SLOTS = 40, 13 / 12
"""Of a thread that has a row in one chunk; and work of warps, over the least, for which more may be under way."""


def chosen_peel(row: Row, length: int, vector: int) -> Peel | None:
    """The peeling of unaligned rows, unless they are so short that head and tail cost more."""
    wide = vector_of_memory(row)
    return peel_of(row, wide) if vector < wide and length > WARP * _LANE_VECTORS * vector else None


def resident_of(row: Row, config: RowConfig, peel: Peel, gpu: Gpu) -> int:
    """Resident blocks per multiprocessor; the compiler needs spare registers for head, tail and shifts."""
    if config.staged or config.ahead or config.resident > 1:
        return config.resident
    cached = config.vectors * config.vector * len(row.folded)
    beside = [s for s in row.written if not any(s.beside(other) for other in row.folded)]
    written = registers_of(beside, config.vector, peel) if config.kept else _LOOP_REGISTERS
    return max(1, blocks_of(gpu, OTHER_REGISTERS + RIM_REGISTERS + cached + written, config.threads))


def filled(config: RowConfig, peel: Peel, most: int) -> RowConfig:
    """The partition of a row that a block reads once, with few absent vectors in its last chunk.

    Parameters
    ----------
    most : vectors of a thread that may be under way at once, where a row has several chunks.
    """
    if config.thread_group is not ThreadGroup.BLOCK or config.kept or config.staged:
        return config
    vectors, longest = peel.most // peel.vector, _ONE_CHUNK_POSITIONS // config.vector
    sizes = {config.threads, 128}
    cuts = [(each, threads) for threads in sizes for each in range(1, most + 1)]
    cuts += [(each, threads) for threads in sizes if (each := -(-vectors // threads)) <= longest]
    slots = {cut: _slots(vectors, *cut) for cut in cuts}
    enough = [cut for cut in cuts if slots[cut] <= min(slots.values()) * _MOST_SLOTS]
    each, threads = max(enough, key=lambda cut: (cut[0] * cut[1], cut[1]))
    return dataclasses.replace(config, vectors=each, threads=threads)


def _slots(vectors: int, each: int, threads: int) -> int:
    """Vectors that the warps of a block go through, of a row of so many: all of a chunk where a lane has any."""
    full, rest = divmod(vectors, threads * each)
    return each * (full * (threads // WARP) + min(threads // WARP, -(-rest // WARP)))
