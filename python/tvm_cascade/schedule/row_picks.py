"""Products each row of which picks its matrix by data, as blocks of TensorIR.

    for i in s, n, k: y[i, n] += x[i, k] · w[g[i], n, k]

Whatever the picks are made of, rows whose picks are equal read the same matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import prim

from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.analysis.reducers import split_reduction, starts_at_identity
from tvm_cascade.analysis.statements import realized_block, statements_of
from tvm_cascade.analysis.tir import Extent, dtype_of, loads_of, uses
from tvm_cascade.schedule.nests import BlockPlan, nests_in, plan_nest
from tvm_cascade.transform.nest import ROLE
from tvm_cascade.tvm_faults.copies import private_copy

RUNS = "runs"
"""The role of such a product."""


def with_runs_marked(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with such products marked, so that nobody else schedules them; the same object without any.

    Parameters
    ----------
    func : plain nests, not scheduled.
    """
    products = map(picking_product, statements_of(func))
    names = [found.plan.name for found in products if found is not None and not found.plan.role]
    if not names:
        return func
    sch = s_tir.Schedule(private_copy(func))
    for name in names:
        sch.annotate(sch.get_sblock(name), ROLE, RUNS)
    return sch.mod["main"]


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


def picking_product(nest: tirx.Stmt) -> Picking | None:
    realize = realized_block(nest)
    if realize is None or len(nests := nests_in(nest)) != 1:
        return None
    plan = plan_nest(nests[0])
    if plan.role not in ("", RUNS) or len(plan.own) != 3 or len(plan.stores) != 1 or not plan.independent or plan.binds:
        return None
    reduction, place = split_reduction(plan.stores[0]), plan.stores[0]
    axes = [*map(plan.axis_at, place.indices), *plan.reduce]
    if reduction is None or reduction[0] is not SUM or sorted(map(repr, axes)) != sorted(map(repr, plan.own)):
        return None
    init, element = realize.block.init, reduction[1]
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
