"""Maps inlined into the maps that read them, so that a chain of elementwise operators is one kernel.

    t[i] = f(x[i]);  y[i] = g(t[i], c)  ->  y[i] = g(f(x[i]), c)

A map stays where its value would be computed again at a cost, for another reader or another row, and where it moves the
contiguous axis: a transposition by squares reads and writes whole lines of memory, and a map that reads through it does
not. Two transpositions are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import prim
from tvm.s_tir.schedule.schedule import ScheduleError

from tvm_cascade.analysis.expression import selection_of
from tvm_cascade.analysis.statements import read_nests
from tvm_cascade.analysis.tir import Extent, dtype_of, product, same_extent, within
from tvm_cascade.schedule.nests import Access, BlockPlan, plan_nest
from tvm_cascade.transform.nest import OPAQUE, load
from tvm_cascade.tvm_faults.copies import private_copy

_MOST_LOADS, _MOST_TENSORS = 128, 16
"""Loads of one value, and different ones of them: what is inlined into itself again and again may double each time."""

_MORE = 1.25
"""Times the values of a map that its readers may compute in its place: writing and reading a value takes as long as
computing several."""

_SECTOR = 32
"""Bytes that memory moves at once: neighbours that are no further apart are read with each other."""


def inline_maps(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with fewer nests; the same object where there is nothing to inline.

    Parameters
    ----------
    func : of plain nests, with its blocks; it is not modified.
    """
    if len(read_nests(func)) < 2:
        return func
    schedule = s_tir.Schedule(private_copy(func))
    tried, known = set[str](), dict[str, _Candidate]()
    while (plan := _next(schedule.mod["main"], tried, known)) is not None:
        tried.add(plan.name)
        try:
            schedule.compute_inline(schedule.get_sblock(plan.name))
        except ScheduleError:  # as where it is read at a part of its elements, and written at all
            continue
        known = {name: one for name, one in known.items() if not _reads(one, plan.stores[0].buffer)}
    return schedule.mod["main"] if tried else func


@dataclass(frozen=True)
class _Candidate:
    """A nest, whether it is a map that neither moves lines nor binds values, and whether it permutes axes alone."""

    plan: BlockPlan
    is_plain: bool
    permutes: bool


def _next(func: tirx.PrimFunc, tried: set[str], known: dict[str, _Candidate]) -> BlockPlan | None:
    """The first map that its readers take in; of those before it none is left to try.

    Parameters
    ----------
    known : nests by name that are as they were.
    """
    candidates = []
    for nest in read_nests(func):
        name = nest.block.name_hint
        if nest.role != OPAQUE and name not in known:
            plan = plan_nest(nest)
            known[name] = _Candidate(plan, _is_map(plan) and not _moves_lines(plan), _is_map(plan) and _permutes(plan))
        candidates += [known[name]] if nest.role != OPAQUE else []
    for one in candidates:
        if one.plan.name not in tried and _is_taken_in(func, one, candidates):
            return one.plan
    return None


def _reads(one: _Candidate, buffer: tirx.Var) -> bool:
    return any(access.buffer.same_as(buffer) for access in one.plan.loads)


def _is_taken_in(func: tirx.PrimFunc, candidate: _Candidate, candidates: Sequence[_Candidate]) -> bool:
    plan, buffer = candidate.plan, candidate.plan.stores[0].buffer
    if not any(buffer.same_as(own) for own in func.body.block.alloc_buffers):
        return False
    readers = [one for one in candidates for access in one.plan.loads if access.buffer.same_as(buffer)]
    plain = candidate.is_plain and all(one.is_plain for one in readers)
    if not readers or not (plain or all(one.permutes for one in (candidate, *readers))):
        return False
    loads = [(*one.plan.loads, *plan.loads) for one in readers]
    if max(map(len, loads)) > _MOST_LOADS or max(map(_different, loads)) > _MOST_TENSORS:
        return False
    return not _calls(plan) or _computes_few(plan, [one.plan for one in readers])


def _different(loads: Sequence[Access]) -> int:
    """How many loads there are, those of the same elements counted once."""
    return len({tvm_ffi.StructuralKey(load(one.buffer, one.indices)) for one in loads})  # type: ignore[call-arg]


def _computes_few(plan: BlockPlan, readers: Sequence[BlockPlan]) -> bool:
    """Whether readers compute few more values of a map than it has; a reader counts once for each load."""
    own, *others = (_size(one) for one in (plan, *readers))
    if isinstance(own, int) and all(isinstance(other, int) for other in others):
        return sum(others) <= _MORE * own
    return len(others) == 1 and same_extent(others[0], own)


def _is_map(plan: BlockPlan) -> bool:
    return plan.is_plain and not plan.reduce


def _permutes(plan: BlockPlan) -> bool:
    """Whether it is another tensor with its axes in another order."""
    value = plan.stores[0].value
    return isinstance(value, ir.TensorLoad) and all(
        plan.axis_at(index) is not None or isinstance(index, prim.IntImm) for index in value.indices
    )


def _moves_lines(plan: BlockPlan) -> bool:
    """Whether neighbours of what is written are far apart in something that is read."""
    last = plan.last_axis()
    return last is not None and any(_is_far(plan, access, last) for access in plan.loads)


def _is_far(plan: BlockPlan, access: Access, axis: int) -> bool:
    """A step that is not known is one within a line: of a reshape, or of a concatenation."""
    step = plan.step(access, axis)
    return step is not None and abs(step) * tvm.DataType(dtype_of(access.buffer)).itemsize > _SECTOR


def _size(plan: BlockPlan) -> Extent:
    return product(plan.extents[axis] for axis in plan.own)


def _calls(plan: BlockPlan) -> bool:
    """Whether the value takes more than arithmetic: a function, or a quotient."""
    return any(selection_of(one) is None for one in within(plan.stores[0].value, ir.Call, prim.Div))
