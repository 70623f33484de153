"""One block's nest while it is scheduled: loops by axis, and steps that wait for the loop structure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TypeAlias

from tvm import ir, s_tir, sym, tirx

from tvm_cascade.analysis.statements import ROLE
from tvm_cascade.analysis.tir import REDUCTION, Extent, extent_of, loads_of, reads_buffer, uses, within
from tvm_cascade.devices.device import Cpu
from tvm_cascade.schedule.nests import BlockPlan
from tvm_cascade.schedule.roles import FusedLoop
from tvm_cascade.transform.nest import AXES, OPAQUE
from tvm_cascade.tvm_faults.partition import PARTITION_HINT

_UNROLLED = 64

Block: TypeAlias = s_tir.schedule.SBlockRV
Loop: TypeAlias = s_tir.schedule.LoopRV


@dataclass
class Deferred:
    """Loop annotations and decompositions, applied last and in this order.

    Arrays are in registers only if every loop over them is unrolled. TVM unrolls `unrolled` ones; `crossed` ones, which
    hold a reduction across threads, are left to nvcc, since TVM lowers a copy of such a reduction wrongly. `guarded`
    loops have steps that need no guard, which lowering then takes apart from those that do.

    TVM takes a decomposed reduction for no reduction, so that it refuses to parallelise the loops above; and an
    annotation on a shared loop can make a later primitive write into the function that the caller holds.
    """

    vector: list[Loop] = field(default_factory=list)
    unrolled: list[Loop] = field(default_factory=list)
    crossed: list[Loop] = field(default_factory=list)
    parallel: list[Loop] = field(default_factory=list)
    guarded: list[Loop] = field(default_factory=list)
    decomposed: list[tuple[Block, Loop]] = field(default_factory=list)

    def apply(self, sch: s_tir.Schedule) -> None:
        for loop in self.vector:
            sch.vectorize(loop)
        for loop in self.unrolled:
            if int(sch.get(loop).extent) <= _UNROLLED:
                sch.unroll(loop)
        for loop in self.crossed:
            sch.annotate(loop, "pragma_auto_unroll_max_step", _UNROLLED)
            sch.annotate(loop, "pragma_unroll_explicit", 0)
        for loop in self.parallel:
            if steps_of(sch.get(loop)) > TASKS_FROM:
                sch.parallel(loop)
        for loop in self.guarded:
            sch.annotate(loop, PARTITION_HINT, 1)
        for block, loop in self.decomposed:
            sch.decompose_reduction(block, loop)
        start_of_none(sch)


TASKS_FROM = 2**13
"""Steps of a loop that is worth sharing out: 1 to 4 µs of one core. Starting and awaiting tasks takes 2 to 3 on the
threads of OpenMP, and 20 to 40 on TVM's own where these do not spin (measured)."""

_TOGETHER, _CALL = 8, 4
"""Elements in lanes that are one step, and steps that a function takes."""


def steps_of(statement: tirx.Stmt) -> float:
    """Loads, stores and functions of a nest but those of its sums; infinitely many where no number is known."""
    if isinstance(statement, tirx.For):
        extent = extent_of(statement.extent)
        count = extent if isinstance(extent, int) else math.inf
        steps = max(count / _TOGETHER, 1.0) if statement.kind == tirx.ForKind.VECTORIZED else count
        return steps * steps_of(statement.body) if count else 0.0
    if isinstance(statement, tirx.SeqStmt):
        return sum(map(steps_of, statement.seq))
    if isinstance(statement, s_tir.SBlockRealize):
        return steps_of(statement.block.body)
    if within(statement, tirx.For):
        return math.inf  # loops under a condition
    places = within(statement, tirx.BufferStore)
    own = [place.buffer for place in places]
    read = [load for load in loads_of(statement) if not any(load.source.same_as(buffer) for buffer in own)]
    summed = any(reads_buffer(place.value, place.buffer) for place in places)
    return len(read) + (0 if summed else len(places)) + _CALL * len(within(statement, ir.Call))


def start_of_none(sch: s_tir.Schedule) -> None:
    """Starts the program's own reductions of unknown length before their loops, which may have no positions.

    TVM starts a reduction at its first position. What follows a fused loop knows of its length itself.
    """
    for nest in within(sch.mod["main"].body, s_tir.SBlockRealize):
        block = nest.block
        bound = zip(block.iter_vars, nest.iter_values, strict=True)
        reduced = [(iv, value) for iv, value in bound if iv.iter_type == REDUCTION]
        known = all(isinstance(extent_of(iv.dom.extent), int) for iv, _ in reduced)
        if known or block.init is None or AXES in block.annotations or block.annotations.get(ROLE) == OPAQUE:
            continue
        handle = sch.get_sblock(block.name_hint)
        loops = sch.get_loops(handle)
        first = next(k for k in loops if any(uses(value, [sch.get(k).loop_var]) for _, value in reduced))
        sch.decompose_reduction(handle, first)


@dataclass
class Nest:
    """A block under schedule.

    Attributes
    ----------
    plan : the block as it was read.
    block : its handle.
    loops : its own loops by axis.
    row : the row axis that is tiled, if any; its loop is then the outermost of its own.
    panel : rows side by side in the tile's temporaries, 0 where these have rows in their usual place.
    alone : it is a nest of its own, to be made parallel by itself.
    """

    sch: s_tir.Schedule
    cpu: Cpu
    deferred: Deferred
    plan: BlockPlan
    block: Block
    loops: dict[int, Loop]
    row: int | None = None
    panel: int = 0
    alone: bool = False

    @property
    def dtype(self) -> str:
        return self.plan.dtype

    def extent(self, axis: int) -> int:
        """Of an axis' loop: the tile's for a tiled row; 1, which has no lanes, where it is not known."""
        extent = extent_of(self.sch.get(self.loops[axis]).extent)
        return extent if isinstance(extent, int) else 1

    def go_parallel(self, loops: list[Loop]) -> None:
        """Fuses adjacent spatial loops, outermost first, and makes them parallel."""
        if loops:
            self.deferred.parallel.append(self.sch.fuse(*loops) if len(loops) > 1 else loops[0])


def read_index(sch: s_tir.Schedule, block: Block, buffer: tirx.Var) -> int:
    return [region.source for region in sch.get(block).reads].index(buffer)


def power_of_two_divisor(number: int, most: int) -> int:
    """The largest power of two, up to `most`, that divides a number."""
    divisor = 1
    while divisor * 2 <= most and number % (divisor * 2) == 0:
        divisor *= 2
    return divisor


def known_divisor(extent: Extent, most: int) -> int:
    """The largest power of two, up to `most`, that divides an extent whatever the shape variables are."""
    if isinstance(extent, int):
        return power_of_two_divisor(extent, most)
    known = sym.Analyzer().modular_set(extent)
    return power_of_two_divisor(math.gcd(known.coeff, known.base), most)


# Row tiles: every nest of a fused loop is tiled by the same rows, with the tile loop inside.
#
# for tile: for row: A; for tile: for row: B   ->   parallel for rows_outer: for tile: (for row: A; for row: B)


def tile_rows(sch: s_tir.Schedule, loop: FusedLoop, row: int, rows: int) -> tuple[Loop, Loop]:
    """Tiles the row axis by `rows`, fuses its outer loop with all other shared rows, and merges the nests.

    After this each nest has the loops tasks, tile, row (`rows` long), then its other axes in their order.

    Returns
    -------
    The loop over segments and blocks of rows, which may run in parallel, and the tile loop inside it.
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
    return tasks, tile


def loops_after_tiling(sch: s_tir.Schedule, plan: BlockPlan, loop: FusedLoop, row: int) -> dict[int, Loop]:
    """A nest's loops by axis, once its rows are tiled."""
    order = [row, *(a for a in plan.own if a not in loop.rows)]
    return dict(zip(order, sch.get_loops(sch.get_sblock(plan.name))[2:], strict=True))


# What the schedule of a CPU made of a function: how fused loops are cut, and the rule of every other nest.


SERIAL = "serial, as no order of its iterations is known to be free"
PANELS = "a copy in panels"
PRODUCT = "a product in register tiles"
RUNS_OF_ROWS = "a product in register tiles of rows that pick the same matrix"
SCALAR = "one element at a time, or as LLVM vectorises it"


def row_lanes(width: int) -> str:
    """The rule of a reduction whose lanes are positions of its rows."""
    return f"rows in {width} lanes"


def vectors(width: int) -> str:
    """The rule of a nest whose lanes are neighbours of its output."""
    return f"vectors of {width} along the output"


def cuts(loop: FusedLoop, rows: int, together: int) -> str:
    """How a fused loop is cut.

    Parameters
    ----------
    rows : of the block that one task works on; 0 where the loop's nests share no row.
    together : of those, rows that lie side by side in vectors; 0 where none do.
    """
    counts = [f"tiles of {loop.tile} positions", _count(loop.lanes, "lane"), _count(loop.segments, "segment")]
    counts += [f"{_count(rows, 'row')} a task"] if rows else []
    counts += [f"{together} of them side by side"] if together else []
    return f"the fused loop: {', '.join(counts)}"


@dataclass(frozen=True)
class CpuSchedule:
    """The schedule of one function.

    Attributes
    ----------
    loops : how each fused one is cut, in order; or that which is around all nests.
    rules : of each nest of the program's own outside them, its block and what it became.
    """

    loops: tuple[str, ...]
    rules: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        blocks: dict[str, list[str]] = {}
        for block, rule in self.rules:
            blocks.setdefault(rule, []).append(block)
        parts = [*self.loops, *(f"{', '.join(names)}: {rule}" for rule, names in blocks.items())]
        return f"an S-TIR schedule: {'; '.join(parts) or 'nothing to loop over'}"


def _count(number: Extent, word: str) -> str:
    return f"{number} {word}" + ("" if isinstance(number, int) and number == 1 else "s")
