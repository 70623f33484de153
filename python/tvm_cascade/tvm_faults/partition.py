"""Which loops TVM's LoopPartition may take apart: it has to keep the storage of what they carry.

The fault: LoopPartition copies the loop's body, and every statement without the loop's variable is then one object in
several places. StorageRewrite notes the first and the last use of a buffer by statement object: where one of these is
such a statement, the buffer is declared anew, or given away, in every place, and what was given away too early is
shared with something that is still alive. So both uses must name the tile, or lie outside the loop. What is carried
from tile to tile and last used within the loop is given away by each of the copies, though it is declared in one: two
others get its storage at once. Storage of up to 32 bits is never given away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tvm import s_tir, tirx

from tvm_cascade.analysis.tir import loads_of, within

PARTITION_HINT = "pragma_loop_partition_hint"
"""Loop annotation that lets TVM take apart the steps that need no guard."""


SHARED_FROM = 32
"""Bits: storage of no more is shared with nothing."""


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
    first, last = _ends(blocks)
    for buffer in first:
        if buffer in {*params}:
            continue
        begins, ends = first[buffer], last[buffer]
        if (
            begins.name_hint in tiles
            and not _starts(begins, buffer)
            and not _names(begins.body, tiles[begins.name_hint])
        ):
            return False
        if ends.name_hint in tiles and not _names(ends.body, tiles[ends.name_hint]):
            return False
    return True


def only_carried(
    blocks: Sequence[s_tir.SBlock], inside: Sequence[tuple[s_tir.SBlock, tuple[tirx.Var, ...]]], params: list[tirx.Var]
) -> set[str]:
    """The names of buffers that begin before a tile loop or with its first tile, and that nothing uses after it."""
    tiles = {block.name_hint: {*tile} for block, tile in inside}
    first, last = _ends(blocks)

    def begins_once(block: s_tir.SBlock, buffer: tirx.Var) -> bool:
        reduced = {one.var for one in block.iter_vars if one.iter_type == tirx.IterVar.CommReduce}
        tile = tiles.get(block.name_hint)
        return tile is None or (tile <= reduced and _starts(block, buffer))

    begun = (buffer for buffer, block in first.items() if begins_once(block, buffer))
    return {buffer.name for buffer in begun if buffer not in {*params} and last[buffer].name_hint in tiles}


def keeps_tuples(stores: Iterable[int]) -> bool:
    """Whether the buffers of blocks of so many stores survive: what combines a tuple in place loses them."""
    return all(count == 1 for count in stores)


def _ends(blocks: Sequence[s_tir.SBlock]) -> tuple[dict[tirx.Var, s_tir.SBlock], dict[tirx.Var, s_tir.SBlock]]:
    """The first block that uses a buffer, and the last one."""
    first, last = dict[tirx.Var, s_tir.SBlock](), dict[tirx.Var, s_tir.SBlock]()
    for block in blocks:
        for buffer in _touched(block.body):
            first.setdefault(buffer, block)
            last[buffer] = block
    return first, last


def _starts(block: s_tir.SBlock, buffer: tirx.Var) -> bool:
    """Whether a block writes a buffer in its first tile before all else."""
    return block.init is not None and buffer in _touched(block.init)


def _touched(body: tirx.Stmt) -> list[tirx.Var]:
    return [*(load.source for load in loads_of(body)), *(store.buffer for store in within(body, tirx.BufferStore))]


def _names(body: tirx.Stmt, tile: tuple[tirx.Var, ...]) -> bool:
    return not {*tile}.isdisjoint(within(body, tirx.Var))
