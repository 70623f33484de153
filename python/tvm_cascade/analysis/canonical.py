"""Canonical form of functions: one nest and name a block, one store a block, inits that are identities.

for i: {A; B}                      →  for i: A;  for i: B        where no iteration touches what another one writes
with init: t = s;  t = t ⊕ e       →  with init: r = identity;  r = r ⊕ e;  t = s ⊕ r
if c: t = t ⊕ e;  t = t + a − b    →  t = t ⊕ select(c, e, identity);  t = t + (a − b)
{s = s ⊕ e;  t = t ⊗ f}            →  {s = s ⊕ e}  {t = t ⊗ f}               where neither reads the other

What is in this form already, or cannot be brought into it, stays as it is.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.error import InternalError
from tvm.ir import prim

from tvm_cascade.algebra.reducer import Reducer
from tvm_cascade.analysis.bindings import layout_of, over_its_buffer, plainly_bound, rows_of
from tvm_cascade.analysis.guards import without_predicates
from tvm_cascade.analysis.opaque import Memory
from tvm_cascade.analysis.reducers import (
    Update,
    combiner_of,
    identity_of,
    single_store,
    split_reduction,
    split_update,
    starts_at_identity,
)
from tvm_cascade.analysis.scratch import Scratch, carried
from tvm_cascade.analysis.starts import filled_first, started
from tvm_cascade.analysis.statements import (
    Uses,
    block_names,
    hands_over,
    in_its_loops,
    is_serial,
    leaves_of,
    loops_of,
    mentions,
    new_block,
    realized_block,
    renewed,
    replaced,
    runs_always,
    sequence,
    statements_of,
    unused,
    why_not_plain,
    with_block,
    with_nests,
)
from tvm_cascade.analysis.tir import (
    DATA_PARALLEL,
    REDUCTION,
    as_index,
    bound_by,
    dtype_of,
    extent_of,
    loads_of,
    reads_buffer,
    rebuilt,
    same,
    substitute,
    uses,
    within,
)


def canonical(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function in canonical form; the same object where it has that form already."""
    if not isinstance(func.body, s_tir.SBlockRealize):
        return func
    func = _without_views(func)
    statements = statements_of(func)
    bare, temporaries = undeclared(statements)
    if any(Memory(one).owners for one in bare if isinstance(one, (tirx.DeclBuffer, tirx.Bind))):
        return func  # what follows compares the buffers that nests name
    scratch = Scratch(bare, [*func.body.block.alloc_buffers, *temporaries])
    apart = [plainly_bound(nest) for statement in bare for nest in _apart(statement, scratch)]
    single = without_predicates([nest for one in apart for nest in _split(one)], scratch.buffers)
    single = filled_first([started(nest) for nest in single])
    step = _Canonical(list(func.params), sum(map(_reduces, single)) > 1)
    found = _named_apart([nest for one in single for nest in step.nests(one)])
    as_it_is = len(found) == len(statements) and all(a.same_as(b) for a, b in zip(found, statements, strict=True))
    if as_it_is or not found:
        return func
    buffers = [b for b in (*scratch.buffers, *step.buffers) if mentions(sequence(found), b)]
    return with_nests(func, found, buffers)


def _reduces(nest: tirx.Stmt) -> bool:
    realize = realized_block(nest)
    return realize is not None and any(iv.iter_type == REDUCTION for iv in realize.block.iter_vars)


_ROOT = "root"
"""The block around all nests."""


def _named_apart(nests: list[tirx.Stmt]) -> list[tirx.Stmt]:
    """The nests with a number behind the name of a block that one before or around it has: schedules go by names."""
    names = [_ROOT, *(name for nest in nests for name in block_names(nest))]
    taken, seen = set(names), {_ROOT}
    if len(taken) == len(names):
        return nests

    def rename(block: s_tir.SBlock) -> s_tir.SBlock:
        name = block.name_hint if block.name_hint not in seen else unused(block.name_hint, taken)
        taken.add(name)
        seen.add(name)
        return block if name == block.name_hint else rebuilt(block, name_hint=name)

    return [tvm_ffi.structural_map(nest, (s_tir.SBlock, rename)) for nest in nests]


def _apart(statement: tirx.Stmt, scratch: Scratch) -> list[tirx.Stmt]:
    """A loop over several nests as a loop for each, where that is the same."""
    if not isinstance(statement, tirx.For):
        return [statement]
    parts = [part for one in statements_of(statement.body) for part in _apart(one, scratch)]
    if len(parts) == 1 or not is_serial(statement) or any(realized_block(part) is None for part in parts):
        return [statement]
    if shared := carried(parts, statement.loop_var):
        private = scratch.private(parts, statement, shared)
        if private is None:
            return [statement]
        parts = private
    return [renewed(rebuilt(statement, body=part)) for part in parts]


@dataclass
class _Canonical:
    """Rewrites nests into canonical form, one by one.

    Attributes
    ----------
    params : the function's.
    several : it holds several reductions; one alone is as well off where it stores.
    buffers : those of reductions whose start, or place, was taken out.
    """

    params: list[tirx.Var]
    several: bool
    buffers: list[tirx.Var] = field(default_factory=list)

    def nests(self, nest: tirx.Stmt) -> list[tirx.Stmt]:
        """A nest with one store, and a nest that combines a reduction with its initial value."""
        realize = realized_block(nest)
        if realize is None:
            return [nest]
        block = realize.block
        store = single_store(block.body)
        reduces = any(iv.iter_type == REDUCTION for iv in block.iter_vars)
        if store is None:
            return [nest]
        if not reduces:
            whole = block.init is None and not reads_buffer(store.value, store.buffer)
            plain = isinstance(block.body, tirx.BufferStore) or not whole
            nest = nest if plain else with_block(nest, block, replaced(block, store, None))
            return [nest if self._is_given(store.buffer) else over_its_buffer(nest)]
        own = tirx.BufferLoad(store.buffer, list(store.indices))
        start = single_store(block.init) if block.init is not None else self._given(own)
        update = split_update(store.value, own, None if start is None else start.value)
        if start is None or update is None or update.element is None or not start.buffer.same_as(store.buffer):
            return [nest]
        if not same(list(start.indices), list(store.indices)):
            return [nest]
        return self._reduction(nest, block, store, start.value, update)

    def _reduction(
        self, nest: tirx.Stmt, block: s_tir.SBlock, store: tirx.BufferStore, start: ir.Expr, update: Update
    ) -> list[tirx.Stmt]:
        assert update.reducer is not None
        assert update.element is not None
        reducer, combine = update.reducer, combiner_of(update.reducer)
        plain = isinstance(block.body, tirx.BufferStore) and split_reduction(store) is not None
        reduced = [iv.var for iv in block.iter_vars if iv.iter_type == REDUCTION]
        begins = starts_at_identity(reducer, start)
        given = block.init is None
        if begins and self.several and why_not_plain(nest) is None and layout_of(block, store) is not None:
            rows = rows_of(block)
            shape = [as_index(extent, dtype_of(var)) for var, extent in rows.items()]
            parts = self._aside(nest, store, [*rows], shape, start, combine, update.element, lambda own: own)
            return [parts[0], over_its_buffer(parts[1])]
        if begins or uses(start, reduced) or (reads_buffer(start, store.buffer) and not given):
            if plain:
                return [nest]
            own = tirx.BufferLoad(store.buffer, list(store.indices))
            value = tirx.BufferStore(store.buffer, combine(own, update.element), list(store.indices))
            return [with_block(nest, block, replaced(block, value, block.init))]
        identity = identity_of(_beside(reducer, start), dtype_of(store.buffer))
        cell, shape = list(store.indices), list(store.buffer.ty.shape)
        return self._aside(nest, store, cell, shape, identity, combine, update.element, partial(combine, start))

    def _aside(
        self,
        nest: tirx.Stmt,
        store: tirx.BufferStore,
        cell: list[ir.Expr],
        shape: list[ir.Expr],
        start: ir.Expr,
        combine: Callable[[ir.Expr, ir.Expr], ir.Expr],
        element: ir.Expr,
        finished: Callable[[ir.Expr], ir.Expr],
    ) -> list[tirx.Stmt]:
        """A reduction from a start into cells of a buffer of its own, and a nest that stores what these finish as."""
        rest = tirx.decl_buffer(shape, dtype_of(store.buffer), name=f"{store.buffer.name}_reduced", layout=None)
        self.buffers.append(rest)
        block, own = in_its_loops(nest).block, tirx.BufferLoad(rest, cell)
        folded, init = (tirx.BufferStore(rest, value, cell) for value in (combine(own, element), start))
        after = _after(nest, block, tirx.BufferStore(store.buffer, finished(own), list(store.indices)))
        return [with_block(nest, block, replaced(block, folded, init)), after]

    def _is_given(self, buffer: tirx.Var) -> bool:
        return buffer in {*self.params}

    def _given(self, own: ir.TensorLoad) -> tirx.BufferStore | None:
        """What a reduction without an init starts from: what the caller left there."""
        return tirx.BufferStore(own.source, own, list(own.indices)) if self._is_given(own.source) else None


def _beside(reducer: Reducer, start: ir.Expr) -> Reducer:
    """The reducer of a reduction that is combined with its start afterwards: nothing may be above a start of −∞."""
    number = isinstance(start, (prim.FloatImm, prim.IntImm)) or not dtype_of(start).startswith(("float", "bfloat"))
    return reducer if number or not reducer.ordered else reducer.from_infinity


def _split(nest: tirx.Stmt) -> list[tirx.Stmt]:
    """A nest for each store of its block, where that is the same."""
    realize = realized_block(nest)
    if realize is None or loads_of(realize.predicate) or not (found := _one_store_each(realize.block)):
        return [nest]
    return [renewed(with_block(nest, realize.block, one)) for one in found]


def _one_store_each(block: s_tir.SBlock) -> list[s_tir.SBlock]:
    """A block for each store of several that do not read what the others write; none where they do."""
    bodies, starts = statements_of(block.body), statements_of(block.init)
    stores = [single_store(body) for body in bodies if not isinstance(body, tirx.Bind)]
    if len(stores) < 2 or len(stores) < len(bodies):
        return []
    if block.init is None:
        plain = [store for store in stores if store is not None]
        return (
            [replaced(block, body, None) for body in bodies]
            if len(plain) == len(stores) and _apart_at_a_point(block, plain)
            else []
        )
    if not all(isinstance(one, tirx.BufferStore) for one in (*bodies, *starts)):
        return []
    found = []
    for store in bodies:
        own = [start for start in starts if start.buffer.same_as(store.buffer)]
        update = split_update(store.value, tirx.BufferLoad(store.buffer, list(store.indices)))
        written = [other.buffer for other in bodies]
        if len(own) != 1 or update is None or update.element is None:
            return []
        if any(reads_buffer(update.element, buffer) for buffer in written):
            return []
        found.append(replaced(block, store, own[0]))
    return found


def _apart_at_a_point(block: s_tir.SBlock, stores: Sequence[tirx.BufferStore]) -> bool:
    """Whether what one store writes, the others touch at the very same element alone, which no other point touches."""
    variables = [iv.var for iv in block.iter_vars if extent_of(iv.dom.extent) != 1]
    touched = [[(store.buffer, store.indices), *_loads_at(store)] for store in stores]
    for store, used in itertools.permutations(zip(stores, touched, strict=True), 2):
        buffer, indices = store[0].buffer, list(store[0].indices)
        both = [list(at) for b, at in (*store[1], *used[1]) if b.same_as(buffer)]
        own = {*variables} <= {*indices}
        if any(b.same_as(buffer) for b, _ in used[1]) and not (own and all(same(at, indices) for at in both)):
            return False
    return True


def _loads_at(store: tirx.BufferStore) -> Uses:
    return [(load.source, tuple(load.indices)) for e in (store.value, *store.indices) for load in loads_of(e)]


def _after(nest: tirx.Stmt, block: s_tir.SBlock, store: tirx.BufferStore) -> tirx.Stmt:
    """A nest over the spatial part of another's domain, around a store, over fresh variables."""
    loops, realize = loops_of(nest), in_its_loops(nest)
    spatial = [
        (iv, v) for iv, v in zip(block.iter_vars, realize.iter_values, strict=True) if iv.iter_type == DATA_PARALLEL
    ]
    inner = new_block(f"{block.name_hint}_start", store, [iv for iv, _ in spatial])
    found: tirx.Stmt = s_tir.SBlockRealize([value for _, value in spatial], True, inner)
    for loop in reversed(loops):
        found = rebuilt(loop, body=found) if any(uses(value, (loop.loop_var,)) for _, value in spatial) else found
    return renewed(found)


# Inlines declarations inside a function's body: allocations, buffer views, outer blocks.
#
# for i: t = alloc_buffer();  …               →  t among the root block's buffers
# y = match_buffer(x[i, 4:8]);  … y[j] …      →  … x[i, j + 4] …
# block v = i: for j: block w = v·4 + j       →  for j: block w = i·4 + j
#
# That is the same wherever each is used as a buffer and a loop nest only. All else stays as it is.


def undeclared(statements: Sequence[tirx.Stmt]) -> tuple[list[tirx.Stmt], list[tirx.Var]]:
    """The statements of a root block without declarations, and the temporaries that they allocated."""
    allocated: list[tirx.Var] = []
    return [left for statement in statements for left in _opened(statement, allocated)], allocated


def _opened(statement: tirx.Stmt, allocated: list[tirx.Var]) -> list[tirx.Stmt]:
    """What is left of a statement without allocations and blocks around blocks. `allocated` grows."""
    if isinstance(statement, tirx.AllocBuffer) and not statement.annotations:
        allocated.append(statement.buffer)
        return []
    outer = isinstance(statement, s_tir.SBlockRealize) and _is_outer(statement)
    if not outer and not (isinstance(statement, tirx.For) and is_serial(statement)):
        return [statement]
    block = statement.block if outer else None
    inside = [] if block is None else list(block.alloc_buffers)
    old = statements_of(statement.body if block is None else block)
    body = [left for part in old for left in _opened(part, inside)]
    if block is not None:
        taken = _taken_in(statement, sequence(body)) if body else None
        opened, variables = None if taken is None else statements_of(taken), [iv.var for iv in block.iter_vars]
    else:
        as_it_is = len(body) == len(old) and all(a.same_as(b) for a, b in zip(body, old, strict=True))
        opened = [statement] if as_it_is else [rebuilt(statement, body=sequence(body))] if body else []
        variables = [statement.loop_var]
    if opened is None or _sized_by(inside, variables):
        return [statement]
    allocated += inside
    return opened


def _taken_in(outer: s_tir.SBlockRealize, body: tirx.Stmt) -> tirx.Stmt | None:
    """The body of an outer block, whose blocks have those of its variables that they use; None where that is another.

    A block that is started anew for each position of an outer reduction is not the reduction over both.
    """
    bound = bound_by(outer)
    reduced = [iv.var for iv in outer.block.iter_vars if iv.iter_type != DATA_PARALLEL]
    anew: list[s_tir.SBlock] = []

    def take_in(realize: s_tir.SBlockRealize) -> s_tir.SBlockRealize:
        block = realize.block
        if block.init is not None and reduced:
            anew.append(block)
        used = [iv for iv in outer.block.iter_vars if mentions(block, iv.var)]
        own = {iv.var: tirx.Var(iv.var.name, iv.var.ty) for iv in used}
        iters = [tirx.IterVar(iv.dom, own[iv.var], iv.iter_type) for iv in used]
        values = [bound[iv.var] for iv in used] + [substitute(value, bound) for value in realize.iter_values]
        inner = substitute(block.body, own), None if block.init is None else substitute(block.init, own)
        taken = replaced(block, *inner, [*iters, *block.iter_vars])
        return s_tir.SBlockRealize(values, substitute(realize.predicate, bound), taken)

    if any(block.alloc_buffers or hands_over(block) for block in within(body, s_tir.SBlock)):
        return None
    found = substitute(tvm_ffi.structural_map(body, (s_tir.SBlockRealize, take_in)), bound)
    return None if anew else found


def _sized_by(buffers: Sequence[tirx.Var], variables: list[tirx.Var]) -> bool:
    """Whether a buffer's shape depends on any of the variables."""
    return any(uses(extent, variables) for buffer in buffers for extent in buffer.ty.shape)


def _is_outer(realize: s_tir.SBlockRealize) -> bool:
    """Whether a block only holds loops around blocks: it starts and stores nothing itself, and runs everywhere."""
    block = realize.block
    plain = block.init is None and not block.match_buffers and not block.annotations
    known = (s_tir.SBlockRealize, tirx.AllocBuffer)
    return runs_always(realize) and plain and all(isinstance(leaf, known) for _, leaf in leaves_of(block.body))


def _without_views(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with the buffers themselves in the place of views; the same object where one is more than a part."""
    if any(block.match_buffers for block in within(func.body, s_tir.SBlock)):
        with contextlib.suppress(InternalError):
            return s_tir.transform.LowerMatchBuffer()(tvm.IRModule({"main": func}))["main"]
    return func
