"""Functions that copy a tensor as it lies in memory: reshapes, and transposes of axes of length one."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import ir, sym, tirx

from tvm_cascade.analysis.statements import nests_in
from tvm_cascade.schedule.inlining import inline_maps
from tvm_cascade.schedule.nests import plan_nest


def keeps_order(func: tirx.PrimFunc) -> bool:
    """Whether a function copies its one tensor to another one, element by element in the order of memory."""
    if len(func.params) != 2 or not all(map(tirx.is_buffer_var, func.params)):
        return False
    func = inline_maps(func)
    nests = nests_in(func.body.block.body)
    if len(nests) != 1:
        return False
    plan = plan_nest(nests[0])
    if plan.reduce or len(plan.stores) != 1 or len(plan.loads) != 1 or not plan.independent:
        return False
    (store,), (load,) = plan.stores, plan.loads
    source, target = func.params
    moved = isinstance(store.value, ir.TensorLoad) and load.buffer.same_as(source) and store.buffer.same_as(target)
    if not moved or str(source.ty.dtype) != str(target.ty.dtype):
        return False
    analyzer = sym.Analyzer()
    for iv in nests[0].block.iter_vars:
        analyzer.bind(iv.var, iv.dom)
    whole = analyzer.can_prove_equal(_product(source.ty.shape), _product(target.ty.shape))
    here, there = _offset(target.ty.shape, store.indices), _offset(source.ty.shape, load.indices)
    return whole and bool(analyzer.can_prove_equal(here, there))


def _product(extents: Sequence[ir.Expr]) -> ir.Expr:
    whole: ir.Expr = tirx.const(1, "int64")
    for extent in extents:
        whole = whole * extent.astype("int64")
    return whole


def _offset(shape: Sequence[ir.Expr], indices: Sequence[ir.Expr]) -> ir.Expr:
    """Elements before an index, in a compact tensor."""
    offset: ir.Expr = tirx.const(0, "int64")
    for extent, index in zip(shape, indices, strict=True):
        offset = offset * extent.astype("int64") + index.astype("int64")
    return offset
