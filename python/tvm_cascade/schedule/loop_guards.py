"""Hoists guards of a reduction's element into the bounds of the loop that they constrain.

    for j in 32: for lane: s[lane] += if(t*32 + j < n, a[t*32 + j, lane], 0)
    ->  for j in min(32, n - t*32): for lane: s[lane] += a[t*32 + j, lane]

A step that adds ⊕'s identity changes nothing, so it may be left out. A condition that bounds the loop ends it, any
other is asked once a step; inside, the arithmetic is straight.
"""

from __future__ import annotations

import tvm_ffi
from tvm import ir, s_tir, sym, tirx
from tvm.ir import prim

from tvm_cascade.analysis.reducers import identity_of, split_reduction
from tvm_cascade.analysis.statements import loops_of, with_block
from tvm_cascade.analysis.tir import bound_by, dtype_of, rebuilt, same, substitute, uses
from tvm_cascade.schedule.padding import guard_of


def hoist_guards(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The scheduled function with each such guard at the innermost serial loop whose variable it reads."""

    def rewrite(loop: tirx.For) -> tirx.Stmt:
        return (_hoisted(loop) or loop) if loop.kind == tirx.ForKind.SERIAL else loop

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.For, rewrite)))


def _hoisted(loop: tirx.For) -> tirx.For | None:
    inner = loops_of(loop.body)
    statement = inner[-1].body if inner else loop.body
    if not isinstance(statement, s_tir.SBlockRealize) or not isinstance(statement.block.body, tirx.BufferStore):
        return None
    place, block = statement.block.body, statement.block
    reduction, guard = split_reduction(place), guard_of(place)
    if reduction is None or guard is None or block.init is not None:
        return None
    condition, element, other = guard.args
    at = substitute(condition, bound_by(statement))
    named = uses(at, [loop.loop_var]) and not uses(at, [below.loop_var for below in inner])
    # An extremum may have started at an infinity, below its own identity.
    changes_nothing = not reduction[0].ordered and same(other, identity_of(reduction[0], dtype_of(other)))
    if not named or not changes_nothing:
        return None
    opened = tvm_ffi.structural_map(place, (ir.Call, lambda call: element if same(call, guard) else call))
    body = with_block(loop.body, block, rebuilt(block, body=opened))
    bound = _bound(at, loop)
    if bound is not None:
        return rebuilt(loop, extent=bound, body=body)
    return rebuilt(loop, body=tirx.IfThenElse(at, body, None))


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
