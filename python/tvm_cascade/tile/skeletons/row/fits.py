"""Checks whether a configuration fits the rows, before a kernel is emitted."""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.row.config import RowConfig, ThreadGroup, widest_vector
from tvm_cascade.tile.row.peel import Peel, peel_of, share_of
from tvm_cascade.tile.row.segment import check_kept, check_segments, share_of_row
from tvm_cascade.tile.row.shape import Row
from tvm_cascade.tile.row.staging import why_not_staged

_MOST_SEGMENTS: dict[ThreadGroup, Callable[[Gpu], float]] = {
    ThreadGroup.WARP: lambda _gpu: 1,
    ThreadGroup.BLOCK: lambda _gpu: 1,
    ThreadGroup.CLUSTER: lambda gpu: gpu.largest_cluster,
    ThreadGroup.GRID: lambda _gpu: math.inf,
}
"""Of a row, by who shares it: a segment is what a block has."""


def check_row_config(row: Row, config: RowConfig, gpu: Gpu) -> None:
    """Checks that a GPU can run this configuration of a row kernel.

    Raises
    ------
    Unfit
        Where the extents that segments are cut from are not known, rows have no vectors to start at or break vectors,
        nobody merges their segments, registers keep less than all of a share, or bulk copies cannot bring the shares of
        blocks.
    """
    if (most := _MOST_SEGMENTS[config.thread_group](gpu)) < config.segments:
        raise Unfit(f"{config.segments} segments of a row, where {config.thread_group.value}s merge {most} at most")
    check_segments(row, config.segments, row.count if config.thread_group is ThreadGroup.GRID else 0)
    peel = peel_of(row, config.vector) if config.peeled else None
    if config.peeled and peel is None:
        raise Unfit(f"rows of {row.length} positions have no vectors of {config.vector} to be peeled to")
    check_kept(
        config, share_of_row(row, config) if peel is None else share_of(peel.most, config.segments, config.vector)
    )
    if config.staged:
        if (positions := staged_positions(row, config, peel)) is None:
            raise Unfit(f"a row of {row.length} positions is no {config.segments} shares of one length")
        if reason := why_not_staged(row, positions, config.chunk, gpu, peel):
            raise Unfit(reason)
    if peel is None and (widest := widest_vector(row)) % config.vector:
        raise Unfit(f"rows of {row.length} positions are aligned to vectors of {widest}, not of {config.vector}")


def staged_positions(row: Row, config: RowConfig, peel: Peel | None) -> int | None:
    """Positions that a block has in shared memory, at most; None where shares of whole rows differ in length."""
    if peel is not None:
        return share_of(peel.most, config.segments, config.vector)
    if not isinstance(row.length, int) or row.length % config.segments:
        return None
    return row.length // config.segments
