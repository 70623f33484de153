"""Chains of products, as feed-forward layers have them, and of convolutions, with a map between."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from tvm import te, tirx
from tvm.ir import Expr

from corpus.programs.draws import folded
from corpus.programs.product import gated, linear
from corpus.programs.program import (
    Axes,
    Builder,
    Inputs,
    Precision,
    Program,
    Shape,
    output_stage,
    rows_of,
    stage,
)


@dataclass(frozen=True)
class Chain:
    """Two products in a row.

    Attributes
    ----------
    activation : one of `ACTIVATIONS`, of what the first product gives.
    gated : a further product of the same rows multiplies the activation of the first.

    What the second product reads is rounded to the dtype of storage, once: PyTorch also rounds each sum and the
    activation.
    """

    activation: str
    gated: bool = False

    @property
    def weights(self) -> tuple[str, ...]:
        """Of the products that read x."""
        return ("gate", "up") if self.gated else ("up",)


def chain(form: Chain) -> Builder:
    """The builder of out[m, l] = Σ_n activation(Σ_k x[m, k]·gate[n, k])·(Σ_k x[m, k]·up[n, k])·down[l, n].

    Extents: m, k, n and l. Weights stand as PyTorch's linear layers have them, and are as small as theirs.
    """
    return partial(chain_of, form)


def chain_of(form: Chain, shape: Shape, precision: Precision) -> Program:
    m, k, n, last = (shape[extent] for extent in "mknl")
    given = Inputs(precision)
    x = given({"m": m, "k": k}, "x", folded())
    products = linear(given, x, {"m": m, "n": n, "k": k}, form.weights, k**-0.5)
    hidden = stage({"m": m, "n": n}, gated(products, form.activation, precision), "hidden")
    down = given({"l": last, "n": n}, "down", deviation=n**-0.5)

    def second(i: Expr, o: Expr, j: Expr) -> Expr:
        return precision.widen(hidden(i, j)) * down(o, j)

    out = output_stage(precision, {"m": m, "l": last, "n": n}, second, "out", te.sum)
    return given.program(out, flops=2 * m * n * (k * len(form.weights) + last))


def chain_convolved(activation: str) -> Builder:
    """The builder of out = down ∗ activation(up ∗ x), convolutions of as many places as their image has.

    Extents: batch, height, width, the channels k, n and l, and the sides of windows, first and second. Channels are
    last, so that a window of one place is a row of a matrix: x[batch, height, width, k], up[n, first, first, k], and
    up[n, k] where first is 1.
    """
    return partial(chain_convolved_of, activation)


def chain_convolved_of(activation: str, shape: Shape, precision: Precision) -> Program:
    places: Axes = {axis: shape[axis] for axis in ("batch", "height", "width")}
    k, n, last, first, second = (shape[extent] for extent in ("k", "n", "l", "first", "second"))
    given = Inputs(precision)
    x = given.stored({**places, "k": k}, "x", folded())
    up = _convolved(given, x, {**places, "n": n, "k": k}, first, "up")
    hidden = stage({**places, "n": n}, gated([up], activation, precision), "hidden")
    down = _convolved(given, hidden, {**places, "l": last, "n": n}, second, "down")
    out = output_stage(precision, {**places, "l": last}, down, "out")
    return given.program(out, flops=2 * math.prod(places.values()) * n * (k * first**2 + last * second**2))


def _convolved(given: Inputs, image: te.Tensor, axes: Axes, side: int, name: str) -> te.Tensor:
    """Sums over windows around each place, 0 beyond the image; axes are those of places, columns and channels."""
    batch, height, width, columns, depth = axes
    _, rows, across, _, channels = axes.values()
    precision, before, deviation = given.precision, side // 2, (side * side * channels) ** -0.5
    if side == 1:
        (product,) = linear(given, lambda *at: precision.widen(image(*at)), axes, (name,), deviation)
        return product

    def bordered(b: Expr, p: Expr, q: Expr, c: Expr) -> Expr:
        inside = tirx.all(p >= before, p < rows + before, q >= before, q < across + before)
        return tirx.if_then_else(inside, image(b, p - before, q - before, c), tirx.const(0.0, precision.storage))

    around = {batch: axes[batch], height: rows + side - 1, width: across + side - 1, depth: channels}
    padded = stage(around, bordered, f"{name}_padded")
    weight = given({columns: axes[columns], "dp": side, "dq": side, depth: channels}, name, deviation=deviation)
    window = [te.reduce_axis((0, extent), axis) for axis, extent in (("dp", side), ("dq", side), (depth, channels))]

    def element(b: Expr, p: Expr, q: Expr, o: Expr) -> Expr:
        dp, dq, c = window
        return te.sum(precision.widen(padded(b, p + dp, q + dq, c)) * weight(o, dp, dq, c), axis=window)

    return stage(rows_of(axes), element, f"by_{name}")
