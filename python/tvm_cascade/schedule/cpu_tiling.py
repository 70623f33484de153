"""Row tiles: every nest of a fused loop is tiled by the same rows, with the tile loop inside.

for tile: for row: A; for tile: for row: B   ->   parallel for rows_outer: for tile: (for row: A; for row: B)
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import s_tir

from tvm_cascade.schedule.nest_schedule import Loop
from tvm_cascade.schedule.nests import BlockPlan
from tvm_cascade.schedule.roles import FusedLoop


@dataclass(frozen=True)
class TiledLoop:
    """A fused loop tiled by rows.

    Attributes
    ----------
    tasks : the loop over segments and blocks of rows, which may run in parallel.
    tile : the tile loop, inside it.
    row : the axis that was cut; its loop within a block is the outermost of each nest's own.
    """

    tasks: Loop
    tile: Loop
    row: int


def tile_rows(sch: s_tir.Schedule, loop: FusedLoop, row: int, rows: int) -> TiledLoop:
    """Tiles the row axis by `rows`, fuses its outer loop with all other shared rows, and merges the nests.

    After this each nest has the loops tasks, tile, row (`rows` long), then its other axes in their order.
    """
    outers: list[Loop] = []
    for plan in loop.blocks:
        loops = dict(zip(plan.own, sch.get_loops(sch.get_sblock(plan.name))[loop.outer :], strict=True))
        batch = [loops[a] for a in loop.rows if a != row]
        outer, inner = sch.split(loops[row], [None, rows])
        rest = [loops[a] for a in plan.own if a not in loop.rows]
        sch.reorder(*batch, outer, inner, *rest)
        outers.append(sch.fuse(*batch, outer) if batch else outer)
    tasks = sch.merge(*outers) if len(outers) > 1 else outers[0]
    *segment, tile = sch.get_loops(sch.get_sblock(loop.blocks[0].name))[: loop.outer]
    sch.reorder(tasks, tile)
    if segment:
        tasks = sch.fuse(*segment, tasks)
    return TiledLoop(tasks, tile, row)


def loops_after_tiling(sch: s_tir.Schedule, plan: BlockPlan, loop: FusedLoop, row: int) -> dict[int, Loop]:
    """A nest's loops by axis, once its rows are tiled."""
    order = [row, *(a for a in plan.own if a not in loop.rows)]
    return dict(zip(order, sch.get_loops(sch.get_sblock(plan.name))[2:], strict=True))
