"""Attention whose operands have dtypes of their own, float8 among them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from tvm import ir, te, tirx

from .emulator.run import Array

E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"

Weigh = Callable[[ir.Expr], ir.Expr]
"""A probability in float32 -> as the program rounds it."""


@dataclass(frozen=True)
class Attention:
    """q[h, i, d], k[h, j, d], v -> out[h, i, f].

    Attributes
    ----------
    left, right, value : dtypes of q, k and v.
    out : dtype of the result.
    transposed : v is [h, f, j]; [h, j, f] otherwise.
    weigh : how probabilities are rounded before they meet v.
    causal : the last query sees the last key.
    """

    left: str = E4M3
    right: str = E4M3
    value: str = "float16"
    out: str = "float16"
    transposed: bool = False
    weigh: Weigh = lambda p: p
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
        d = te.reduce_axis((0, self.depth), "d")
        square = (self.heads, self.queries, self.keys)
        dots = te.compute(square, lambda h, i, j: te.sum(_wide(q[h, i, d]) * _wide(k[h, j, d]), axis=d), "dots")
        scale = tirx.const(1 / math.sqrt(self.depth), "float32")

        def score(h: ir.Expr, i: ir.Expr, j: ir.Expr) -> ir.Expr:
            kept = j <= i + (self.keys - self.queries)
            value = dots[h, i, j] * scale
            return tirx.if_then_else(kept, value, tirx.const(float("-inf"), "float32")) if self.causal else value

        scores = te.compute(square, score, "scores")
        of_rows = square[:2]
        j = [te.reduce_axis((0, self.keys), f"j{n}") for n in range(3)]
        top = te.compute(of_rows, lambda h, i: te.max(scores[h, i, j[0]], axis=j[0]), "top")
        mass = te.compute(of_rows, lambda h, i: te.sum(te.exp(scores[h, i, j[1]] - top[h, i]), axis=j[1]), "mass")
        probs = te.compute(
            square, lambda h, i, j: _wide(self.weigh(te.exp(scores[h, i, j] - top[h, i]) / mass[h, i])), "probs"
        )

        def term(h: ir.Expr, i: ir.Expr, f: ir.Expr) -> ir.Expr:
            at = v[h, f, j[2]] if self.transposed else v[h, j[2], f]
            return te.sum(probs[h, i, j[2]] * _wide(at), axis=j[2])

        sums = te.compute((*of_rows, self.features), term, "sums")
        out = te.compute(sums.shape, lambda *at: sums(*at).astype(self.out), "out")
        return te.create_prim_func([q, k, v, out])

    def inputs(self, kind: Callable[[np.random.Generator, tuple[int, ...]], Array], **extents: int) -> list[Array]:
        """Arrays drawn by a kind; q grows no score beyond what float8 sums keep."""
        queries, keys = extents.get("queries", self.queries), extents.get("keys", self.keys)
        of_v = (self.features, keys) if self.transposed else (keys, self.features)
        rng = np.random.default_rng(0)
        shapes: list[Any] = [(queries, self.depth), (keys, self.depth), of_v]
        return [
            np.asarray(kind(rng, (self.heads, *shape))).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
            for shape, dtype in zip(shapes, (self.left, self.right, self.value), strict=True)
        ]


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Standard normal."""
    return rng.standard_normal(shape)


def _wide(value: ir.Expr) -> ir.Expr:
    return value.astype("float32")
