"""Programs around a product of matrices that fold something of their own: what the tile layer was not written for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import ir, te, tirx

QUERIES, KEYS, DEPTH = 130, 200, 64

Extent = int | ir.Expr
Term = Callable[[ir.Expr, ir.Expr], ir.Expr]


class Scores:
    """s[i, j] = q[i, :] · k[j, :] · scale, in float32, with what programs compute from it.

    Parameters
    ----------
    dtype : of the inputs.
    rounded : weights of products are rounded to the inputs' dtype, as tensor cores need them.
    queries, keys : extents, numbers or variables.
    """

    def __init__(self, dtype: str, scale: float, rounded: bool, queries: Extent, keys: Extent) -> None:
        self.dtype, self.rounded, self.queries, self.keys = dtype, rounded, queries, keys
        self.inputs: list[te.Tensor] = []
        q, k, d = self.tensor("q", queries), self.tensor("k"), te.reduce_axis((0, DEPTH), "d")
        dots = te.compute((queries, keys), lambda i, j: te.sum(_wide(q[i, d]) * _wide(k[j, d]), axis=d), name="dots")
        self.at = te.compute(dots.shape, lambda i, j: dots[i, j] * tirx.const(scale, "float32"), name="scores")

    def tensor(self, name: str, rows: Extent | None = None) -> te.Tensor:
        """An input of rows of DEPTH elements."""
        self.inputs.append(te.placeholder((self.keys if rows is None else rows, DEPTH), self.dtype, name=name))
        return self.inputs[-1]

    def sum(self, name: str, term: Term) -> te.Tensor:
        """Over j."""
        j = te.reduce_axis((0, self.keys), f"{name}_j")
        return te.compute((self.queries,), lambda i: te.sum(term(i, j), axis=j), name=name)

    def max(self, name: str) -> te.Tensor:
        """Of the scores over j."""
        j = te.reduce_axis((0, self.keys), f"{name}_j")
        return te.compute((self.queries,), lambda i: te.max(self.at[i, j], axis=j), name=name)

    def weigh(self, name: str, weight: Term, values: te.Tensor) -> te.Tensor:
        """The sum over j of weight(i, j) · values[j, f]."""
        j = te.reduce_axis((0, self.keys), f"{name}_j")

        def used(i: ir.Expr) -> ir.Expr:
            return _wide(weight(i, j).astype(self.dtype)) if self.rounded else weight(i, j)

        return te.compute((self.queries, DEPTH), lambda i, f: te.sum(used(i) * _wide(values[j, f]), axis=j), name=name)

    def narrow(self, tensor: te.Tensor) -> te.Tensor:
        """In the dtype of the inputs."""
        return te.compute(tensor.shape, lambda *at: tensor(*at).astype(self.dtype), name=f"{tensor.op.name}_narrow")


Fold = Callable[[Scores], list[te.Tensor]]


def _wide(value: ir.Expr) -> ir.Expr:
    return value.astype("float32")


def _softmax(s: Scores) -> tuple[te.Tensor, te.Tensor, Term]:
    top = s.max("top")
    total = s.sum("total", lambda i, j: te.exp(s.at[i, j] - top[i]))
    return top, total, lambda i, j: te.exp(s.at[i, j] - top[i]) / total[i]


def log_sum_exp(s: Scores) -> list[te.Tensor]:
    """Attention that also returns the logarithm of its sum."""
    top, total, weight = _softmax(s)
    out = s.narrow(s.weigh("out", weight, s.tensor("v")))
    return [out, te.compute((s.queries,), lambda i: top[i] + te.log(total[i]), name="log_sum")]


def entropy(s: Scores) -> list[te.Tensor]:
    """Attention that also returns the entropy of its rows."""
    top, total, weight = _softmax(s)
    out = s.narrow(s.weigh("out", weight, s.tensor("v")))
    return [out, s.sum("entropy", lambda i, j: weight(i, j) * (s.at[i, j] - top[i] - te.log(total[i])))]


def variance(s: Scores) -> list[te.Tensor]:
    """No second product: the variance of the scores."""
    mean = s.sum("mean", lambda i, j: s.at[i, j] / KEYS)
    return [s.sum("variance", lambda i, j: (s.at[i, j] - mean[i]) * (s.at[i, j] - mean[i]))]


def sigmoid(s: Scores) -> list[te.Tensor]:
    """No cascade."""
    return [s.narrow(s.weigh("out", lambda i, j: te.sigmoid(s.at[i, j]), s.tensor("v")))]


def normalised(s: Scores) -> list[te.Tensor]:
    """Scores over the root of the sum of their squares."""
    squares = s.sum("squares", lambda i, j: s.at[i, j] * s.at[i, j])
    return [s.narrow(s.weigh("out", lambda i, j: s.at[i, j] / te.sqrt(squares[i]), s.tensor("v")))]


def centred(s: Scores) -> list[te.Tensor]:
    """Scores about their mean."""
    mean = s.sum("mean", lambda i, j: s.at[i, j] / KEYS)
    return [s.narrow(s.weigh("out", lambda i, j: s.at[i, j] - mean[i], s.tensor("v")))]


def two_values(s: Scores) -> list[te.Tensor]:
    """Two products of one weight, in float32."""
    top = s.max("top")
    return [s.weigh(f"out_{v}", lambda i, j: te.exp(s.at[i, j] - top[i]), s.tensor(v)) for v in ("u", "v")]


def lowest_mask(s: Scores) -> list[te.Tensor]:
    """Masked by float32's lowest number, which wholly masked rows average over: s over its scale would overflow."""
    lowest, scores = tirx.const(float(np.finfo(np.float32).min), "float32"), s.at
    s.at = te.compute(
        scores.shape, lambda i, j: tirx.if_then_else(j <= i - QUERIES // 2, scores[i, j], lowest), name="masked"
    )
    _, _, weight = _softmax(s)
    return [s.narrow(s.weigh("out", weight, s.tensor("v")))]


def program(
    outputs: Fold,
    dtype: str,
    scale: float = 0.125,
    rounded: bool = False,
    queries: Extent = QUERIES,
    keys: Extent = KEYS,
) -> tirx.PrimFunc:
    """One of the programs above, over tensors of a dtype."""
    scores = Scores(dtype, scale, rounded, queries, keys)
    results = outputs(scores)
    return te.create_prim_func([*scores.inputs, *results])
