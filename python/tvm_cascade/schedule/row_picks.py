"""Products each row of which picks its matrix by data, as blocks of TensorIR.

    for i in s, n, k: y[i, n] += x[i, k] · w[g[i], n, k]

Whatever the picks are made of, rows whose picks are equal read the same matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.analysis.reducers import split_reduction, starts_at_identity
from tvm_cascade.analysis.statements import ROLE, LoopNest, with_block
from tvm_cascade.analysis.tir import Extent, dtype_of, loads_of, rebuilt, uses
from tvm_cascade.schedule.nests import BlockPlan, Written, rewritten

RUNS = "runs"
"""The role of such a product."""


def with_runs_marked(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with such products marked, so that nobody else schedules them; the same object without any.

    Parameters
    ----------
    func : plain nests, not scheduled.
    """

    def marked(nest: LoopNest, plan: BlockPlan) -> Written | None:
        if plan.role or picking_product(nest, plan) is None:
            return None
        noted = rebuilt(nest.block, annotations={**nest.block.annotations, ROLE: RUNS})
        return [with_block(nest.statement, nest.block, noted)], []

    return rewritten(func, marked)


@dataclass(frozen=True)
class Picking:
    """A product Σ_k of a row's element and one of the matrix that the row picks.

    Attributes
    ----------
    plan : of its block; `row`, `column` and `depth` are the block's variables, in this order.
    left, right : the elements.
    picks : what the right one has of the row: integers in memory.
    """

    plan: BlockPlan
    variables: tuple[tirx.Var, tirx.Var, tirx.Var]
    extents: tuple[Extent, int, int]
    left: ir.Expr
    right: ir.Expr
    picks: tuple[ir.TensorLoad, ...]


def picking_product(nest: LoopNest, plan: BlockPlan) -> Picking | None:
    """A nest as such a product; None where it is none."""
    if plan.role not in ("", RUNS) or len(plan.own) != 3 or len(plan.stores) != 1 or not plan.independent or plan.binds:
        return None
    reduction, place = split_reduction(plan.stores[0]), plan.stores[0]
    axes = [*map(plan.axis_at, place.indices), *plan.reduce]
    if reduction is None or reduction[0] is not SUM or sorted(map(repr, axes)) != sorted(map(repr, plan.own)):
        return None
    init, element = nest.block.init, reduction[1]
    if (
        not isinstance(init, tirx.BufferStore)
        or not starts_at_identity(SUM, init.value)
        or type(element) is not prim.Mul
    ):
        return None
    row, column, depth = (plan.variables[axis] for axis in axes if axis is not None)
    extents = tuple(plan.extents[axis] for axis in axes if axis is not None)
    for left, right in ((element.a, element.b), (element.b, element.a)):
        picks = _picks(right, row)
        fixed = isinstance(extents[1], int) and isinstance(extents[2], int)
        if picks and fixed and not uses(left, [column]) and uses(left, [row]) and uses(right, [column]):
            return Picking(plan, (row, column, depth), extents, left, right, picks)  # type: ignore[arg-type]
    return None


def _picks(element: ir.Expr, row: tirx.Var) -> tuple[ir.TensorLoad, ...]:
    """The integers through which alone an element depends on the row; none where it does so otherwise."""
    inner = [own for one in loads_of(element) for index in one.indices for own in loads_of(index)]
    picks = [one for one in inner if uses(one, [row])]
    aside = [one for one in loads_of(element) if not any(one.same_as(pick) for pick in picks)]
    free = {pick.source: tirx.const(0, dtype_of(pick)) for pick in picks}
    rule = (ir.TensorLoad, lambda one: free.get(one.source, one))
    plain = [tvm_ffi.structural_map(index, rule) for one in aside for index in one.indices]
    return () if any(uses(index, [row]) for index in plain) else tuple(picks)
