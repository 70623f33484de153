"""Chains of matrix products with a map between, as feed-forward layers have them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tvm import te
from tvm.ir import Expr

from tvm_cascade.corpus.programs.draws import folded
from tvm_cascade.corpus.programs.product import gated, linear
from tvm_cascade.corpus.programs.program import Builder, Inputs, Precision, Program, Shape, output_stage, stage


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
