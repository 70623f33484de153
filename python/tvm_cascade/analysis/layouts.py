"""Results stored at indices other than the block's own variables, as in a tiled buffer.

m[i // 4, i % 4] ⊕= e                  →  r[i] ⊕= e;  m[i // 4, i % 4] = r[i]
t[i // 4, i % 4] = a(i)                →  t[j, k] = a(j·4 + k)

That is the same where no two positions of the block store into one element, by TVM's own analysis of affine maps. What
reads m[i // 4, i % 4] reads r[i] then, as any function of its indices is read.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import ir, s_tir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.bindings import affine_maps, inverse_of
from tvm_cascade.analysis.extent import Extent, as_index, extent_of
from tvm_cascade.analysis.statements import realized_block, replaced, why_not_plain
from tvm_cascade.analysis.tir import DATA_PARALLEL, dtype_of, reads_buffer, substitute
from tvm_cascade.analysis.update import single_store


def rows_of(block: s_tir.SBlock) -> dict[tirx.Var, Extent]:
    """The spatial variables of a block over more than one position, with their extents."""
    extents = {iv.var: extent_of(iv.dom.extent) for iv in block.iter_vars if iv.iter_type == DATA_PARALLEL}
    return {var: extent for var, extent in extents.items() if extent != 1}


def is_laid_out(block: s_tir.SBlock, store: tirx.BufferStore) -> bool:
    """Whether a block stores each element of a box once, at indices other than its own variables."""
    rows, indices = rows_of(block), _indices(block, store)
    seen = [next((var for var in rows if var.same_as(index)), None) for index in indices]
    plain = all(var is not None or isinstance(i, prim.IntImm) for var, i in zip(seen, indices, strict=True))
    return bool(rows) and not plain and affine_maps(indices, rows) is not None


def _alone(block: s_tir.SBlock) -> dict[tirx.Var, ir.Expr]:
    """The one position of each variable that has no other."""
    return {iv.var: tirx.const(0, dtype_of(iv.var)) for iv in block.iter_vars if extent_of(iv.dom.extent) == 1}


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
    analyzer = tvm.sym.Analyzer()
    for var, extent in zip(own, extents, strict=True):
        analyzer.bind(var, ir.Range(tirx.const(0, dtype_of(var)), as_index(extent, dtype_of(var))))
    at = {var: analyzer.simplify(value) for var, value in at.items()}
    body = tirx.BufferStore(store.buffer, substitute(store.value, at), list(map(_plus, own, firsts)))
    return _nest(replaced(block, body, None, _iterators(own, extents)), extents)


def _plus(var: tirx.Var, first: ir.Expr) -> ir.Expr:
    return var if extent_of(first) == 0 else var + first


def _iterators(variables: Sequence[tirx.Var], extents: Sequence[Extent]) -> list[tirx.IterVar]:
    ranges = [
        ir.Range(tirx.const(0, dtype_of(v)), as_index(e, dtype_of(v))) for v, e in zip(variables, extents, strict=True)
    ]
    return [tirx.IterVar(domain, var, DATA_PARALLEL) for domain, var in zip(ranges, variables, strict=True)]


def _nest(block: s_tir.SBlock, extents: Sequence[Extent]) -> tirx.Stmt:
    """A block of spatial variables in a loop for each."""
    loops = [tirx.Var(iv.var.name.removeprefix("v_"), iv.var.ty) for iv in block.iter_vars]
    found: tirx.Stmt = s_tir.SBlockRealize(loops, True, block)
    for var, extent in reversed(list(zip(loops, extents, strict=True))):
        found = tirx.For(var, tirx.const(0, dtype_of(var)), as_index(extent, dtype_of(var)), tirx.ForKind.SERIAL, found)
    return found
