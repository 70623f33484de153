"""Products that read an operand through windows, as products of matrices.

    y[f, i, j] += w[f, c, a, b] * x[c, s·i + a, s·j + b]
    ->  x_window[c, a, b, (i, j)] = x[c, s·i + a, s·j + b];   y[f, (i, j)] += w[f, c, a, b] * x_window[c, a, b, (i, j)]

The lanes of a register tile run along the output's last axes. Where the operand is not contiguous along the last one,
or where that is shorter than a register tile and others join it, the operand is copied with its lanes side by side.
What is contiguous, such as windows that move by one along rows of many vectors, is read where it lies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir, s_tir, tirx
from tvm.tirx import IndexMap

from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.analysis.product_axes import product_axes
from tvm_cascade.analysis.reducers import split_reduction
from tvm_cascade.devices.device import Cpu
from tvm_cascade.schedule.microkernel import packed_dim
from tvm_cascade.schedule.nests import Access, BlockPlan, plan_alone
from tvm_cascade.schedule.private_copy import private_copy
from tvm_cascade.schedule.roles import OPERAND
from tvm_cascade.transform.nest import ROLE

__all__ = ["windows_copied"]

VECTORS = 2
"""Of a register tile, as long as which an output axis is to be."""


@dataclass(frozen=True)
class _Window:
    """An operand that is read through windows.

    Attributes
    ----------
    access : the load.
    lanes : output axes that become one along the lanes, outermost first.
    """

    access: Access
    lanes: tuple[int, ...]


def windows_copied(func: tirx.PrimFunc, cpu: Cpu) -> tirx.PrimFunc:
    """The unfused function with copies of operands that are read through windows; the same object where there are none.

    Parameters
    ----------
    func : plain nests, not scheduled.
    cpu : whose vectors lanes are for.
    """
    names = [plan.name for plan in plan_alone(func) if _window(plan, cpu) is not None]
    if not names:
        return func
    sch = s_tir.Schedule(private_copy(func))
    for name in names:
        plan = _plan(sch, name)
        window = _window(plan, cpu)
        assert window is not None, "copies for other products do not change this one"
        _copy(sch, plan, window)
        if len(window.lanes) > 1:
            _join(sch, plan, window)
    return sch.mod["main"]


def _plan(sch: s_tir.Schedule, name: str) -> BlockPlan:
    return next(plan for plan in plan_alone(sch.mod["main"]) if plan.name == name)


def _window(plan: BlockPlan, cpu: Cpu) -> _Window | None:
    """The operand of a product that is to be copied; None where the product's lanes are contiguous, or it is none."""
    if plan.role or len(plan.stores) != 1 or not plan.reduce or not plan.is_static or not plan.independent:
        return None
    reduction, last = split_reduction(plan.stores[0]), plan.last_axis()
    if reduction is None or reduction[0] is not SUM or last is None or last in plan.reduce:
        return None
    operands = [access for access in plan.loads if plan.axes_of(access) & plan.reduce]
    axes = product_axes([plan.axes_of(access) for access in operands], last, plan.spatial)
    if axes is None or len(axes.along) != 1:
        return None
    access = operands[axes.along[0]]
    others = [plan.axes_of(other) for k, other in enumerate(operands) if k != axes.along[0]]
    lanes = _joinable(plan, access, frozenset[int]().union(*others))
    if sum(access.buffer.same_as(other.buffer) for other in plan.loads) > 1 or not lanes:
        return None
    extent, wide = int(plan.extents[last]), cpu.lanes(plan.dtype)
    short = len(lanes) > 1 and (extent < VECTORS * wide or extent % wide != 0)
    strided = plan.step(access, last) != 1 and packed_dim(plan, access, last) is None
    if not short and not strided:
        return None
    return _Window(access, lanes if short else lanes[-1:])


def _joinable(plan: BlockPlan, access: Access, others: frozenset[int]) -> tuple[int, ...]:
    """The last axes of the output that this operand has and no other one, outermost first."""
    found: list[int] = []
    for index in reversed(plan.stores[0].indices):
        axis = plan.axis_at(index)
        if axis is None or axis in plan.reduce or axis in others or axis not in plan.axes_of(access):
            break
        found.insert(0, axis)
    return tuple(found)


def _copy(sch: s_tir.Schedule, plan: BlockPlan, window: _Window) -> None:
    """Copies an operand with the lanes last, behind whatever else it is indexed by."""
    block = sch.get_sblock(plan.name)
    reads = sch.get(block).reads
    place = next(k for k, region in enumerate(reads) if region.source.same_as(window.access.buffer))
    copy = sch.reindex(block, ("read", place))
    sch.annotate(copy, ROLE, OPERAND)
    again = _plan(sch, plan.name)
    made = sch.get(copy).writes[0].source
    indices = next(access.indices for access in again.loads if access.buffer.same_as(made))
    axes = [again.axis_at(index) for index in indices]
    last = [axes.index(axis) for axis in window.lanes if axis in axes]
    first = [dim for dim in range(len(axes)) if dim not in last]
    extents = [int(extent) for extent in made.ty.shape]
    loops = sch.get_loops(copy)
    sch.reorder(*(loops[dim] for dim in (*first, *last)))

    def layout(*dims: Any) -> list[Any]:
        return [*(dims[dim] for dim in first), joined([dims[dim] for dim in last], [extents[dim] for dim in last])]

    sch.transform_layout(copy, ("write", 0), layout)


def _join(sch: s_tir.Schedule, plan: BlockPlan, window: _Window) -> None:
    """Makes one axis of the lanes' axes, in a result of its own."""
    block = sch.get_sblock(plan.name)
    sch.cache_write(block, 0, "global")
    extents = [int(plan.extents[axis]) for axis in window.lanes]
    places = [plan.own.index(axis) for axis in window.lanes]
    shared = len(window.lanes)

    def result(*dims: Any) -> list[Any]:
        return [*dims[:-shared], joined(list(dims[-shared:]), extents)]

    def loops(*iters: Any) -> list[Any]:
        last = joined([iters[k] for k in places], extents)
        return [last if k == places[-1] else one for k, one in enumerate(iters) if k not in places[:-1]]

    sch.transform_layout(block, ("write", 0), result)
    dtype = str(plan.variables[window.lanes[-1]].ty.dtype)
    sch.transform_block_layout(block, IndexMap.from_func(loops, ndim=len(plan.own), index_dtype=dtype))


def joined(indices: Sequence[ir.Expr], extents: Sequence[int]) -> ir.Expr:
    """One index for several, the last of which moves by one."""
    steps = [math.prod(extents[k + 1 :]) for k in range(len(extents))]
    terms = [index * step for index, step in zip(indices, steps, strict=True)]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
