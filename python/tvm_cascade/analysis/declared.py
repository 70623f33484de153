"""Inlines declarations inside a function's body: allocations, buffer views, outer blocks.

for i: t = alloc_buffer();  …               →  t among the root block's buffers
y = match_buffer(x[i, 4:8]);  … y[j] …      →  … x[i, j + 4] …
block v = i: for j: block w = v·4 + j       →  for j: block w = i·4 + j

That is the same wherever each is used as a buffer and a loop nest only. All else stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.statements import hands_over, is_serial, mentions, replaced
from tvm_cascade.analysis.tir import (
    DATA_PARALLEL,
    bound_by,
    dtype_of,
    extent_of,
    in_buffers,
    rebuilt,
    same_extent,
    substitute,
    uses,
    variables_of,
    within,
)


def undeclared(statements: Sequence[tirx.Stmt]) -> tuple[list[tirx.Stmt], list[tirx.Var]]:
    """The statements of a root block without declarations, and the temporaries that they allocated."""
    allocated: list[tirx.Var] = []
    found = []
    for statement in statements:
        opened = _opened(tvm_ffi.structural_map(statement, (s_tir.SBlock, _without_views)), allocated)
        if opened is not None:
            found.append(opened)
    return found, allocated


def _opened(statement: tirx.Stmt, allocated: list[tirx.Var]) -> tirx.Stmt | None:
    """A statement without allocations and blocks around blocks; None where nothing is left. `allocated` grows."""
    if isinstance(statement, tirx.AllocBuffer) and not statement.annotations:
        allocated.append(statement.buffer)
        return None
    if isinstance(statement, tirx.SeqStmt):
        parts = [_opened(part, allocated) for part in statement.seq]
        if all(part is not None and part.same_as(old) for part, old in zip(parts, statement.seq, strict=True)):
            return statement
        left = [part for part in parts if part is not None]
        return None if not left else left[0] if len(left) == 1 else tirx.SeqStmt(left)
    if isinstance(statement, tirx.For):
        if not is_serial(statement):
            return statement
        inside: list[tirx.Var] = []
        body = _opened(statement.body, inside)
        if _sized_by(inside, [statement.loop_var]):
            return statement
        allocated += inside
        if body is None or body.same_as(statement.body):
            return None if body is None else statement
        return rebuilt(statement, body=body)
    if isinstance(statement, s_tir.SBlockRealize) and _is_outer(statement):
        inside = list(statement.block.alloc_buffers)
        body = _opened(statement.block.body, inside)
        opened = None if body is None else _taken_in(statement, body)
        if opened is not None and not _sized_by(inside, [iv.var for iv in statement.block.iter_vars]):
            allocated += inside
            return opened
    return statement


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
    always = isinstance(realize.predicate, prim.IntImm) and int(realize.predicate) == 1
    plain = block.init is None and not block.match_buffers and not block.annotations
    return always and plain and _holds_blocks(block.body)


def _holds_blocks(statement: tirx.Stmt) -> bool:
    if isinstance(statement, tirx.SeqStmt):
        return all(isinstance(part, tirx.AllocBuffer) or _holds_blocks(part) for part in statement.seq)
    if isinstance(statement, tirx.For):
        return _holds_blocks(statement.body)
    return isinstance(statement, s_tir.SBlockRealize)


def _without_views(block: s_tir.SBlock) -> s_tir.SBlock:
    """The block with buffer views replaced by the buffers that they are parts of."""
    left, body, init = [], block.body, block.init
    for view in block.match_buffers:
        through = [None if part is None else _through(view, part) for part in (body, init)]
        names = [view.buffer, *_layout_variables(view.buffer)]
        if not _is_plain_view(view) or any(mentions(p, name) for p in through if p is not None for name in names):
            left.append(view)
        else:
            body, init = through
    if len(left) == len(block.match_buffers):
        return block
    return rebuilt(block, body=body, init=init, match_buffers=left)


def _layout_variables(buffer: tirx.Var) -> list[tirx.Var]:
    """The variables of a buffer's strides and offset."""
    parts = [*(buffer.ty.strides or ()), buffer.ty.elem_offset]
    return [var for part in parts if isinstance(part, ir.Expr) for var in variables_of(part)]


def _is_plain_view(view: s_tir.MatchBufferRegion) -> bool:
    """Whether a view has the elements of its part one by one, without the leading dimensions of one element."""
    source, shape = view.source, [extent_of(e) for e in view.buffer.ty.shape]
    extents = [extent_of(part.extent) for part in source.region]
    leading = len(extents) - len(shape)
    if leading < 0 or any(extent != 1 for extent in extents[:leading]):
        return False
    trailing = all(same_extent(a, b) for a, b in zip(extents[leading:], shape, strict=True))
    return trailing and dtype_of(view.buffer) == dtype_of(source.source)


def _through(view: s_tir.MatchBufferRegion, code: tirx.Stmt) -> tirx.Stmt:
    """Code that reads and writes the buffer itself in the place of a view of it."""
    source, firsts = view.source.source, [part.min for part in view.source.region]
    leading = len(firsts) - len(view.buffer.ty.shape)

    def at(indices: Sequence[ir.Expr]) -> list[ir.Expr]:
        inner = [first + index for first, index in zip(firsts[leading:], indices, strict=True)]
        return [*firsts[:leading], *inner]

    return in_buffers(code, {view.buffer: source}, at)
