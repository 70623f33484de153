"""Which loops TVM's LoopPartition may take apart: it has to keep the storage of what they carry.

The fault: LoopPartition copies the loop's body, and every statement without the loop's variable is then one object in
several places. StorageRewrite notes the first and the last use of a buffer by statement object: where one of these is
such a statement, the buffer is declared anew, or given away, in every place, and what was given away too early is
shared with something that is still alive. So both uses must name the tile, or lie outside the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tvm import s_tir, tirx

from tvm_cascade.analysis.tir import loads_of, within

PARTITION_HINT = "pragma_loop_partition_hint"
"""Loop annotation that lets TVM take apart the steps that need no guard."""


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
        if buffer in {*params}:
            continue
        begins, ends = first[buffer], last[buffer]
        started = begins.init is not None and buffer in _touched(begins.init)  # in its first tile
        if begins.name_hint in tiles and not started and not _names(begins.body, tiles[begins.name_hint]):
            return False
        if ends.name_hint in tiles and not _names(ends.body, tiles[ends.name_hint]):
            return False
    return True


def keeps_tuples(stores: Iterable[int]) -> bool:
    """Whether the buffers of blocks of so many stores survive: what combines a tuple in place loses them."""
    return all(count == 1 for count in stores)


def _touched(body: tirx.Stmt) -> list[tirx.Var]:
    return [*(load.source for load in loads_of(body)), *(store.buffer for store in within(body, tirx.BufferStore))]


def _names(body: tirx.Stmt, tile: tuple[tirx.Var, ...]) -> bool:
    return not {*tile}.isdisjoint(within(body, tirx.Var))
