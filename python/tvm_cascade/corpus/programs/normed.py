"""Linear layers behind a normalisation, as models have them: what is normalised is rounded to the dtype of weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tvm import te
from tvm.ir import Expr

from tvm_cascade.corpus.programs.draws import folded, steady
from tvm_cascade.corpus.programs.moments import row_mean
from tvm_cascade.corpus.programs.normalisation import inverse_root
from tvm_cascade.corpus.programs.program import Argument, Builder, Precision, Program, Shape, placeholder, stage


@dataclass(frozen=True)
class Normed:
    """A normalisation and what is multiplied behind it.

    Attributes
    ----------
    centred : the mean is taken off first (LayerNorm), and a bias is added after the gain.
    gain : there is one, and a bias where it is centred.
    gated : two products, of which silu of the first multiplies the second.
    """

    centred: bool = False
    gain: bool = True
    gated: bool = False

    @property
    def weights(self) -> tuple[str, ...]:
        """Names of the matrices."""
        return ("gate", "up") if self.gated else ("weight",)


def normed_of(form: Normed, shape: Shape, precision: Precision) -> Program:
    """x[token, k], gain[k], bias[k], weights [column, k] -> out[token, column]."""
    tokens, features, columns = shape["tokens"], shape["features"], shape["columns"]
    axes, rows = {"token": tokens, "k": features}, {"token": tokens}
    x = placeholder(axes, precision.storage, "x")
    gain, bias = (placeholder({"k": features}, precision.storage, name) for name in ("gain", "bias"))
    weights = [placeholder({"column": columns, "k": features}, precision.storage, name) for name in form.weights]
    mean = row_mean(precision, axes, x, "mean") if form.centred else None

    def own(i: Expr, k: Expr) -> Expr:
        value = precision.widen(x(i, k))
        return value if mean is None else value - mean(i)

    k = te.reduce_axis((0, features), "k")
    square_sum = stage(rows, lambda i: te.sum(own(i, k) * own(i, k), axis=k), "square_sum")
    scale = stage(rows, lambda i: inverse_root(precision, square_sum(i), features), "scale")

    def element(i: Expr, c: Expr) -> Expr:
        value = own(i, c) * scale(i)
        value = value * precision.widen(gain(c)) if form.gain else value
        value = value + precision.widen(bias(c)) if form.gain and form.centred else value
        return value.astype(precision.storage)

    normalised = stage(axes, element, "normalised")
    products = [_product(precision, shape, normalised, weight) for weight in weights]

    def result(i: Expr, n: Expr) -> Expr:
        first, *others = (product(i, n) for product in products)
        for other in others:
            first = first / (precision.constant(1.0) + te.exp(-first)) * other
        return first.astype(precision.storage)

    out = stage({"token": tokens, "column": columns}, result, "out")
    arguments = [Argument(x, folded())]
    arguments += [Argument(gain, steady)] if form.gain else []
    arguments += [Argument(bias, steady)] if form.gain and form.centred else []
    arguments += [Argument(weight, steady) for weight in weights]
    return Program(tuple(arguments), (out,), flops=2 * tokens * features * columns * len(weights))


def _product(precision: Precision, shape: Shape, normalised: te.Tensor, weight: te.Tensor) -> te.Tensor:
    r = te.reduce_axis((0, shape["features"]), "k")
    axes = {"token": shape["tokens"], "column": shape["columns"]}
    name = f"by_{weight.op.name}"
    return stage(
        axes, lambda i, n: te.sum(precision.widen(normalised(i, r)) * precision.widen(weight(n, r)), axis=r), name
    )


def normed(form: Normed) -> Builder:
    """The builder of a linear layer behind a normalisation."""
    return partial(normed_of, form)
