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
from dataclasses import dataclass
from functools import lru_cache

import tvm
from tvm import ir, s_tir, tirx
from tvm.ir import prim
from tvm.sym.iter_affine_map import IterMapLevel

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
    as_index,
    domain_of,
    dtype_of,
    extent_of,
    loads_of,
    product,
    reads_buffer,
    same,
    same_extent,
    substitute,
    uses,
    variables_of,
    zero_of,
)


@dataclass(frozen=True)
class _Variable:
    """A variable of a block: its iterator, and the values that it is bound to, in [first, first + extent)."""

    iterator: tirx.IterVar
    first: ir.Expr
    extent: Extent

    @property
    def domain(self) -> Extent | None:
        """The extent of its domain from 0; None where its start is not among its values or exceeds the domain."""
        low, whole = self.iterator.dom.min, extent_of(self.iterator.dom.extent)
        if self.iterator.iter_type != REDUCTION and not self._beyond(whole):
            return self.extent
        if not tvm.sym.Analyzer().can_prove_equal(self.first, low):
            return None
        return whole if self._beyond(whole) else self.extent

    def _beyond(self, whole: Extent) -> bool:
        return not same_extent(self.extent, whole) and not (
            isinstance(self.extent, int) and isinstance(whole, int) and self.extent < whole
        )


@lru_cache(RECENT)
def plainly_bound(nest: tirx.Stmt) -> tirx.Stmt:
    """The nest over its block's own variables; the same object where it has that form already, or none."""
    realize, loops = realized_block(nest), loops_of(nest)
    if realize is None or not _is_open(realize.block, loops) or _is_plain(realize, loops):
        return nest
    shifted = {loop.loop_var: _from_zero(loop) for loop in loops}
    extents = {loop.loop_var: extent_of(loop.extent) for loop in loops if extent_of(loop.extent) != 1}
    values = [substitute(value, shifted) for value in realize.iter_values]
    maps = affine_maps(values, extents)
    if maps is None:
        return nest
    lengths = [extent_of(m.args[0].extent) if m.args else 1 for m in maps]
    firsts = [m.base for m in maps]
    variables = [_Variable(*parts) for parts in zip(realize.block.iter_vars, firsts, lengths, strict=True)]
    if any(variable.domain is None for variable in variables):
        return nest
    order = sorted(range(len(values)), key=lambda k: _outermost(values[k], list(extents)))
    fresh = [tirx.Var(v.iterator.var.name.removeprefix("v_"), v.iterator.var.ty) for v in variables]
    inverse = inverse_of(maps, [var + first for var, first in zip(fresh, firsts, strict=True)])
    new = {fresh[k]: variables[k].extent for k in order}
    if not _same_order(extents, inverse, new) and not _in_any_order(realize.block):
        return nest
    predicate = analyzer_of(new).simplify(substitute(substitute(realize.predicate, shifted), inverse))
    found: tirx.Stmt = s_tir.SBlockRealize(fresh, predicate, _from_its_first(realize.block, variables))
    return in_loops({fresh[k]: variables[k].extent for k in order}, found)


def _is_open(block: s_tir.SBlock, loops: Sequence[tirx.For]) -> bool:
    """Whether a block is of its loops and iterators alone, and each loop serial and as long whatever others are at."""
    inner = [loop.loop_var for loop in loops]
    typed = all(iv.iter_type in (DATA_PARALLEL, REDUCTION) for iv in block.iter_vars)
    fixed = not any(uses(e, inner) or loads_of(e) for loop in loops for e in (loop.min, loop.extent))
    some = all(extent_of(loop.extent) != 0 for loop in loops)
    return typed and fixed and some and all(map(is_serial, loops)) and not (block.match_buffers or block.alloc_buffers)


def _is_plain(realize: s_tir.SBlockRealize, loops: Sequence[tirx.For]) -> bool:
    """Whether every variable is a loop from 0 over its domain (or past it, under a predicate), or a unit's number."""
    left = list(loops)
    for iterator, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        domain = extent_of(iterator.dom.extent)
        if isinstance(value, prim.IntImm) and domain == 1:
            continue
        loop = next((loop for loop in left if loop.loop_var.same_as(value)), None)
        if loop is None or extent_of(loop.min) != 0 or extent_of(iterator.dom.min) != 0:
            return False
        length = extent_of(loop.extent)
        if isinstance(length, int) and isinstance(domain, int) and length < domain:
            return False
        left.remove(loop)
    return not left


def _from_zero(loop: tirx.For) -> ir.Expr:
    """A loop's variable, as one from 0 and its first value; the value alone where there is no other."""
    if extent_of(loop.extent) == 1:
        return loop.min
    return loop.loop_var if extent_of(loop.min) == 0 else loop.loop_var + loop.min


def affine_maps(values: Sequence[ir.Expr], extents: dict[tirx.Var, Extent]) -> Sequence[tvm.sym.IterSumExpr] | None:
    """Index expressions that are a bijection from the variables' box onto another box, as TVM's iterator maps.

    Each is its first value, and at most one part that counts up from 0. None where they are anything else.
    """
    if not all(any(uses(value, (var,)) for value in values) for var in extents):
        return None
    domains = {var: domain_of(var, extent) for var, extent in extents.items()}
    maps = tvm.sym.detect_iter_map(list(values), domains, True, IterMapLevel.Bijective, False).indices
    if len(maps) != len(values) or any(len(m.args) > 1 for m in maps):
        return None
    plain = all(extent_of(part.scale) == 1 for m in maps for part in m.args)
    return list(maps) if plain and _is_bijection(values, extents, maps) else None


def _is_bijection(
    values: Sequence[ir.Expr], extents: dict[tirx.Var, Extent], maps: Sequence[tvm.sym.IterSumExpr]
) -> bool:
    """Whether the maps are what they say: TVM takes (v + 1) // 2 and (v + 1) % 2 for those of v.

    Their inverse leads back to every position of as large a box, from within the variables' own.
    """
    lengths = [extent_of(m.args[0].extent) if m.args else 1 for m in maps]
    at = [tirx.Var(f"d{k}", dtype_of(value)) for k, value in enumerate(values)]
    analyzer = analyzer_of(dict(zip(at, lengths, strict=True)))
    outputs = [var + m.base for var, m in zip(at, maps, strict=True)]
    inverse = inverse_of(maps, outputs)
    back = all(
        analyzer.can_prove_equal(substitute(v, inverse), output) for v, output in zip(values, outputs, strict=True)
    )
    within = all(
        analyzer.can_prove(inverse[var] >= 0) and analyzer.can_prove(inverse[var] < as_index(extent, dtype_of(var)))
        for var, extent in extents.items()
    )
    return back and within and same_extent(product(lengths), product(extents.values()))


def inverse_of(maps: Sequence[tvm.sym.IterSumExpr], outputs: Sequence[ir.Expr]) -> dict[tirx.Var, ir.Expr]:
    """The inverse of the maps: the variables in terms of the outputs."""
    return dict(tvm.sym.inverse_affine_iter_map(list(maps), list(outputs)).items())


def _outermost(value: ir.Expr, loops: Sequence[tirx.Var]) -> int:
    """The place of the outermost loop that a value uses."""
    used = {*variables_of(value)}
    return next((k for k, loop in enumerate(loops) if loop in used), len(loops))


def _same_order(old: dict[tirx.Var, Extent], inverse: dict[tirx.Var, ir.Expr], new: dict[tirx.Var, Extent]) -> bool:
    """Whether the new loops run through the points of the old ones in the same order."""
    before = _counted([(substitute(var, inverse), extent) for var, extent in old.items()])
    after = _counted(list(new.items()))
    return before is None or after is None or bool(analyzer_of(new).can_prove_equal(before, after))


def _counted(digits: Sequence[tuple[ir.Expr, Extent]]) -> ir.Expr | None:
    """How many points come before one, outermost digit first; None over no loops."""
    count: ir.Expr | None = None
    for digit, extent in digits:
        count = digit if count is None else count * as_index(extent, dtype_of(count)) + digit
    return count


def _in_any_order(block: s_tir.SBlock) -> bool:
    """Whether a block stores the same in whatever order its points are: maps, and reductions of ⊕, by element."""
    store = single_store(block.body)
    if store is None or block.match_buffers or block.alloc_buffers:
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


def _from_its_first(block: s_tir.SBlock, variables: Sequence[_Variable]) -> s_tir.SBlock:
    """The block over domains from 0, with what it read as v as v and its first value."""
    at = {v.iterator.var: v.iterator.var + v.first for v in variables if extent_of(v.first) != 0}
    iters = []
    for variable in variables:
        var, domain = variable.iterator.var, variable.domain
        assert domain is not None
        iters.append(tirx.IterVar(domain_of(var, domain), var, variable.iterator.iter_type))
    init = None if block.init is None else substitute(block.init, at)
    return replaced(block, substitute(block.body, at), init, iters)


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


def is_laid_out(block: s_tir.SBlock, store: tirx.BufferStore) -> bool:
    """Whether a block stores each element of a box once, at indices other than its own variables."""
    rows, indices = rows_of(block), _indices(block, store)
    plain = all(index in rows or isinstance(index, prim.IntImm) for index in indices)
    return bool(rows) and not plain and affine_maps(indices, rows) is not None


def _alone(block: s_tir.SBlock) -> dict[tirx.Var, ir.Expr]:
    """The one position of each variable that has no other."""
    return {iv.var: zero_of(iv.var) for iv in block.iter_vars if extent_of(iv.dom.extent) == 1}


def _indices(block: s_tir.SBlock, store: tirx.BufferStore) -> list[ir.Expr]:
    """Where a block stores, in the variables of more than one position."""
    return [tvm.sym.Analyzer().simplify(substitute(index, _alone(block))) for index in store.indices]


def over_its_buffer(nest: tirx.Stmt) -> tirx.Stmt:
    """An elementwise nest over the indices at which it stores; the same object where it has no such form."""
    realize = realized_block(nest)
    store = None if realize is None else single_store(realize.block.body)
    if realize is None or store is None or realize.block.init is not None or why_not_plain(nest) is not None:
        return nest
    block = realize.block
    spatial = all(iv.iter_type == DATA_PARALLEL for iv in block.iter_vars)
    if not spatial or reads_buffer(store.value, store.buffer) or not is_laid_out(block, store):
        return nest
    return _over_indices(block, store)


def _over_indices(block: s_tir.SBlock, store: tirx.BufferStore) -> tirx.Stmt:
    rows, indices = rows_of(block), _indices(block, store)
    maps = affine_maps(indices, rows)
    assert maps is not None
    extents = [extent_of(m.args[0].extent) if m.args else 1 for m in maps]
    firsts = [m.base for m in maps]
    own = [tirx.Var(f"v_d{k}", dtype_of(index)) for k, index in enumerate(indices)]
    at = inverse_of(maps, [_plus(var, first) for var, first in zip(own, firsts, strict=True)])
    at |= _alone(block)
    analyzer = analyzer_of(dict(zip(own, extents, strict=True)))
    at = {var: analyzer.simplify(value) for var, value in at.items()}
    body = tirx.BufferStore(store.buffer, substitute(store.value, at), list(map(_plus, own, firsts)))
    return _nest(replaced(block, body, None, _iterators(own, extents)), extents)


def _plus(var: tirx.Var, first: ir.Expr) -> ir.Expr:
    return var if extent_of(first) == 0 else var + first


def _iterators(variables: Sequence[tirx.Var], extents: Sequence[Extent]) -> list[tirx.IterVar]:
    pairs = zip(variables, extents, strict=True)
    return [tirx.IterVar(domain_of(var, extent), var, DATA_PARALLEL) for var, extent in pairs]


def _nest(block: s_tir.SBlock, extents: Sequence[Extent]) -> tirx.Stmt:
    """A block of spatial variables in a loop for each."""
    loops = [tirx.Var(iv.var.name.removeprefix("v_"), iv.var.ty) for iv in block.iter_vars]
    return in_loops(dict(zip(loops, extents, strict=True)), s_tir.SBlockRealize(loops, True, block))
