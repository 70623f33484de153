"""Gradients as ordinary programs: from TE, and from Relax's gradient pass."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax, te, tirx
from tvm.ir import Expr

from corpus.programs import gradients

from ..analysis.programs import array, each, fold, number, program, total
from .fold_programs import EPSILON, wide
from .row_programs import Build, of_named_bench

ROWS, LENGTH = 3, 40


def rms_norm_gradient(dtype: str = "float32", rows: int = ROWS, length: int = LENGTH) -> tirx.PrimFunc:
    """x, gain, d_out -> d_x = (h − n·mean of h·n)/root, where n = x/root and h = gain·d_out."""
    x, gain, d_out = (
        array("x", rows, length, dtype=dtype),
        array("gain", length, dtype=dtype),
        array("d_out", rows, length, dtype=dtype),
    )
    squares = fold("squares", lambda i, j: wide(x[i, j]) * wide(x[i, j]), total, length, (rows,))

    def inverse(i: Expr) -> Expr:
        return te.rsqrt(squares[i] / number(length) + number(EPSILON))

    def scaled(i: Expr, j: Expr) -> Expr:
        return wide(gain[j]) * wide(d_out[i, j])

    along = fold("along", lambda i, j: scaled(i, j) * (wide(x[i, j]) * inverse(i)), total, length, (rows,))

    def element(i: Expr, j: Expr) -> Expr:
        return ((scaled(i, j) - wide(x[i, j]) * inverse(i) * (along[i] / number(length))) * inverse(i)).astype(dtype)

    return program(x, gain, d_out, each("d_x", element, rows, length))


def norm_parameters_gradient(dtype: str = "float32", rows: int = ROWS, length: int = LENGTH) -> tirx.PrimFunc:
    """x, d_out, mean, inverse -> sums over rows: d_gain of d_out·(x − mean)·inverse, and d_bias of d_out."""
    x, d_out = array("x", rows, length, dtype=dtype), array("d_out", rows, length, dtype=dtype)
    mean, inverse = array("mean", rows), array("inverse", rows)

    def share(j: Expr, i: Expr) -> Expr:
        return wide(d_out[i, j]) * ((wide(x[i, j]) - mean[i]) * inverse[i])

    d_gain = fold("d_gain", share, total, rows, (length,))
    d_bias = fold("d_bias", lambda j, i: wide(d_out[i, j]), total, rows, (length,))
    return program(x, d_out, mean, inverse, d_gain, d_bias)


TE_GRADIENTS: dict[str, Build] = {
    "softmax": of_named_bench(gradients.softmax_gradient),
    "cross_entropy": of_named_bench(gradients.cross_entropy_gradient),
    "layer_norm": of_named_bench(gradients.layer_norm_gradient),
    "rms_norm": rms_norm_gradient,
}

op, nn = relax.op, relax.op.nn
MATRIX, VECTOR = (ROWS, LENGTH), (LENGTH,)


def _mean(x: relax.Expr) -> relax.Expr:
    return op.mean(x, axis=[-1], keepdims=True)


def _inverse_root(x: relax.Expr) -> relax.Expr:
    return op.divide(relax.const(1.0), op.sqrt(op.add(x, relax.const(EPSILON))))


def _layer_norm(x: relax.Expr, gain: relax.Expr, bias: relax.Expr, weight: relax.Expr) -> relax.Expr:
    offset = op.subtract(x, _mean(x))
    normal = op.multiply(offset, _inverse_root(_mean(op.multiply(offset, offset))))
    return op.multiply(op.add(op.multiply(normal, gain), bias), weight)


def _rms_norm(x: relax.Expr, gain: relax.Expr, weight: relax.Expr) -> relax.Expr:
    return op.multiply(op.multiply(op.multiply(x, _inverse_root(_mean(op.multiply(x, x)))), gain), weight)


RELAX_GRADIENTS: dict[str, tuple[Callable[..., relax.Expr], tuple[tuple[int, ...], ...]]] = {
    # name: (a function whose sum is derived by its first argument, shapes of the arguments)
    "softmax": (lambda x, weight: op.multiply(nn.softmax(x, -1), weight), (MATRIX, MATRIX)),
    "cross_entropy": (lambda x, labels: op.negative(op.multiply(nn.log_softmax(x, -1), labels)), (MATRIX, MATRIX)),
    "layer_norm": (_layer_norm, (MATRIX, VECTOR, VECTOR, MATRIX)),
    "rms_norm": (_rms_norm, (MATRIX, VECTOR, MATRIX)),
}


def relax_gradient(name: str) -> tirx.PrimFunc:
    """The gradient by the first argument, as Relax's pass derives it, legalized and grouped into one PrimFunc."""
    loss, shapes = RELAX_GRADIENTS[name]
    builder = relax.BlockBuilder()
    arguments = [relax.Var(f"x{k}", relax.TensorType(shape, "float32")) for k, shape in enumerate(shapes)]
    with builder.function("main", arguments):
        with builder.dataflow():
            output = builder.emit_output(op.sum(builder.emit(loss(*arguments))))
        builder.emit_func_output(output)
    module = relax.transform.Normalize()(builder.get())
    adjoint = relax.transform.Gradient("main", require_grads=[module["main"].params[0]])(module)["main_adjoint"]
    return _as_one(adjoint)


def _as_one(adjoint: relax.Function) -> tirx.PrimFunc:
    """The first gradient of an adjoint function as one primitive function, which FuseTIR makes one PrimFunc of."""
    bindings = [binding for block in adjoint.body.blocks for binding in block.bindings]
    gradient = adjoint.body.body.fields[1].fields[0]
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], gradient)
    alone = relax.Function(adjoint.params, body, ret_ty=gradient.ty).with_attr("global_symbol", "main")
    module = relax.transform.DeadCodeElimination()(tvm.IRModule({"main": alone}))
    module = relax.transform.LegalizeOps()(module)
    primitive = module["main"].without_attr("global_symbol").with_attr("Primitive", True)
    builder = relax.BlockBuilder(tvm.IRModule({v: f for v, f in module.functions.items() if v.name_hint != "main"}))
    grouped = builder.add_func(primitive, "gradient")
    params = [relax.Var(param.name, param.ty) for param in primitive.params]
    with builder.function("main", params):
        with builder.dataflow():
            output = builder.emit_output(relax.Call(grouped, params))
        builder.emit_func_output(output)
    fused = relax.transform.FuseTIR()(builder.get())
    (func,) = [func for func in fused.functions.values() if isinstance(func, tirx.PrimFunc)]
    return func.with_attr("global_symbol", "main")
