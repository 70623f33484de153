"""Normalises block bindings: one loop from 0 for each block variable, over the whole of its domain.

for i0, i1: v = i0·8 + i1              →  for v in 24
for f: v, w = f // 24, f % 24          →  for v, w
for j from 3: v = j                    →  for v                 with v + 3 where the block reads v
for i, u in 1: v = i                   →  for v

That is the same where loops and variables are one to one, by TVM's own analysis of affine maps, and where the block
runs in the order in which it ran, or stores what does not depend on that order. All else stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tvm import ir, s_tir, sym, tirx
from tvm.ir import prim

from tvm_cascade.analysis.index_sets import AffineMap, affine_map, run_in_order
from tvm_cascade.analysis.reducers import single_store, split_update
from tvm_cascade.analysis.statements import (
    RECENT,
    in_loops,
    is_serial,
    loops_of,
    realized_block,
    replaced,
    why_not_plain,
)
from tvm_cascade.analysis.tir import (
    DATA_PARALLEL,
    REDUCTION,
    Extent,
    analyzer_of,
    domain_of,
    dtype_of,
    extent_of,
    loads_of,
    reads_buffer,
    same,
    same_extent,
    substitute,
    uses,
    variables_of,
    zero_of,
)


@lru_cache(RECENT)
def plainly_bound(nest: tirx.Stmt) -> tirx.Stmt:
    """The nest over its block's own variables; the same object where it has that form already, or none."""
    realize, loops = realized_block(nest), loops_of(nest)
    if realize is None or not _is_open(realize.block, loops) or why_not_plain(nest) is None:
        return nest
    shifted = {loop.loop_var: _from_zero(loop) for loop in loops}
    extents = {loop.loop_var: extent_of(loop.extent) for loop in loops if extent_of(loop.extent) != 1}
    values = [substitute(value, shifted) for value in realize.iter_values]
    box, iterators = affine_map(values, extents), list(realize.block.iter_vars)
    if box is None:
        return nest
    domains = list(map(_domain, iterators, box.firsts, box.extents))
    if None in domains:
        return nest
    fresh = [tirx.Var(iv.var.name.removeprefix("v_"), iv.var.ty) for iv in iterators]
    order = sorted(range(len(values)), key=lambda k: _outermost(values[k], list(extents)))
    new, inverse = {fresh[k]: box.extents[k] for k in order}, box.inverse(fresh)
    if not run_in_order(extents, inverse, new) and not _in_any_order(realize.block):
        return nest
    predicate = analyzer_of(new).simplify(substitute(substitute(realize.predicate, shifted), inverse))
    at = {iv.var: iv.var + first for iv, first in zip(iterators, box.firsts, strict=True)}
    own = [
        tirx.IterVar(domain_of(iv.var, extent), iv.var, iv.iter_type)
        for iv, extent in zip(iterators, domains, strict=True)
        if extent is not None
    ]
    init = None if realize.block.init is None else substitute(realize.block.init, at)
    block = replaced(realize.block, substitute(realize.block.body, at), init, own)
    return in_loops(new, s_tir.SBlockRealize(fresh, predicate, block))


def _domain(iterator: tirx.IterVar, first: ir.Expr, extent: Extent) -> Extent | None:
    """The extent of an iterator's domain from 0, where it is bound to `extent` values from a first one on.

    None where its start is not among its values, or these exceed its domain.
    """
    whole = extent_of(iterator.dom.extent)
    fits = same_extent(extent, whole) or (isinstance(extent, int) and isinstance(whole, int) and extent < whole)
    if fits and iterator.iter_type != REDUCTION:
        return extent
    return (extent if fits else whole) if sym.Analyzer().can_prove_equal(first, iterator.dom.min) else None


def _is_open(block: s_tir.SBlock, loops: Sequence[tirx.For]) -> bool:
    """Whether a block is of its loops and iterators alone, and each loop serial and as long whatever others are at."""
    inner = [loop.loop_var for loop in loops]
    typed = all(iv.iter_type in (DATA_PARALLEL, REDUCTION) for iv in block.iter_vars)
    fixed = not any(uses(e, inner) or loads_of(e) for loop in loops for e in (loop.min, loop.extent))
    some = all(extent_of(loop.extent) != 0 for loop in loops)
    return typed and fixed and some and all(map(is_serial, loops))


def _from_zero(loop: tirx.For) -> ir.Expr:
    """A loop's variable, as one from 0 and its first value; the value alone where there is no other."""
    if extent_of(loop.extent) == 1:
        return loop.min
    return loop.loop_var if extent_of(loop.min) == 0 else loop.loop_var + loop.min


def _outermost(value: ir.Expr, loops: Sequence[tirx.Var]) -> int:
    """The place of the outermost loop that a value uses."""
    used = {*variables_of(value)}
    return next((k for k, loop in enumerate(loops) if loop in used), len(loops))


def _in_any_order(block: s_tir.SBlock) -> bool:
    """Whether a block stores the same in whatever order its points are: maps, and reductions of ⊕, by element."""
    store = single_store(block.body)
    if store is None:
        return False
    rows = [iv.var for iv in block.iter_vars if iv.iter_type != REDUCTION and extent_of(iv.dom.extent) != 1]
    if not {*rows} <= {*store.indices}:
        return False
    own = tirx.BufferLoad(store.buffer, list(store.indices))
    if not any(iv.iter_type == REDUCTION for iv in block.iter_vars):
        return block.init is None and not reads_buffer(store.value, store.buffer)
    update = split_update(store.value, own)
    started = single_store(block.init) if block.init is not None else None
    if started is None or not started.buffer.same_as(store.buffer) or not same(started.indices, store.indices):
        return False
    return update is not None and update.element is not None and not reads_buffer(update.element, store.buffer)


# Results stored at indices other than the block's own variables, as in a tiled buffer.
#
# m[i // 4, i % 4] ⊕= e                  →  r[i] ⊕= e;  m[i // 4, i % 4] = r[i]
# t[i // 4, i % 4] = a(i)                →  t[j, k] = a(j·4 + k)
#
# That is the same where no two positions of the block store into one element, by TVM's own analysis of affine maps.
# What reads m[i // 4, i % 4] reads r[i] then, as any function of its indices is read.


def rows_of(block: s_tir.SBlock) -> dict[tirx.Var, Extent]:
    """The spatial variables of a block over more than one position, with their extents."""
    extents = {iv.var: extent_of(iv.dom.extent) for iv in block.iter_vars if iv.iter_type == DATA_PARALLEL}
    return {var: extent for var, extent in extents.items() if extent != 1}


def layout_of(block: s_tir.SBlock, store: tirx.BufferStore) -> AffineMap | None:
    """Where a block stores each element of a box once, at indices other than its own variables."""
    rows = rows_of(block)
    indices = [sym.Analyzer().simplify(substitute(index, alone(block))) for index in store.indices]
    plain = all(index in rows or isinstance(index, prim.IntImm) for index in indices)
    return None if plain or not rows else affine_map(indices, rows)


def alone(block: s_tir.SBlock) -> dict[tirx.Var, ir.Expr]:
    """The one position of each variable that has no other."""
    return {iv.var: zero_of(iv.var) for iv in block.iter_vars if extent_of(iv.dom.extent) == 1}


def over_its_buffer(nest: tirx.Stmt) -> tirx.Stmt:
    """An elementwise nest over the indices at which it stores; the same object where it has no such form."""
    realize = realized_block(nest)
    store = None if realize is None else single_store(realize.block.body)
    if realize is None or store is None or realize.block.init is not None or why_not_plain(nest) is not None:
        return nest
    block = realize.block
    spatial = all(iv.iter_type == DATA_PARALLEL for iv in block.iter_vars)
    found = layout_of(block, store) if spatial and not reads_buffer(store.value, store.buffer) else None
    if found is None:
        return nest
    own = [tirx.Var(f"v_d{k}", dtype_of(index)) for k, index in enumerate(store.indices)]
    known = analyzer_of(dict(zip(own, found.extents, strict=True)))
    at = {var: known.simplify(value) for var, value in {**found.inverse(own), **alone(block)}.items()}
    body = tirx.BufferStore(store.buffer, substitute(store.value, at), found.places(own))
    pairs = list(zip(own, found.extents, strict=True))
    iters = [tirx.IterVar(domain_of(var, extent), var, DATA_PARALLEL) for var, extent in pairs]
    loops = {tirx.Var(var.name.removeprefix("v_"), var.ty): extent for var, extent in pairs}
    return in_loops(loops, s_tir.SBlockRealize([*loops], True, replaced(block, body, None, iters)))
