"""Temporaries of a function narrowed to what is read of them, so that nothing else is computed.

    y[i in 257, j] = Σ_k x[i, k]·w[j, k];  t[j] = y[0, j]      →  y[i in 1, j] = Σ_k x[0, k]·w[j, k];  t[j] = y[0, j]

Of the last layer of a classifier, all but the row of the class token goes this way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import ir, s_tir, sym, tirx
from tvm.ir import prim

from tvm_cascade.analysis.statements import realized_block, replaced, resized, statements_of, with_block, with_nests
from tvm_cascade.analysis.tir import bound_by, extent_of, in_buffers, uses
from tvm_cascade.schedule.nests import BlockPlan, plan_alone
from tvm_cascade.schedule.padding import reading_at

__all__ = ["narrowed"]


@dataclass(frozen=True)
class _Part:
    """What is read of a temporary along a dimension: `extent` positions from `start`, written along an axis."""

    buffer: tirx.Var
    dim: int
    start: int
    extent: int
    writer: BlockPlan
    axis: int


def narrowed(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function without what nobody reads; the same object where all is read, or a nest is not a plain one.

    Parameters
    ----------
    func : an unscheduled S-TIR function.
    """
    whole = isinstance(func.body, s_tir.SBlockRealize)
    if not whole or any(realized_block(nest) is None for nest in statements_of(func)):
        return func
    while (part := _next(func)) is not None:
        func = _cut(func, part)
    return func


def _next(func: tirx.PrimFunc) -> _Part | None:
    """The last temporary that is not read as a whole."""
    plans = plan_alone(func)
    for writer in reversed(plans):
        if len(writer.stores) != 1 or writer.binds:
            continue
        store = writer.stores[0]
        written = [plan for plan in plans if any(other.buffer.same_as(store.buffer) for other in plan.stores)]
        if len(written) != 1 or not any(store.buffer.same_as(own) for own in func.body.block.alloc_buffers):
            continue
        for dim, index in enumerate(store.indices):
            axis, whole = writer.axis_at(index), extent_of(store.buffer.ty.shape[dim])
            if axis is None or axis in writer.reduce or not isinstance(whole, int) or writer.extents[axis] != whole:
                continue
            found = _read(plans, store.buffer, dim)
            if found is not None and found[1] < whole:
                return _Part(store.buffer, dim, *found, writer, axis)
    return None


def _read(plans: Sequence[BlockPlan], buffer: tirx.Var, dim: int) -> tuple[int, int] | None:
    """Start and number of the positions that are read along a dimension; None where that is not known, or none are."""
    ends: list[tuple[int, int]] = []
    for plan in plans:
        for access in plan.loads:
            if not access.buffer.same_as(buffer):
                continue
            found = _ends(plan, access.indices[dim])
            if found is None:
                return None
            ends.append(found)
    if not ends:
        return None
    start = min(first for first, _ in ends)
    return start, max(last for _, last in ends) - start + 1


def _ends(plan: BlockPlan, index: ir.Expr) -> tuple[int, int] | None:
    """The first and the last value of an index; None unless it is a number, or an axis and a number."""
    if isinstance(index, prim.IntImm):
        return int(index), int(index)
    used = [axis for axis, variable in plan.variables.items() if uses(index, [variable])]
    extent = plan.extents[used[0]] if len(used) == 1 else None
    start = None if len(used) != 1 else sym.Analyzer().simplify(index - plan.variables[used[0]])
    if not isinstance(start, prim.IntImm) or not isinstance(extent, int):
        return None
    return int(start), int(start) + extent - 1


def _cut(func: tirx.PrimFunc, part: _Part) -> tirx.PrimFunc:
    """The function with one temporary narrowed along one dimension."""
    shape = [part.extent if dim == part.dim else extent for dim, extent in enumerate(part.buffer.ty.shape)]
    like = part.buffer.ty.shape[part.dim].ty.dtype
    shape[part.dim] = tirx.const(part.extent, like)
    narrow = tirx.decl_buffer(shape, part.buffer.ty.dtype, name=part.buffer.name, layout=None)
    variable = part.writer.variables[part.axis]

    def moved(_buffer: tirx.Var, indices: Sequence[ir.Expr]) -> list[ir.Expr]:
        return [_less(index, part.start) if dim == part.dim else index for dim, index in enumerate(indices)]

    nests, buffers = [], {part.buffer: narrow}
    for nest in statements_of(func):
        realize = realized_block(nest)
        assert realize is not None, "a plain nest"
        block = realize.block
        if block.name_hint != part.writer.name:
            body = in_buffers(block.body, buffers, moved)
            nests.append(with_block(nest, block, replaced(block, body, block.init)))
            continue
        value = variable + part.start if part.extent > 1 else tirx.const(part.start, str(variable.ty.dtype))
        body = reading_at(block.body, variable, value, [part.buffer])
        body, init = (None if one is None else in_buffers(one, buffers) for one in (body, block.init))
        loops = {bound_by(realize)[variable]: part.extent}
        nests.append(resized(with_block(nest, block, replaced(block, body, init)), loops))
    allocated = [narrow if own.same_as(part.buffer) else own for own in func.body.block.alloc_buffers]
    return with_nests(func, nests, allocated)


def _less(index: ir.Expr, start: int) -> ir.Expr:
    if isinstance(index, prim.IntImm):
        return tirx.const(int(index) - start, str(index.ty.dtype))
    return index if start == 0 else index - start
