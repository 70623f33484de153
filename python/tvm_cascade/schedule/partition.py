"""Whether TVM's loop partitioning of a tile loop keeps the storage of loop-carried buffers.

TVM's LoopPartition copies the loop's body, and every statement without the loop's variable is then one object in
several places. Its StorageRewrite notes the first and the last use of a buffer by statement object: where one of these
is such a statement, the buffer is taken anew, or given away, in every place, and what was given away too early is
shared with something that is still alive. So both uses must name the tile, or lie outside the loop.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm_ffi
from tvm import s_tir, tirx

from tvm_cascade.analysis.tir import loads_of

__all__ = ["keeps_storage"]


def keeps_storage(
    blocks: Sequence[s_tir.SBlock], inside: Sequence[tuple[s_tir.SBlock, tuple[tirx.Var, ...]]], params: list[tirx.Var]
) -> bool:
    """Whether every buffer's first and last uses survive the copies of a tile loop.

    Parameters
    ----------
    blocks : all of the function, in order.
    inside : those of the tile loop, each with its variables that are bound to the tile.
    params : buffers of the caller, which are not planned.
    """
    tiles = {block.name_hint: tile for block, tile in inside}
    first: dict[tirx.Var, s_tir.SBlock] = {}
    last: dict[tirx.Var, s_tir.SBlock] = {}
    for block in blocks:
        for buffer in _touched(block.body):
            first.setdefault(buffer, block)
            last[buffer] = block
    for buffer in first:
        if any(buffer.same_as(param) for param in params):
            continue
        begins, ends = first[buffer], last[buffer]
        started = begins.init is not None and any(buffer.same_as(b) for b in _touched(begins.init))  # in its first tile
        if begins.name_hint in tiles and not started and not _names(begins.body, tiles[begins.name_hint]):
            return False
        if ends.name_hint in tiles and not _names(ends.body, tiles[ends.name_hint]):
            return False
    return True


def _touched(body: tirx.Stmt) -> list[tirx.Var]:
    stores: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(body, (tirx.BufferStore, stores.append))
    return [*(load.source for load in loads_of(body)), *(store.buffer for store in stores)]


def _names(body: tirx.Stmt, tile: tuple[tirx.Var, ...]) -> bool:
    found: list[tirx.Var] = []
    tvm_ffi.structural_walk(body, (tirx.Var, found.append))
    return any(var.same_as(own) for var in found for own in tile)
