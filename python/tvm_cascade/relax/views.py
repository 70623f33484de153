"""Moves that keep the order of elements in memory, as the views that they are: no kernel copies them.

transpose of [b, 1, h, d] to [b, h, 1, d]     →  reshape(x, [b, h, 1, d])

TVM's own rewriting knows reshapes alone, each by itself; a move through axes of one element is none of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import ir, relax, sym, tirx
from tvm.ir import transform
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_cascade.relax.graph import CALL_TIR
from tvm_cascade.schedule.inlining import inline_maps
from tvm_cascade.schedule.nests import nests_in, plan_nest


@transform.module_pass(opt_level=0, name="RewriteMovesAsViews")
class RewriteMovesAsViews:
    """Calls of such PrimFuncs as `relax.reshape`, which TVM's virtual machine does without a copy."""

    def transform_module(self, mod: tvm.IRModule, _: transform.PassContext) -> tvm.IRModule:
        rewriter = _Rewriter(mod)
        for var, func in mod.functions_items():
            if isinstance(func, relax.Function) and not (func.attrs and "Primitive" in func.attrs):
                mod.update_func(var, rewriter.visit_expr(func))
        return mod


@mutator
class _Rewriter(PyExprMutator):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.mod = mod
        self.known: dict[ir.GlobalVar, bool] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """A binding in a dataflow block; results that leave it keep memory of their own."""
        value = binding.value
        if isinstance(binding.var, relax.DataflowVar) and self._is_view(value):
            (source,) = value.args[1].fields
            viewed = relax.op.reshape(self.visit_expr(source), binding.var.ty.shape)
            binding = relax.VarBinding(binding.var, viewed)
        super().visit_var_binding_(binding)

    def _is_view(self, value: relax.Expr) -> bool:
        called = isinstance(value, relax.Call) and value.op == CALL_TIR and len(value.args) == 2
        if not called or len(value.args[1].fields) != 1 or not isinstance(value.args[0], ir.GlobalVar):
            return False
        name = value.args[0]
        if name not in self.known:
            func = self.mod[name]
            self.known[name] = isinstance(func, tirx.PrimFunc) and keeps_order(func)
        return self.known[name]


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
