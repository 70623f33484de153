"""The CPU schedule of a single nest: the baseline against which fusion is measured.

Every block is parallel over its outermost loops and vectorised; contractions run in register tiles with their operands
packed where need be; reductions of contiguous rows are split into lanes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from tvm import s_tir

from tvm_cascade.analysis.statements import read_nests
from tvm_cascade.analysis.tir import uses
from tvm_cascade.devices.device import Cpu
from tvm_cascade.schedule.microkernel import (
    TASKS_OF_A_CORE,
    Contraction,
    packed_dim,
    product_alone,
    read_again,
    reads_once,
    repacked,
    row_block,
    schedule_contraction_alone,
    tile_alone,
)
from tvm_cascade.schedule.nest_schedule import (
    PANELS,
    PRODUCT,
    RUNS_OF_ROWS,
    SCALAR,
    SERIAL,
    Block,
    CpuSchedule,
    Deferred,
    Loop,
    Nest,
    row_lanes,
    vectors,
)
from tvm_cascade.schedule.nests import Access, BlockPlan, plan_alone, plan_nest
from tvm_cascade.schedule.packing import can_be_laid_out, lay_out, pack_operand, panel_of, schedule_panels
from tvm_cascade.schedule.roles import OPERAND, operand_copy
from tvm_cascade.schedule.row_fold import overlapping_axes, schedule_fold, vector_width
from tvm_cascade.schedule.row_lanes import GATHER, LANES
from tvm_cascade.schedule.row_picks import RUNS
from tvm_cascade.transform.nest import GUARD

_OWN_ROLES = ("", OPERAND, GATHER, RUNS)
"""Of nests that are the program's own, or a copy of what it reads."""


def schedule_unfused_cpu(sch: s_tir.Schedule, cpu: Cpu) -> CpuSchedule:
    """Schedules an unfused function for a CPU, block by block, in place.

    Parameters
    ----------
    sch : over a module whose "main" function holds plain nests. It should own its module.
    cpu : whose vectors, registers and cores loops are cut for.

    Returns
    -------
    What it made of each block.
    """
    deferred = Deferred()
    rules = schedule_each(sch, cpu, deferred, plan_alone(sch.mod["main"]))
    deferred.apply(sch)
    return CpuSchedule((), rules)


def schedule_each(
    sch: s_tir.Schedule, cpu: Cpu, deferred: Deferred, plans: Sequence[BlockPlan]
) -> tuple[tuple[str, str], ...]:
    """Schedules nests one by one; gives the rule of each that is the program's own, by its block."""
    rules = list[tuple[BlockPlan, str]]()
    order = [nest.block.name_hint for nest in read_nests(sch.mod["main"])]
    copies = [plan for plan in plans if plan.role == OPERAND]
    for chain in _chains([plan for plan in plans if plan not in copies], order, cpu):
        tasks = _tasks(chain, cpu)
        rules += [(plan, schedule_alone(sch, cpu, deferred, plan, 0, tasks)) for plan in chain]
        if tasks:
            deferred.parallel.append(sch.merge(*(sch.get_loops(sch.get_sblock(plan.name))[0] for plan in chain)))
    for plan in copies:
        of_its_product = len(sch.get_loops(sch.get_sblock(plan.name))) > len(plan.own)
        rules.append((plan, PANELS if of_its_product else schedule_alone(sch, cpu, deferred, plan, 0)))
    return tuple((plan.name, rule) for plan, rule in rules if plan.role in _OWN_ROLES)


def _chains(plans: Sequence[BlockPlan], order: Sequence[str], cpu: Cpu) -> list[list[BlockPlan]]:
    """Nests one behind the other: a reduction with maps before and behind it, where its tasks may be theirs.

    Parameters
    ----------
    order : names of all nests of the function.
    """
    chains = list[list[BlockPlan]]()
    for plan in plans:
        before = chains[-1] if chains else []
        beside = bool(before) and order.index(plan.name) == order.index(before[-1].name) + 1
        if beside and sum(bool(one.reduce) for one in (*before, plan)) == 1 and _tasks([*before, plan], cpu):
            before.append(plan)
        else:
            chains.append([plan])
    return chains


def _tasks(chain: Sequence[BlockPlan], cpu: Cpu) -> int:
    """The outermost loops of the nests of a chain that are tasks of all: 0 where one reads what another task writes.

    What nests hand over then stays in a near cache.
    """
    (reduction, *others) = sorted(chain, key=lambda plan: not plan.reduce)
    last, plain = reduction.last_axis(), all(one.independent and one.is_static and not one.role for one in chain)
    if not others or not plain or last is None or last in reduction.reduce or not reduction.lies_beside(last):
        return 0
    if any(len(plan.stores) != 1 for plan in chain) or product_alone(reduction, cpu) is not None:
        return 0
    overlap, most = overlapping_axes(reduction), min(len(plan.spatial) for plan in chain) - 1
    counts = range(most if overlap is None else min(most, reduction.own.index(overlap[0])), 0, -1)
    return next((count for count in counts if _are_tasks(chain, reduction, count, cpu)), 0)


def _are_tasks(chain: Sequence[BlockPlan], reduction: BlockPlan, count: int, cpu: Cpu) -> bool:
    """Whether so many loops of each nest are."""
    extents = [[plan.extents[axis] for axis in plan.own[:count]] for plan in chain]
    if any(one != extents[0] for one in extents) or set(reduction.own[:count]) & reduction.reduce:
        return False
    for place, plan in enumerate(chain):
        written = Access(plan.stores[0].buffer, tuple(plan.stores[0].indices))
        reads = [[one for one in other.loads if one.buffer.same_as(written.buffer)] for other in chain]
        handed = [(plan, written), *((other, one) for other, found in zip(chain, reads, strict=True) for one in found)]
        elsewhere = any(
            len(one.indices) < count
            or (other.axis_at(one.indices[k]) != other.own[k] and other.extents[other.own[k]] != 1)
            for other, one in handed
            for k in range(count)
        )
        again = [other for other in chain if other.stores[0].buffer.same_as(written.buffer)]
        if elsewhere or len(again) > 1 or any(reads[: place + 1]) or not any(reads[place + 1 :] or [True]):
            return False
    return math.prod(int(extent) for extent in extents[0]) >= TASKS_OF_A_CORE * cpu.cores


def schedule_alone(
    sch: s_tir.Schedule, cpu: Cpu, deferred: Deferred, plan: BlockPlan, outer: int, tasks: int = 0
) -> str:
    """Schedules one block's nest below `outer` loops that it shares with others, and names the rule that did.

    Parameters
    ----------
    tasks : of its outermost loops, which are made one and left to be shared; none by default.
    """
    if plan.role == RUNS:
        return RUNS_OF_ROWS
    block = sch.get_sblock(plan.name)
    loops = dict(zip(plan.own, sch.get_loops(block)[outer:], strict=True))
    nest = Nest(sch, cpu, deferred, plan, block, loops, alone=True)
    if plan.role == GUARD:
        nest.go_parallel([loops[a] for a in plan.spatial])
        return SCALAR
    if plan.role == LANES:
        return SCALAR  # moved to where they are reduced
    if plan.role == GATHER:
        return _schedule_gather(nest)
    if not plan.stores or not loops or not plan.independent:
        return SCALAR if plan.independent else SERIAL
    contraction, func = product_alone(plan, cpu), sch.mod["main"]
    if contraction is not None and all(
        can_be_laid_out(access) or operand_copy(func, access.buffer) is not None for access in contraction.packed
    ):
        _schedule_product(nest, contraction)
        return PRODUCT
    width = vector_width(nest)
    schedule_fold(nest)
    spatial = [nest.loops[a] for a in plan.spatial]
    if tasks:
        sch.fuse(*spatial[:tasks])
    else:
        nest.go_parallel(spatial[:-1])
    return vectors(width) if width > 1 else SCALAR


def _schedule_product(nest: Nest, contraction: Contraction) -> None:
    """A product in register tiles: operands are packed by themselves, or where the one column that reads them is."""
    sch, cpu, plan = nest.sch, nest.cpu, nest.plan
    near, again = list[Callable[[Loop], None]](), list[list[int]]()
    laid_out, rows = repacked(plan, contraction), plan.extents[contraction.broadcast]
    for access, axis in (*((one, contraction.lanes) for one in contraction.packed), *laid_out):
        dim = packed_dim(plan, access, axis)
        assert dim is not None
        along = axis == contraction.lanes
        once = along and reads_once(plan, contraction, access, cpu)
        panel, before = panel_of(cpu, nest.dtype), min(dim, *_reduced_dims(plan, access))
        if not along:
            panel = row_block(int(rows))
        elif once or any(access is one for one, _ in laid_out):
            lanes, count, _ = tile_alone(plan, contraction, cpu)
            panel = lanes * count
        if along and (copy := operand_copy(sch.mod["main"], access.buffer)) is not None:
            packed = sch.get_sblock(copy)
            lay_out(sch, packed, access.buffer, dim, panel, before)
        else:
            packed = pack_operand(nest, access, dim, panel, None, before)
        if once:
            near.append(partial(_pack_near, nest, packed, dim, panel))
            again.append(read_again(plan, contraction, access))
        else:
            schedule_panels(nest, packed, dim, panel)
    in_columns = [axis for axis in plan.spatial if again and all(axis in axes for axes in again)]
    schedule_contraction_alone(nest, contraction, near, in_columns)


def _pack_near(nest: Nest, packed: Block, dim: int, panel: int, column: Loop) -> None:
    """Packs an operand where the register tiles of a column read it, so that it stays in a near cache."""
    nest.sch.compute_at(packed, column, preserve_unit_loops=True)
    schedule_panels(nest, packed, dim, panel)


def _reduced_dims(plan: BlockPlan, access: Access) -> list[int]:
    """The dimensions of an operand that are indexed by reduced axes."""
    reduced = [plan.variables[axis] for axis in plan.reduce]
    return [dim for dim, index in enumerate(access.indices) if uses(index, reduced)]


def _schedule_gather(nest: Nest) -> str:
    """Fills the lanes of a row where they are reduced, rows in parallel; gives the rule."""
    sch, plan = nest.sch, nest.plan
    rows, read = [nest.loops[axis] for axis in plan.spatial], [access.buffer for access in plan.loads]
    width = 1
    for fill in reversed([plan_nest(one) for one in read_nests(sch.mod["main"]) if one.role == LANES]):
        if not any(fill.stores[0].buffer.same_as(buffer) for buffer in read):
            continue
        read += [access.buffer for access in fill.loads]
        width = max(width, int(fill.extents[fill.spatial[-1]]))
        block = sch.get_sblock(fill.name)
        if rows:
            sch.compute_at(block, rows[-1], preserve_unit_loops=True)
        loops = dict(zip(fill.own, sch.get_loops(block)[-len(fill.own) :], strict=True))
        schedule_fold(Nest(sch, nest.cpu, nest.deferred, fill, block, loops, alone=True))
    nest.go_parallel(rows)
    return row_lanes(width)
