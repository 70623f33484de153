"""Top-k of a softmax as a reduction of ours: TVM's own is a sort behind a packed call, which nothing fuses with.

    p = softmax(x);  v, i = topk(p, k)      →  p = softmax(x);  v, i = call_tir(topk, p)

Ours counts −inf as absent where the operator returns it with its position. A softmax has none: a row of it is finite,
or NaN throughout, and then the first position stands for all.
"""

from __future__ import annotations

import math

import tvm
from tvm import ir, relax
from tvm.ir import transform

from tvm_cascade.te import topk

RANKS = 8
"""Top-k up to which our reduction takes the place of the sort: its merge is written out, 2·k² selections."""

_TOP_K, _SOFTMAX, _CAST = (ir.Op.get(f"relax.{name}") for name in ("topk", "nn.softmax", "astype"))


@transform.module_pass(opt_level=0, name="TopOfSoftmax")
class TopOfSoftmax:
    """Top-k of a softmax along its own axis as `tvm_cascade.te.topk`; before LegalizeOps."""

    def transform_module(self, mod: tvm.IRModule, _: transform.PassContext) -> tvm.IRModule:
        """The module with such calls replaced."""
        rewriter = _Rewriter(mod)
        for var, func in mod.functions_items():
            if isinstance(func, relax.Function):
                found = rewriter.visit_expr(func)
                if not found.same_as(func):
                    rewriter.builder_.update_func(var, relax.analysis.remove_all_unused(found))
        return rewriter.builder_.get()


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        return self._best(call) if call.op == _TOP_K and self._is_of_a_softmax(call) else call

    def _is_of_a_softmax(self, call: relax.Call) -> bool:
        made = self._made(call.args[0])
        while isinstance(made, relax.Call) and made.op == _CAST:
            made = self._made(made.args[0])
        if not isinstance(made, relax.Call) or made.op != _SOFTMAX:
            return False
        rank, attrs = call.args[0].ty.ndim, call.attrs
        return 0 < attrs.k <= RANKS and attrs.largest and rank > 0 and made.attrs.axis % rank == attrs.axis % rank

    def _made(self, value: relax.Expr) -> relax.Expr | None:
        return self.lookup_binding(value) if isinstance(value, relax.Var) else None

    def _best(self, call: relax.Call) -> relax.Expr:
        """The values and indices, as the operator gives them."""
        (x,), attrs, emit = call.args, call.attrs, self.builder_.emit
        best = self.builder_.emit_te(lambda a: list(topk(a, attrs.k, attrs.axis)), x, primfunc_name_hint="topk")
        values, indices = (emit(relax.TupleGetItem(best, part)) for part in range(2))
        absent = emit(relax.op.less(indices, relax.const(0, "int32")))
        values = emit(relax.op.where(absent, relax.const(math.nan, x.ty.dtype.dtype), values))
        indices = emit(relax.op.astype(emit(relax.op.maximum(indices, relax.const(0, "int32"))), attrs.dtype))
        return {"values": values, "indices": indices}.get(attrs.ret_type, relax.Tuple([values, indices]))
