"""Block predicates (`T.where`) as tighter loop bounds, or as masks on the stored value.

for j in 40: where j < 37: block       →  for j in 37: block
where c: s = s ⊕ e                     →  if c: s = s ⊕ e
where c: init s;  s = s ⊕ e            →  init s;  if c: s = s ⊕ e         where c holds at the first position
where c: t[i] = a                      →  t[i] = if_then_else(c, a, 0)     where none but this block writes t

A block is started at the first position of its axis, and so not at all where its predicate leaves that out: what it
then goes on from is the caller's. A buffer of the function's own has nothing in it there, and so may be started, and
written, at all positions.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import prim

from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.analysis.index_sets import stay_within
from tvm_cascade.analysis.reducers import identity_of, single_store
from tvm_cascade.analysis.statements import (
    loops_of,
    mentions,
    realized_block,
    replaced,
    resized,
    runs_always,
    with_block,
)
from tvm_cascade.analysis.tir import (
    REDUCTION,
    conjuncts,
    dtype_of,
    extent_of,
    reads_buffer,
    substitute,
    uses,
    within,
    zero_of,
)


def without_predicates(nests: Sequence[tirx.Stmt], own: Sequence[tirx.Var]) -> list[tirx.Stmt]:
    """The nests with predicates turned into loop bounds and masks where possible.

    Parameters
    ----------
    own : buffers that the function allocates.
    """
    written = [_written(nest, own) for nest in nests]
    found = []
    for position, nest in enumerate(nests):
        others = {buffer for k, buffers in enumerate(written) if k != position for buffer in buffers}
        alone = [buffer for buffer in own if buffer not in others]
        found.append(_unguarded(nest, alone))
    return found


def _written(nest: tirx.Stmt, own: Sequence[tirx.Var]) -> list[tirx.Var]:
    if realized_block(nest) is None:
        return [buffer for buffer in own if mentions(nest, buffer)]
    written = {store.buffer for store in within(nest, tirx.BufferStore)}
    return [buffer for buffer in own if buffer in written]


def _unguarded(nest: tirx.Stmt, alone: Sequence[tirx.Var]) -> tirx.Stmt:
    """One nest; `alone` are buffers that nobody else writes, the caller included."""
    realize = realized_block(nest)
    store = None if realize is None else single_store(realize.block.body)
    if realize is None or store is None:
        return nest
    own = store.buffer in {*alone}
    undefined = own and _is_inside(realize.block, store)
    if not runs_always(realize):
        short, conditions = _shortened(nest, realize, undefined)
        cut = realized_block(short)
        undefined = own and cut is not None and _is_inside(cut.block, store)
        block = _with_conditions(short, conditions, store, undefined)
        if block is None:
            return nest
        always = s_tir.SBlockRealize(realize.iter_values, True, block)
        nest = tvm_ffi.structural_map(short, (s_tir.SBlockRealize, lambda _: always))
    return _written_everywhere(nest) if undefined else nest


def _is_inside(block: s_tir.SBlock, store: tirx.BufferStore) -> bool:
    """Whether a block stores into its buffer at every position, also at those that a predicate leaves out."""
    return stay_within(store.indices, store.buffer.ty.shape, _inside(block))


def _inside(block: s_tir.SBlock) -> tvm.sym.Analyzer:
    analyzer = tvm.sym.Analyzer()
    for iv in block.iter_vars:
        analyzer.bind(iv.var, iv.dom)
    return analyzer


def _iterators(realize: s_tir.SBlockRealize) -> list[tuple[ir.Expr, tirx.IterVar]]:
    return list(zip(realize.iter_values, realize.block.iter_vars, strict=True))


def _shortened(nest: tirx.Stmt, realize: s_tir.SBlockRealize, undefined: bool) -> tuple[tirx.Stmt, list[ir.Expr]]:
    """The nest with loops only as far as the predicate lets them run, and the conditions that are left.

    Reduction loops keep their length, to be as long as those of other reductions; and so do those over
    elements that may be written anyway. A loop beyond its iterator's domain never does.
    """
    left: list[ir.Expr] = []
    iterators = _iterators(realize)
    for condition in conjuncts(realize.predicate):
        var, until = _limit(condition) or (None, 0)
        iterator = next((iv for value, iv in iterators if var is not None and value.same_as(var)), None)
        domain = None if iterator is None else extent_of(iterator.dom.extent)
        length = None if var is None else _length(nest, var)
        if iterator is None or not isinstance(domain, int) or not isinstance(length, int) or until < 1:
            left.append(condition)
        elif length > domain >= until or (until < length and iterator.iter_type != REDUCTION and not undefined):
            nest = resized(nest, {var: until})
        elif until < length:
            left.append(condition)
    return nest, left


def _limit(condition: ir.Expr) -> tuple[tirx.Var, int] | None:
    """(v, n) of a condition v < n."""
    for kind, swapped, more in _UPPER:
        if isinstance(condition, kind):
            var, last = (condition.b, condition.a) if swapped else (condition.a, condition.b)
            if isinstance(var, ir.Var) and isinstance(last, prim.IntImm):
                return var, int(last) + more
    return None


_UPPER = ((prim.LT, False, 0), (prim.LE, False, 1), (prim.GT, True, 0), (prim.GE, True, 1))
"""Comparisons that bound what stands on the left, or on the right, and by how much more than the other side."""


def _length(nest: tirx.Stmt, var: tirx.Var) -> object:
    """The extent of a loop from 0."""
    own = next((loop for loop in loops_of(nest) if loop.loop_var.same_as(var)), None)
    return None if own is None or extent_of(own.min) != 0 else extent_of(own.extent)


def _with_conditions(
    nest: tirx.Stmt, conditions: Sequence[ir.Expr], store: tirx.BufferStore, undefined: bool
) -> s_tir.SBlock | None:
    """The block with conditions on what it stores; None where what its predicate leaves as it was would be seen."""
    realize = realized_block(nest)
    assert realize is not None
    block = realize.block
    if not conditions:
        return block
    bound = {value: iv.var for value, iv in _iterators(realize) if isinstance(value, ir.Var)}
    condition = substitute(tirx.all(*conditions), bound)
    if uses(condition, [loop.loop_var for loop in loops_of(nest)]):
        return None
    goes_on = reads_buffer(store.value, store.buffer)
    started = goes_on if block.init is None else _holds_at_first(condition, block, store.buffer)
    if not undefined and not started:
        return None
    return replaced(block, tirx.IfThenElse(condition, block.body, None), block.init)


def _holds_at_first(condition: ir.Expr, block: s_tir.SBlock, buffer: tirx.Var) -> bool:
    """Whether a condition can be proved at the first position of the block's axis, for all rows."""
    if reads_buffer(condition, buffer):
        return False
    reduced = [iv.var for iv in block.iter_vars if iv.iter_type == REDUCTION]
    return bool(_inside(block).can_prove(substitute(condition, {var: zero_of(var) for var in reduced})))


def _written_everywhere(nest: tirx.Stmt) -> tirx.Stmt:
    """if c: t[i] = a  →  t[i] = if_then_else(c, a, 0), where nothing else defines t and each element is stored once."""
    realize = realized_block(nest)
    assert realize is not None
    block = realize.block
    if not isinstance(block.body, tirx.IfThenElse) or block.body.else_case is not None or block.init is not None:
        return nest
    store = single_store(block.body.then_case)
    rows = [iv.var for iv in block.iter_vars if extent_of(iv.dom.extent) != 1]
    if store is None or not {*rows} <= {*store.indices}:
        return nest
    if any(reads_buffer(e, store.buffer) for e in (store.value, block.body.condition, *store.indices)):
        return nest
    zero = identity_of(SUM, dtype_of(store.buffer))
    value = tirx.if_then_else(block.body.condition, store.value, zero)
    return with_block(nest, block, replaced(block, tirx.BufferStore(store.buffer, value, list(store.indices)), None))
