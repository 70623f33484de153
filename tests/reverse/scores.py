"""Attention whose scores are added to what has fewer dimensions, and masked by integers, as small programs of TE."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import te, tirx
from tvm.ir import Expr

BATCH, HEADS, QUERIES, KEYS, DEPTH = 2, 3, 4, 5, 3

At = Callable[[te.Tensor, Expr, Expr, Expr, Expr], Expr]


@dataclass(frozen=True)
class Extents:
    """Of q[b, h, i, d], k[b, h, j, d] and v[b, h, j, d]."""

    batch: int = BATCH
    heads: int = HEADS
    queries: int = QUERIES
    keys: int = KEYS
    depth: int = DEPTH
    dtype: str = "float64"

    @property
    def wide(self) -> str:
        return "float64" if self.dtype == "float64" else "float32"


SHAPES: dict[str, Callable[[Extents], tuple[int, ...]]] = {
    "slopes": lambda e: (e.heads,),
    "a number": lambda e: (1,),
    "of keys": lambda e: (e.keys,),
    "of queries and keys": lambda e: (e.queries, e.keys),
    "of heads, queries and keys": lambda e: (e.heads, e.queries, e.keys),
    "of distances": lambda e: (e.heads, e.queries + e.keys - 1),
    "of all": lambda e: (e.batch, e.heads, e.queries, e.keys),
}
"""By name, the shape of what is added to scores."""

READ: dict[str, At] = {
    "slopes": lambda p, b, h, i, j: p[h] * (j - i).astype(p.dtype),
    "a number": lambda p, b, h, i, j: p[0] * (j - i).astype(p.dtype),
    "of keys": lambda p, b, h, i, j: p[j],
    "of queries and keys": lambda p, b, h, i, j: p[i, j],
    "of heads, queries and keys": lambda p, b, h, i, j: p[h, i, j],
    "of distances": lambda p, b, h, i, j: p[h, j - i + (p.shape[1] - 1) // 2],
    "of all": lambda p, b, h, i, j: p[b, h, i, j],
}

KEPT: dict[str, tuple[Callable[[Extents], Sequence[tuple[int, ...]]], Callable[..., Expr]]] = {
    "documents": (lambda e: [(e.keys,)], lambda n, b, i, j: n[0][i] == n[0][j]),
    "ranges": (lambda e: [(e.queries,)] * 2, lambda n, b, i, j: tirx.all(j >= n[0][i], j < n[1][i])),
    "lengths": (lambda e: [(e.batch,)], lambda n, b, i, j: j < n[0][b]),
    "pairs": (lambda e: [(e.queries, e.keys)], lambda n, b, i, j: n[0][i, j] > 0),
}
"""By name, shapes of integers, and the scores that are kept by them."""


def biased(name: str, extents: Extents = Extents(), causal: bool = False) -> tirx.PrimFunc:
    """q, k, v, p -> softmax(q·kᵀ/2 + what p adds)·v."""
    p = te.placeholder(SHAPES[name](extents), extents.wide, "p")
    return _attention(
        extents, [p], lambda b, h, i, j: READ[name](p, b, h, i, j), (lambda b, i, j: j <= i) if causal else None
    )


def kept(name: str, extents: Extents = Extents()) -> tirx.PrimFunc:
    """q, k, v, integers -> attention over the keys that they keep."""
    shapes, keeps = KEPT[name]
    numbers = [te.placeholder(shape, "int32", f"n{k}") for k, shape in enumerate(shapes(extents))]
    return _attention(extents, numbers, None, lambda b, i, j: keeps(numbers, b, i, j))


def _attention(
    e: Extents, further: list[te.Tensor], added: Callable[..., Expr] | None, keeps: Callable[..., Expr] | None
) -> tirx.PrimFunc:
    q, k, v = (
        te.placeholder((e.batch, e.heads, n, e.depth), e.dtype, name)
        for name, n in zip("qkv", (e.queries, e.keys, e.keys), strict=True)
    )
    d, axes = te.reduce_axis((0, e.depth), "d"), [te.reduce_axis((0, e.keys), f"j{n}") for n in range(3)]
    rows, half = (e.batch, e.heads, e.queries), tirx.const(0.5, e.wide)

    def wide(value: Expr) -> Expr:
        return value.astype(e.wide)

    def dot(b: Expr, h: Expr, i: Expr, j: Expr) -> Expr:
        return te.sum(wide(q[b, h, i, d]) * wide(k[b, h, j, d]), axis=d)

    def logit(b: Expr, h: Expr, i: Expr, j: Expr) -> Expr:
        score = dots[b, h, i, j] * half if added is None else dots[b, h, i, j] * half + added(b, h, i, j)
        return score if keeps is None else tirx.if_then_else(keeps(b, i, j), score, tirx.const(-np.inf, e.wide))

    dots = te.compute((*rows, e.keys), dot, "dots")
    logits = te.compute((*rows, e.keys), logit, "logits")
    top = te.compute(rows, lambda *at: te.max(logits(*at, axes[0]), axis=axes[0]), "top")
    weights = te.compute((*rows, e.keys), lambda *at: te.exp(logits(*at) - top(*at[:-1])), "weights")
    total = te.compute(rows, lambda *at: te.sum(weights(*at, axes[1]), axis=axes[1]), "total")
    mixed = te.compute(
        (*rows, e.depth),
        lambda b, h, i, f: te.sum(weights[b, h, i, axes[2]] * wide(v[b, h, axes[2], f]), axis=axes[2]),
        "mixed",
    )
    out = te.compute((*rows, e.depth), lambda *at: (mixed(*at) / total(*at[:-1])).astype(e.dtype), "out")
    return te.create_prim_func([q, k, v, *further, out])
