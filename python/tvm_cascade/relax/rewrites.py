"""What is written otherwise in a module before and after operators become functions: moves, casts, top-k, extents.

    c = float32(x);  y = f(c);  z = g(c)               →  y = f(float32(x));  z = g(float32(x))
    transpose(transpose(x))                            →  x
    bfloat16(reshape(x));  reshape(float32(y))         →  reshape(bfloat16(x));  float32(reshape(y))
    matmul(x, transpose(w)), on CPUs                   →  call_tir(matmul, x, w), which reads w as it is stored
    p = softmax(x);  v, i = topk(p, k)                 →  p = softmax(x);  v, i = call_tir(topk, p)
    slice(x: [1 + n]) of concatenate(…) -> [n + 1]     →  slice(x: [n + 1]) of concatenate(…) -> [n + 1]

A cast to a wider dtype that several read would be a tensor in memory, which takes longer to read than what it is of; so
would a broadcast, and a difference from a mean in float32 of what is stored in half as many bits.
A reshape is a view of what is in memory, so that a cast beyond it would be a kernel of its own: it stands on the side
of the narrower dtype.

TVM's top-k is a sort behind a packed call, which nothing fuses with. Ours counts −inf as absent where the operator
returns it with its position. A softmax has none: a row of it is finite, or NaN throughout, and then the first position
stands for all.

Fusing compares extents as they are written. Relax infers them as operators add them up, TE simplifies them, and callers
write them in an order of their own.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, s_tir, sym, te, tirx
from tvm.ir import prim, transform
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.relax.convolutions import as_product
from tvm_cascade.relax.graph import CALL_TIR, graphs_of
from tvm_cascade.te import topk


def _rewritten(mod: tvm.IRModule, rewrite: Callable[[relax.Function], relax.Function]) -> tvm.IRModule:
    """The module with its functions of Relax, but those that are merged into one kernel, rewritten."""
    for var, func in mod.functions_items():
        if isinstance(func, relax.Function) and not (func.attrs and "Primitive" in func.attrs):
            mod.update_func(var, rewrite(func))
    return mod


RANKS = 8
"""Top-k up to which our reduction takes the place of the sort: its merge is written out, 2·k² selections."""

_NAMES = ("topk", "nn.softmax", "astype", "reshape", "permute_dims", "matmul")
_TOP_K, _SOFTMAX, _CAST, _RESHAPE, _PERMUTE, _MATMUL = (ir.Op.get(f"relax.{name}") for name in _NAMES)


@transform.module_pass(opt_level=0, name="ComputeWhereRead")
class ComputeWhereRead:
    """What each reader computes by itself, once for each call that reads it; before FuseOps."""

    def transform_module(self, mod: tvm.IRModule, _: transform.PassContext) -> tvm.IRModule:
        return _rewritten(mod, lambda func: relax.analysis.remove_all_unused(_Again(mod, func).visit_expr(func)))


@mutator
class _Again(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, func: relax.Function) -> None:
        super().__init__(mod)
        nodes = [node for _, graph in graphs_of(mod, func) for node in graph.again]
        self.again = {node.only: node.call for node in nodes}

    def visit_dataflow_var_(self, var: relax.DataflowVar) -> relax.Expr:
        """A use of a variable."""
        call = self.again.get(var)
        return super().visit_dataflow_var_(var) if call is None else self.builder_.emit(self.visit_expr(call))


@transform.module_pass(opt_level=0, name="RewriteOperators")
class RewriteOperators:
    """Top-k of a softmax as `tvm_cascade.te.topk`, convolutions as products, narrow reshapes; before LegalizeOps.

    Parameters
    ----------
    turned : products of matrices read transposed ones as they are stored. Plans of GPUs take a transposition into the
        kernel of a product by themselves.
    """

    def __init__(self, turned: bool = False) -> None:
        self.turned = turned

    def transform_module(self, mod: tvm.IRModule, _: transform.PassContext) -> tvm.IRModule:
        """The module with such calls replaced."""
        rewriter = _Operators(mod, self.turned)
        for var, func in mod.functions_items():
            if isinstance(func, relax.Function):
                found = rewriter.visit_expr(func)
                if not found.same_as(func):
                    rewriter.builder_.update_func(var, relax.analysis.remove_all_unused(found))
        return rewriter.builder_.get()


@relax.expr_functor.mutator
class _Operators(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule, turned: bool) -> None:
        super().__init__(mod)
        self.turned = turned

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if call.op == _TOP_K and self._is_of_a_softmax(call):
            return self._best(call)
        if call.op == _MATMUL and self.turned:
            return self._of_stored(call)
        if (product := as_product(call, self.builder_)) is not None:
            return product
        made = self._made(call.args[0]) if call.op in (_CAST, _RESHAPE, _PERMUTE) else None
        if not isinstance(made, relax.Call):
            return call
        return _permuted_once(call, made) if (made.op, call.op) == (_PERMUTE, _PERMUTE) else self._narrow(call, made)

    def _of_stored(self, call: relax.Call) -> relax.Expr:
        """A product of two matrices, of which transposed ones are read as they are stored."""
        whole = [self._transposed(one) for one in call.args]
        turned = [one is not None for one in whole]
        if not any(turned) or any(one.ty.ndim != 2 for one in call.args):
            return call
        stored = [one if one is not None else x for one, x in zip(whole, call.args, strict=True)]
        dtype = call.ty.dtype.dtype

        def product(a: te.Tensor, b: te.Tensor) -> te.Tensor:
            (rows, terms), columns = a.shape[:: -1 if turned[0] else 1], b.shape[0 if turned[1] else 1]
            k = te.reduce_axis((0, terms), "k")

            def element(i: tirx.Var, j: tirx.Var) -> ir.Expr:
                left, right = a[(k, i) if turned[0] else (i, k)], b[(j, k) if turned[1] else (k, j)]
                return te.sum(left.astype(dtype) * right.astype(dtype), axis=k)

            return te.compute((rows, columns), element, name="matmul")

        return self.builder_.call_te(product, *stored, primfunc_name_hint="matmul")

    def _transposed(self, matrix: relax.Expr) -> relax.Expr | None:
        """The matrix that one is the transposed of; None of others."""
        made = self._made(matrix)
        if not isinstance(made, relax.Call) or made.op != _PERMUTE or _order(made) != [1, 0]:
            return None
        return made.args[0]

    def _narrow(self, call: relax.Call, made: relax.Call) -> relax.Expr:
        """A cast of a reshape or a reshape of a cast, of which the reshape has the dtype of fewer bits."""
        (x, *extents), dtype = made.args, call.ty.dtype.dtype
        if (made.op, call.op) == (_RESHAPE, _CAST) and _bits(dtype) < _bits(x.ty.dtype.dtype):
            return relax.op.reshape(self.builder_.emit(relax.op.astype(x, dtype)), *extents)
        if (made.op, call.op) == (_CAST, _RESHAPE) and _bits(x.ty.dtype.dtype) < _bits(dtype):
            return relax.op.astype(self.builder_.emit(relax.op.reshape(x, call.args[1])), dtype)
        return call

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


def _permuted_once(call: relax.Call, made: relax.Call) -> relax.Expr:
    """A permutation of axes that are permuted already, as one; nothing, where it is back to what there was."""
    inner = _order(made)
    axes = [inner[axis] for axis in _order(call)]
    return made.args[0] if axes == [*range(len(axes))] else relax.op.permute_dims(made.args[0], axes)


def _order(call: relax.Call) -> list[int]:
    """Which axis of its argument each axis of a permutation is."""
    rank = call.args[0].ty.ndim
    return [int(axis) % rank for axis in call.attrs.axes or range(rank - 1, -1, -1)]


def _bits(dtype: Any) -> int:
    return int(tvm.DataType(dtype).bits)


@transform.module_pass(opt_level=0, name="WriteExtentsAlike")
class WriteExtentsAlike:
    """Extents of buffers of PrimFuncs and of what calls of them give, in canonical form."""

    def transform_module(self, mod: tvm.IRModule, _: transform.PassContext) -> tvm.IRModule:
        rewriter = _Extents(mod)
        for var, func in mod.functions_items():
            if isinstance(func, tirx.PrimFunc):
                mod.update_func(var, _with_extents(func))
            elif isinstance(func, relax.Function):
                mod.update_func(var, rewriter.visit_expr(func))
        return mod


@mutator
class _Extents(PyExprMutator):
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
