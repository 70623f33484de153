"""Attention whose operands have dtypes of their own, float8 among them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from tvm import ir, te, tirx

from .emulator.run import Array

E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"


@dataclass(frozen=True)
class Attention:
    """q[h, i, d], k[h, j, d], v -> out[h, i, f].

    Attributes
    ----------
    left, right, value : dtypes of q, k and v.
    out : dtype of the result.
    transposed : v is [h, f, j]; [h, j, f] otherwise.
    rounded : the dtype that the weights are rounded to before they meet v; empty where they are not.
    gain : weights are gain · exp(s - max).
    causal : the last query sees the last key.
    """

    left: str = E4M3
    right: str = E4M3
    value: str = "float16"
    out: str = "float16"
    transposed: bool = False
    rounded: str = ""
    gain: float = 1.0
    causal: bool = False
    heads: int = 1
    queries: int | ir.Expr = 130
    keys: int | ir.Expr = 200
    depth: int = 64
    features: int = 64

    def build(self) -> tirx.PrimFunc:
        """The unfused program."""
        of_v = (self.features, self.keys) if self.transposed else (self.keys, self.features)
        q = te.placeholder((self.heads, self.queries, self.depth), self.left, "q")
        k = te.placeholder((self.heads, self.keys, self.depth), self.right, "k")
        v = te.placeholder((self.heads, *of_v), self.value, "v")
        d, *j = (te.reduce_axis((0, n), f"r{m}") for m, n in enumerate((self.depth, *[self.keys] * 3)))
        square = (self.heads, self.queries, self.keys)
        dots = te.compute(square, lambda h, i, j: te.sum(_wide(q[h, i, d]) * _wide(k[h, j, d]), axis=d), "dots")
        scores = te.compute(square, lambda *at: self._score(dots(*at), *at[1:]), "scores")
        top = te.compute(square[:2], lambda h, i: te.max(scores[h, i, j[0]], axis=j[0]), "top")
        raised = te.compute(square, lambda h, i, j: te.exp(scores[h, i, j] - top[h, i]), "raised")
        mass = te.compute(square[:2], lambda h, i: te.sum(raised[h, i, j[1]], axis=j[1]), "mass")

        def term(h: ir.Expr, i: ir.Expr, f: ir.Expr) -> ir.Expr:
            weight = raised[h, i, j[2]]
            weight = weight if self.gain == 1 else weight * tirx.const(self.gain, "float32")
            weight = _wide(weight.astype(self.rounded)) if self.rounded else weight
            return weight * _wide(v[h, f, j[2]] if self.transposed else v[h, j[2], f])

        shape = (*square[:2], self.features)
        sums = te.compute(shape, lambda *at: te.sum(term(*at), axis=j[2]), "sums")
        out = te.compute(shape, lambda h, i, f: (sums[h, i, f] / mass[h, i]).astype(self.out), "out")
        return te.create_prim_func([q, k, v, out])

    def _score(self, dot: ir.Expr, i: ir.Expr, j: ir.Expr) -> ir.Expr:
        score = dot * tirx.const(1 / math.sqrt(self.depth), "float32")
        if not self.causal:
            return score
        return tirx.if_then_else(j <= i + (self.keys - self.queries), score, tirx.const(float("-inf"), "float32"))

    def inputs(self) -> list[Array]:
        """Normal values for q, k and v."""
        rng = np.random.default_rng(0)
        types = [param.ty for param in self.build().params[:3]]
        return [
            rng.standard_normal([int(n) for n in kind.shape]).astype(
                np.dtype(getattr(ml_dtypes, str(kind.dtype), str(kind.dtype)))
            )
            for kind in types
        ]


def _wide(value: ir.Expr) -> ir.Expr:
    return value.astype("float32")
