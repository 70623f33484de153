"""Plain matrix products: transposed, batched, of narrow floats, with a map of each element behind."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from tvm import te
from tvm.ir import Expr

from tvm_cascade.corpus.programs.draws import folded, steady
from tvm_cascade.corpus.programs.program import (
    Argument,
    Axes,
    Builder,
    Precision,
    Program,
    Shape,
    output_stage,
    placeholder,
    stage,
)

Activation = Callable[[Expr, Precision], Expr]


def _relu(x: Expr, precision: Precision) -> Expr:
    return te.max(x, precision.constant(0.0))


def _silu(x: Expr, precision: Precision) -> Expr:
    return x / (precision.constant(1.0) + te.exp(-x))


def _gelu(x: Expr, precision: Precision) -> Expr:
    """x·Φ(x) by its usual tanh."""
    inner = precision.constant(math.sqrt(2 / math.pi)) * (x + precision.constant(0.044715) * x * x * x)
    return precision.constant(0.5) * x * (precision.constant(1.0) + te.tanh(inner))


ACTIVATIONS: Mapping[str, Activation] = {"relu": _relu, "silu": _silu, "gelu": _gelu}


@dataclass(frozen=True)
class Product:
    """A product's form.

    Attributes
    ----------
    a_transposed, b_transposed : whether a stands as [k, m] and not as [m, k], and b as [n, k] and not as [k, n].
    operands : the dtype of a and b, where it is not that of storage.
    bias : whether bias[n] is added.
    activation : one of `ACTIVATIONS`, of the sum; none if empty.
    """

    a_transposed: bool = False
    b_transposed: bool = False
    operands: str | None = None
    bias: bool = False
    activation: str = ""


def product(form: Product) -> Builder:
    """The builder of out[m, n] = activation(Σ_k a[m, k]·b[k, n] + bias[n]).

    Extents: m, n, k, and optionally batch, an outermost axis of a, b and out.
    """
    return partial(product_of, form)


def product_of(form: Product, shape: Shape, precision: Precision) -> Program:
    batch: Axes = {"b": shape["batch"]} if "batch" in shape else {}
    dtype = form.operands or precision.storage
    a = placeholder({**batch, **{axis: shape[axis] for axis in ("km" if form.a_transposed else "mk")}}, dtype, "a")
    b = placeholder({**batch, **{axis: shape[axis] for axis in ("nk" if form.b_transposed else "kn")}}, dtype, "b")
    bias = placeholder({"n": shape["n"]}, precision.storage, "bias")
    k = te.reduce_axis((0, shape["k"]), "k")
    of_out = {**batch, "m": shape["m"], "n": shape["n"]}

    def dot(*at: Expr) -> Expr:
        *outer, m, n = at
        left = a(*outer, k, m) if form.a_transposed else a(*outer, m, k)
        right = b(*outer, n, k) if form.b_transposed else b(*outer, k, n)
        return te.sum(precision.widen(left) * precision.widen(right), axis=k)

    def mapped(*at: Expr) -> Expr:
        value = sums(*at) + precision.widen(bias(at[-1])) if form.bias else sums(*at)
        return ACTIVATIONS[form.activation](value, precision) if form.activation else value

    if form.bias or form.activation:
        sums = stage(of_out, dot, "sums")
        out = output_stage(precision, of_out, mapped, "out")
    else:
        out = output_stage(precision, of_out, dot, "out")
    arguments = [Argument(a, folded(-2 if form.a_transposed else -1)), Argument(b, steady)]
    arguments += [Argument(bias, steady)] if form.bias else []
    return Program(tuple(arguments), (out,), flops=2 * math.prod(of_out.values()) * shape["k"])
