"""One way to write each symbolic extent of a module: fusing compares extents as they are written.

    slice(x: [1 + n]) of concatenate(…) -> [n + 1]     →  slice(x: [n + 1]) of concatenate(…) -> [n + 1]

Relax infers extents as operators add them up, TE simplifies them, and callers write them in an order of their own.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, s_tir, sym, tirx
from tvm.ir import prim, transform
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.relax.graph import CALL_TIR


@transform.module_pass(opt_level=0, name="WriteExtentsAlike")
class WriteExtentsAlike:
    """Extents of buffers of PrimFuncs and of what calls of them give, in canonical form."""

    def transform_module(self, mod: tvm.IRModule, _: transform.PassContext) -> tvm.IRModule:
        """The module, of legalised operators."""
        rewriter = _Rewriter(mod)
        for var, func in mod.functions_items():
            if isinstance(func, tirx.PrimFunc):
                mod.update_func(var, _with_extents(func))
            elif isinstance(func, relax.Function):
                mod.update_func(var, rewriter.visit_expr(func))
        return mod


@mutator
class _Rewriter(PyExprMutator):
    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """A binding; its variable has the type that the call is said to give."""
        call = binding.value
        if not isinstance(call, relax.Call) or call.op != CALL_TIR:
            super().visit_var_binding_(binding)
            return
        renewed = self.visit_expr(relax.Call(call.op, call.args, call.attrs, [_type(one) for one in call.ty_args]))
        inner = isinstance(binding.var, relax.DataflowVar) or not self.builder_.current_block_is_dataflow()
        emitted = self.builder_.emit(renewed) if inner else self.builder_.emit_output(renewed)
        self.set_var_remap(binding.var, emitted)


def _type(given: Any) -> Any:
    if isinstance(given, relax.TupleType):
        return relax.TupleType([_type(one) for one in given.fields])
    if not isinstance(given, relax.TensorType) or given.shape is None:
        return given
    return relax.TensorType([_written(extent) for extent in given.shape.values], str(given.dtype.dtype))


def _with_extents(func: tirx.PrimFunc) -> tirx.PrimFunc:
    blocks: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, blocks.append))
    known = dict[ir.Var, ir.Var]()
    for buffer in [*filter(tirx.is_buffer_var, func.params), *(b for block in blocks for b in block.alloc_buffers)]:
        shape = [_written(extent) for extent in buffer.ty.shape]
        if not all(map(tvm_ffi.structural_equal, shape, buffer.ty.shape)):
            known[buffer] = tirx.decl_buffer(shape, dtype_of(buffer), name=buffer.name, layout=None)
    if not known:
        return func
    body = tvm_ffi.structural_map(func.body, (ir.Var, lambda var: known.get(var, var)))
    return tirx.PrimFunc([known.get(param, param) for param in func.params], body, attrs=func.attrs)


_JOINED: dict[type, Callable[[Any, Any], Any]] = {
    prim.Add: operator.add,
    prim.Mul: operator.mul,
    prim.Max: tirx.max,
    prim.Min: tirx.min,
}


def _written(extent: Any) -> Any:
    """An extent with operands that may change places by their names, simplified."""

    def ordered(one: ir.Expr) -> ir.Expr:
        join = _JOINED.get(type(one))
        return one if join is None else functools.reduce(join, sorted(_operands(one, type(one)), key=str))

    if isinstance(extent, (int, prim.IntImm)):
        return extent
    analyzer = sym.Analyzer()
    return analyzer.simplify(tvm_ffi.structural_map(analyzer.simplify(extent), (ir.Expr, ordered)))


def _operands(one: Any, kind: Any) -> list[ir.Expr]:
    return [*_operands(one.a, kind), *_operands(one.b, kind)] if isinstance(one, kind) else [one]
