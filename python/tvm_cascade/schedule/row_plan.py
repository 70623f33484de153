"""The row tiling of a fused loop: which rows are tiled, by how much, and which are vectorised.

Where a tile's temporaries are folded along the cascade axis, rows are put in the lanes of a vector: producers and
elements then leave `panel` rows side by side, and folding needs no arithmetic across a vector.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tvm_cascade.analysis.tir import Extent, ceil_div, more_than_one, product
from tvm_cascade.devices.device import Cpu
from tvm_cascade.schedule.microkernel import Contraction, find_contraction, register_tile
from tvm_cascade.schedule.nest_schedule import known_divisor
from tvm_cascade.schedule.nests import Access, BlockPlan
from tvm_cascade.schedule.roles import FusedLoop
from tvm_cascade.transform.nest import TILE_ROLES

CONTRACTED_ROWS = 64
"""Rows per block where a contraction reuses its other operand for all of them; a tile of both stays in a cache."""

MOST_ROWS = (16, 32, 64, 128)
"""Rows of a block, at most, that a tuner may choose from, beside what the schedule takes by itself."""

COPYING_ROWS = {False: 2, True: 5}
"""Rows whose time a block takes beyond that of its own: for loops and stores, and for copies of operands."""


@dataclass(frozen=True)
class RowPlan:
    """How the rows of a fused loop are cut.

    Attributes
    ----------
    row : the axis that is cut.
    block : rows per block.
    panel : rows side by side in the tile's temporaries; 0 where these stay as they are.
    contractions : by block name.
    laid_out : blocks whose output is laid out in panels, with the dimension of the rows.
    in_panels : blocks that read or write such an output.
    """

    row: int
    block: int
    panel: int = 0
    contractions: dict[str, Contraction] = field(default_factory=dict)
    laid_out: dict[str, int] = field(default_factory=dict)
    in_panels: frozenset[str] = frozenset()


def plan_rows(loop: FusedLoop, cpu: Cpu, most_rows: int | None = None) -> RowPlan | None:
    """The plan for a loop; None where its blocks share no row.

    Parameters
    ----------
    most_rows : of a block; by the loop's masks where it is left out, of `CONTRACTED_ROWS` at most.
    """
    if not loop.rows:
        return None
    row = contracted_row(loop)
    if not all(isinstance(e, int) for b in loop.blocks for a, e in b.extents.items() if a not in loop.rows):
        return RowPlan(loop.rows[-1], 1)
    tiled = [plan for plan in loop.blocks if plan.role in TILE_ROLES]
    widest = max(cpu.lanes(str(plan.stores[0].buffer.ty.dtype)) for plan in tiled)
    multiple = known_divisor(_extent(loop, row), 2 * widest)
    if not isinstance(_extent(loop, row), int) and multiple < 2 * widest:
        return RowPlan(loop.rows[-1], 1)  # row by row, since no number of rows is known to divide
    laid_out = _folded_temporaries(loop, row) if _at_least(loop, row, 2 * widest) and 2 * multiple >= widest else {}
    contractions = _contractions(loop, row, sideways=bool(laid_out))
    streams = any(_streams(plan, access, row, loop) for plan in tiled for access in plan.loads if row in plan.variables)
    if not contractions and not streams:
        return RowPlan(row, 1)
    multiple = multiple if laid_out else 1
    block = _block_of(loop, row, cpu, multiple, most_rows)
    if not laid_out:
        return RowPlan(row, block, 0, contractions)
    panel = _panel(loop, row, block, contractions, cpu, multiple)
    buffers = [plan.stores[0].buffer for plan in loop.blocks if plan.name in laid_out]
    touching = frozenset(
        plan.name
        for plan in tiled
        if plan.name in laid_out or any(access.buffer.same_as(b) for access in plan.loads for b in buffers)
    )
    return RowPlan(row, block, panel, contractions, laid_out, touching)


def _streams(plan: BlockPlan, access: Access, row: int, loop: FusedLoop) -> bool:
    """Whether data of the tile, not a value per row, has its rows side by side in memory."""
    return plan.step(access, row) == 1 and bool(plan.axes_of(access) - set(loop.rows))


def _extent(loop: FusedLoop, axis: int) -> Extent:
    return loop.blocks[0].extents[axis]


def _at_least(loop: FusedLoop, axis: int, extent: int) -> bool:
    """Whether an axis is so long; one of unknown length is."""
    found = _extent(loop, axis)
    return not isinstance(found, int) or found >= extent


def reads_again(plan: BlockPlan, row: int) -> bool:
    """Whether a block reads an operand of a reduction again for every row."""
    return any(row not in axes and axes & plan.reduce for axes in map(plan.axes_of, plan.loads))


def contracted_row(loop: FusedLoop) -> int:
    """The row that some operand of a contraction is read for again and again; else the last."""
    reused = [row for row in loop.rows if any(reads_again(plan, row) for plan in loop.blocks)]

    def length(row: int) -> tuple[float, int]:
        extent = _extent(loop, row)
        return float(extent) if isinstance(extent, int) else math.inf, loop.rows.index(row)

    return max(reused, key=length, default=loop.rows[-1])


def _folded_temporaries(loop: FusedLoop, row: int) -> dict[str, int]:
    """Producers and elements along the rows and the tile, if some fold runs over them; with their dimension of rows."""
    found: dict[str, int] = {}
    for plan in loop.blocks:
        if plan.role in ("producer", "element") and len(plan.spatial) > len(loop.rows) and len(plan.stores) == 1:
            dims = [d for d, index in enumerate(plan.stores[0].indices) if plan.axis_at(index) == row]
            if len(dims) == 1:
                found[plan.name] = dims[0]
    buffers = [plan.stores[0].buffer for plan in loop.blocks if plan.name in found]

    def folds(plan: BlockPlan) -> bool:
        reads = any(access.buffer.same_as(b) for access in plan.loads for b in buffers)
        return reads and plan.role == "partial" and bool(plan.reduce) and set(plan.spatial) == set(loop.rows)

    return found if any(folds(plan) for plan in loop.blocks) else {}


def _contractions(loop: FusedLoop, row: int, sideways: bool) -> dict[str, Contraction]:
    """Contractions by block, those of producers with rows in lanes where rows lie side by side.

    Of the loop's rows, only the one that is cut has a loop in each nest: the others are tasks.
    """
    found: dict[str, Contraction] = {}
    outside = frozenset(loop.rows) - {row}
    for plan in loop.blocks:
        lanes = row if sideways and plan.role == "producer" else None
        contraction = find_contraction(plan, lanes, outside) if plan.role in ("producer", "partial") else None
        if contraction is not None and more_than_one(plan.extents[contraction.broadcast]):
            found[plan.name] = contraction
    return found


def padded_rows(loop: FusedLoop, row: int, cpu: Cpu, lanes: int) -> Extent:
    """Rows rounded up to blocks of whole vectors, of the size at which rows past the end and copies cost least.

    No more rows than one vector has stay as they are.
    """
    rows = loop.blocks[0].extents[row]
    if not isinstance(rows, int):
        return ceil_div(rows, 2 * lanes) * (2 * lanes)
    if rows <= lanes:
        return rows
    most = max(_most_rows(loop, row, cpu, 2 * CONTRACTED_ROWS), 2 * lanes)
    sizes = [size for size in range(lanes, most + 1, lanes) if ceil_div(rows, size) * size >= 2 * lanes]
    return min((ceil_div(rows, b) * b * (b + COPYING_ROWS[loop.guarded]) / b, ceil_div(rows, b) * b) for b in sizes)[1]


def _most_rows(loop: FusedLoop, row: int, cpu: Cpu, most_rows: int) -> int:
    """Rows of a block at most, so that there is work for every thread."""
    rows = product(_extent(loop, axis) for axis in (row, *(other for other in loop.rows if other != row)))
    return min(most_rows, ceil_div(rows, 2 * cpu.cores)) if isinstance(rows, int) else most_rows


def _block_of(loop: FusedLoop, row: int, cpu: Cpu, multiple: int, most_rows: int | None) -> int:
    """Rows per block: a divisor, so that no block is guarded; whole vectors; longer where operands are copied.

    Of a masked loop, fewer rows where these visit so many fewer tiles.
    """
    extent, wanted = _extent(loop, row), most_rows or CONTRACTED_ROWS
    if not isinstance(extent, int):
        return known_divisor(extent, wanted)
    longest = 2 * wanted if loop.before else wanted
    most = _most_rows(loop, row, cpu, longest)
    fitting = [b for b in range(multiple, min(extent, 2 * longest) + 1, multiple) if extent % b == 0]
    short = [b for b in fitting if b <= most] or [min(fitting)]
    live = None if loop.masked is None or most_rows is not None else loop.masked.live(row)
    return max(short) if live is None else live.block(1, short)


def _panel(loop: FusedLoop, row: int, block: int, contractions: dict[str, Contraction], cpu: Cpu, default: int) -> int:
    """Rows side by side: the lanes of a producer's register tile, so that each tile fills one panel."""
    for plan in loop.blocks:
        contraction = contractions.get(plan.name)
        if plan.role == "producer" and contraction is not None and contraction.lanes == row:
            dtype = str(plan.stores[0].buffer.ty.dtype)
            positions = plan.extents[contraction.broadcast]
            assert isinstance(positions, int)
            width, vectors, _ = register_tile(block, positions, cpu, dtype)
            return width * vectors
    return default
