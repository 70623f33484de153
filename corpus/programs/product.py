"""Plain matrix products: transposed, batched, of narrow floats, with a map of each element behind."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tvm import te
from tvm.ir import Expr

from corpus.programs.draws import folded
from corpus.programs.program import (
    Axes,
    Builder,
    Element,
    Inputs,
    Precision,
    Program,
    Shape,
    output_stage,
    reduced,
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


def linear(given: Inputs, rows: Element, axes: Axes, names: Sequence[str], deviation: float = 1.0) -> list[te.Tensor]:
    """Products of the same rows with weights[column, k], an input of each name; axes are those of rows, columns, k."""
    products, (*_, columns, depth) = list[te.Tensor](), axes
    for name in names:
        weight = given({columns: axes[columns], depth: axes[depth]}, name, deviation=deviation)

        def element(*at: Expr, weight: Element = weight) -> Expr:
            *row, n, k = at
            return rows(*row, k) * weight(n, k)

        products.append(reduced(te.sum, axes, element, f"by_{name}"))
    return products


def gated(products: Sequence[te.Tensor], activation: str, precision: Precision) -> Element:
    """The activation of the first product, times the others, in the dtype of storage."""

    def element(*at: Expr) -> Expr:
        value, *others = (one(*at) for one in products)
        value = ACTIVATIONS[activation](value, precision) if activation else value
        for other in others:
            value = value * other
        return value.astype(precision.storage)

    return element


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
    given, dtype = Inputs(precision), form.operands or precision.storage

    def axes(names: str) -> Axes:
        return {**batch, **{axis: shape[axis] for axis in names}}

    a = given(axes("km" if form.a_transposed else "mk"), "a", folded(-2 if form.a_transposed else -1), dtype)
    b = given(axes("nk" if form.b_transposed else "kn"), "b", dtype=dtype)
    bias = given({"n": shape["n"]}, "bias") if form.bias else None

    def element(*at: Expr) -> Expr:
        *outer, m, n, k = at
        left = a(*outer, k, m) if form.a_transposed else a(*outer, m, k)
        return left * (b(*outer, n, k) if form.b_transposed else b(*outer, k, n))

    def mapped(*at: Expr) -> Expr:
        value = sums(*at) if bias is None else sums(*at) + bias(at[-1])
        return ACTIVATIONS[form.activation](value, precision) if form.activation else value

    if bias is not None or form.activation:
        sums = reduced(te.sum, axes("mnk"), element, "sums")
        out = output_stage(precision, axes("mn"), mapped, "out")
    else:
        out = output_stage(precision, axes("mnk"), element, "out", te.sum)
    return given.program(out, flops=2 * math.prod(axes("mnk").values()))
