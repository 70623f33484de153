"""Skips masked tiles in a scheduled function: live tiles first, the others only if a row needs them.

    for tile: body   ->   for turn in 2:
                              wanted = turn == 0, or some row of the task is not settled
                              if wanted: for tile:
                                  if (tile == 0 or the tile has a live position) == (turn == 0): body

Folding in any order gives the same state, so that dead tiles may come last; then a state mostly absorbs them, and they
are not visited at all. A row without any live position does not absorb them: it sees every tile, as the unfused
program does. The first tile starts the state, so it is always visited.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TypeAlias

import tvm_ffi
from tvm import ir, s_tir, sym, tirx
from tvm.ir import prim

from tvm_cascade.analysis.index_sets import greatest
from tvm_cascade.analysis.reducers import identity_of, split_reduction
from tvm_cascade.analysis.statements import allocating, in_its_loops, loops_of, read_nests, renewed
from tvm_cascade.analysis.tir import REDUCTION, bound_by, domain_of, dtype_of, rebuilt, same, substitute, uses
from tvm_cascade.schedule.padding import guard_of, without_guard
from tvm_cascade.transform.dead_tiles import LIVE, UNSETTLED
from tvm_cascade.transform.nest import AXES
from tvm_cascade.tvm_faults.partition import PARTITION_HINT

TURNS = 2


_Skip: TypeAlias = tuple[tirx.For, tuple[tirx.For, ...], ir.Expr, ir.Expr]
"""A loop that can pass tiles over, and those between it and the block that tells dead tiles, outermost first; whether a
tile is visited in the first turn; and in the loop variables, whether a row would change by dead positions."""


def skip_dead_tiles(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The scheduled function with masked tiles skipped; the same object where there are none.

    A mask's dead positions are not looked at, so that an infinity or NaN there does not spoil the row.
    """
    skips = [skip for nest in read_nests(func) if (skip := _read(nest.loops, nest.realize)) is not None]
    if not skips:
        return func
    flags: list[tirx.Var] = []

    def rewrite(loop: tirx.For, mutator: object) -> tirx.Stmt:
        skip = next((skip for skip in skips if skip[0].same_as(loop)), None)
        if skip is None:
            return mutator.default_mutate(loop)  # type: ignore[attr-defined]
        flags.append(tirx.decl_buffer((1,), "int32", name="wanted", layout=None))
        return _in_turns(skip, flags[-1])

    body = tvm_ffi.structural_mutate(func.body, (tirx.For, rewrite))
    return allocating(func.with_body(body), flags)


def _read(loops: Sequence[tirx.For], realize: s_tir.SBlockRealize) -> _Skip | None:
    """The tile loop above a block that is annotated with dead tiles; None where every tile is live."""
    block = realize.block
    if not block.annotations.get(LIVE):
        return None
    values = bound_by(realize)
    reduced = [values[iv.var] for iv in block.iter_vars if iv.iter_type == tirx.IterVar.CommReduce]
    at = next((k for k, loop in enumerate(loops) if len(reduced) == 1 and reduced[0].same_as(loop.loop_var)), None)
    if at is None:
        return None
    inner = tuple(loops[at + 1 :])
    ends = {loop.loop_var: (loop.min, loop.min + loop.extent - 1) for loop in inner}
    analyzer = sym.Analyzer()
    for loop in loops[: at + 1]:
        analyzer.bind(loop.loop_var, ir.Range(loop.min, loop.min + loop.extent))
    tests: list[ir.Expr] = []
    for slack in block.annotations[LIVE]:
        most = greatest(substitute(slack, values), ends)
        if most is not None and not analyzer.can_prove(most >= 0):
            tests.append(prim.GE(analyzer.simplify(most), tirx.const(0, dtype_of(most))))
    if not tests:
        return None
    tile = loops[at].loop_var
    visit = tirx.Or(prim.EQ(tile, tirx.const(0, dtype_of(tile))), reduce(tirx.And, tests))
    return loops[at], inner, visit, substitute(block.annotations[UNSETTLED], values)


def _in_turns(skip: _Skip, wanted: tirx.Var) -> tirx.Stmt:
    loop, inner, visit, unsettled = skip
    dtype = dtype_of(loop.loop_var)
    turn = tirx.Var("turn", dtype)
    first = prim.EQ(turn, tirx.const(0, dtype))
    zero = [tirx.const(0, "int32")]
    one_where = tirx.BufferStore(wanted, tirx.const(1, "int32"), zero)
    rows: tirx.Stmt = tirx.IfThenElse(unsettled, one_where, None)
    for below in reversed(inner):
        rows = tirx.For(below.loop_var, below.min, below.extent, tirx.ForKind.SERIAL, rows)
    rows = renewed(rows)
    ask = tirx.SeqStmt([tirx.BufferStore(wanted, tirx.const(0, "int32"), zero), rows])
    now = tirx.Or(tirx.And(first, visit), tirx.Not(tirx.Or(first, visit)))
    body = tirx.IfThenElse(now, _carrying_turns(loop, turn), None)
    # Without the hint for loop partition: with these conditions around, TVM cuts the loop wrongly one time in ten.
    notes = {name: value for name, value in loop.annotations.items() if name != PARTITION_HINT}
    tiles = rebuilt(loop, body=body, annotations=notes)
    visits = tirx.IfThenElse(prim.GT(tirx.BufferLoad(wanted, zero), tirx.const(0, "int32")), tiles, None)
    in_turn = tirx.SeqStmt([tirx.IfThenElse(first, one_where, ask), visits])
    return tirx.For(turn, tirx.const(0, dtype), tirx.const(TURNS, dtype), tirx.ForKind.SERIAL, in_turn)


def _carrying_turns(loop: tirx.For, turn: tirx.Var) -> tirx.Stmt:
    """The tile loop's body, with the turn as one more reduction axis of every block that carries state over tiles."""

    def extend(realize: s_tir.SBlockRealize) -> s_tir.SBlockRealize:
        block = realize.block
        values = bound_by(realize)
        carries = loop.loop_var in {values[iv.var] for iv in block.iter_vars if iv.iter_type == REDUCTION}
        notes = {name: value for name, value in block.annotations.items() if name not in (AXES, LIVE, UNSETTLED)}
        own = list(block.iter_vars)
        if carries:
            axis = tirx.Var("v_turn", turn.ty)
            own.append(tirx.IterVar(domain_of(turn, TURNS), axis, tirx.IterVar.CommReduce))
        extended = rebuilt(block, iter_vars=own, annotations=notes)
        return s_tir.SBlockRealize([*realize.iter_values, *([turn] if carries else [])], realize.predicate, extended)

    return tvm_ffi.structural_map(loop.body, (s_tir.SBlockRealize, extend))


# Hoists conditions into the bounds of the loop that they constrain: guards of a reduction's element, and predicates of
# blocks, as of an axis that is cut into parts of which the last is shorter.
#
#     for j in 32: for lane: s[lane] += if(t*32 + j < n, a[t*32 + j, lane], 0)
#     ->  for j in min(32, n - t*32): for lane: s[lane] += a[t*32 + j, lane]
#
# A step that adds ⊕'s identity changes nothing, so it may be left out. A condition that bounds the loop ends it, any
# other guard is asked once a step; inside, the arithmetic is straight.


def hoist_guards(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The scheduled function with each such condition at the innermost serial loop whose variable it reads."""

    def rewrite(loop: tirx.For) -> tirx.Stmt:
        return (_hoisted(loop) or loop) if loop.kind == tirx.ForKind.SERIAL else loop

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.For, rewrite)))


def _hoisted(loop: tirx.For) -> tirx.For | None:
    inner, statement = loops_of(loop.body), in_its_loops(loop)
    if not isinstance(statement, s_tir.SBlockRealize):
        return None
    everywhere = s_tir.SBlockRealize(statement.iter_values, True, statement.block)
    for condition, free, is_guard in (*_guarded(statement), (statement.predicate, everywhere, False)):
        if not uses(condition, [loop.loop_var]) or uses(condition, [below.loop_var for below in inner]):
            continue
        rule = (s_tir.SBlockRealize, lambda one, free=free: free if one.same_as(statement) else one)
        body, bound = tvm_ffi.structural_map(loop.body, rule), _bound(condition, loop)
        if bound is not None:
            return rebuilt(loop, extent=bound, body=body)
        if is_guard:
            return rebuilt(loop, body=tirx.IfThenElse(condition, body, None))
    return None


def _guarded(statement: s_tir.SBlockRealize) -> Iterator[tuple[ir.Expr, s_tir.SBlockRealize, bool]]:
    """The guard of a reduction's element, in the loop variables, and the block without it."""
    block, place = statement.block, statement.block.body
    if not isinstance(place, tirx.BufferStore) or block.init is not None:
        return
    reduction, guard = split_reduction(place), guard_of(place)
    # An extremum may have started at an infinity, below its own identity.
    if reduction is None or guard is None or reduction[0].ordered:
        return
    condition, _, other = guard.args
    if same(other, identity_of(reduction[0], dtype_of(other))):
        free = rebuilt(block, body=without_guard(place))
        yield (
            substitute(condition, bound_by(statement)),
            s_tir.SBlockRealize(statement.iter_values, statement.predicate, free),
            True,
        )


def _bound(condition: ir.Expr, loop: tirx.For) -> ir.Expr | None:
    """Steps of a loop from 0 for which a condition holds, if these are its first; None where that is not known."""
    if not isinstance(condition, prim.LT):
        return None
    first = substitute(condition.a, {loop.loop_var: loop.min})
    analyzer = sym.Analyzer()
    steady = analyzer.can_prove_equal(condition.a - first, loop.loop_var - loop.min)
    if not steady or uses(condition.b, [loop.loop_var]) or not analyzer.can_prove_equal(loop.min, 0):
        return None
    return tirx.max(tirx.min(loop.extent, condition.b - first), tirx.const(0, dtype_of(loop.loop_var)))
