"""Attention with any map and mask of its scores, grouped heads, sinks, lengths and pages, as one program in TE."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tvm import te, tirx
from tvm.ir import Expr

from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.errors import InputError
from tvm_cascade.te.rows import accumulated, stored

ScoreMap: TypeAlias = Callable[[Expr, Expr, Expr, Expr, Expr], Expr]
"""(score, batch, head, query, key) → score."""

ScoreMask: TypeAlias = Callable[[Expr, Expr, Expr, Expr], Expr]
"""(batch, head, query, key) → whether the query sees the key."""


def attention(
    q: te.Tensor,
    k: te.Tensor,
    v: te.Tensor,
    *,
    score_mod: ScoreMap | None = None,
    mask_mod: ScoreMask | None = None,
    scale: float | None = None,
    sinks: te.Tensor | None = None,
    lengths: te.Tensor | None = None,
    pages: te.Tensor | None = None,
    name: str = "attention",
) -> te.Tensor:
    """softmax(score_mod(scale·q·kᵀ))·v over the keys that `mask_mod` keeps.

    Parameters
    ----------
    q : (batch, heads, queries, features).
    k, v : (batch, kv_heads, keys, features), or with `pages` (pool, page, kv_heads, features); kv_heads divides heads.
    score_mod : of a scaled score and its indices, in float32: a soft cap, a bias, ALiBi. It may read tensors.
    mask_mod : which keys a query sees, by index: `lambda b, h, i, j: j <= i` is causal. It may read tensors.
    scale : 1/√features by default.
    sinks : (heads,), a further score of each head, whose share of the weights has no value.
    lengths : (batch,) integers: how many keys a sequence has; those behind are masked.
    pages : (batch, pages) integers: key j of sequence b is k[pages[b, j // page], j % page].

    Returns
    -------
    out : (batch, heads, queries, features of v), of q's dtype. A query that sees no key has NaN, as softmax of nothing.

    Raises
    ------
    InputError
        When tensors have other ranks, or kv_heads does not divide heads.
    """
    batch, heads, queries, features = _extents(q, "q")
    dtype = accumulated(stored(q))
    at_key, at_value = (_reader(store, what, heads, pages, dtype) for store, what in ((k, "k"), (v, "v")))
    keys = k.shape[2] if pages is None else pages.shape[1] * k.shape[1]
    factor = tirx.const(int(features) ** -0.5 if scale is None else scale, dtype)
    d, o = te.reduce_axis((0, features), "d"), te.reduce_axis((0, keys), "j")
    scores = te.compute(
        (batch, heads, queries, keys),
        lambda b, h, i, j: te.sum(q(b, h, i, d).astype(dtype) * at_key(b, h, j, d), axis=d),
        name=f"{name}_scores",
    )
    mapped = _mapped(scores, factor, score_mod, mask_mod, lengths)
    logits = te.compute(scores.shape, mapped, name=f"{name}_logits")
    shares = _shares(logits, sinks, dtype, name)
    summed = te.compute(
        (batch, heads, queries, v.shape[3]),
        lambda b, h, i, c: te.sum(shares(b, h, i, o) * at_value(b, h, o, c), axis=o),
        name=f"{name}_sums",
    )
    return te.compute(summed.shape, lambda *at: summed(*at).astype(stored(q)), name=name)


def _mapped(
    scores: te.Tensor, factor: Expr, score_mod: ScoreMap | None, mask_mod: ScoreMask | None, lengths: te.Tensor | None
) -> ScoreMask:
    """(batch, head, query, key) → the score that the softmax is of: −∞ where the query does not see the key."""

    def logit(b: Expr, h: Expr, i: Expr, j: Expr) -> Expr:
        scaled = scores(b, h, i, j) * factor
        score = scaled if score_mod is None else score_mod(scaled, b, h, i, j)
        kept = [] if mask_mod is None else [mask_mod(b, h, i, j)]
        kept += [] if lengths is None else [j < lengths(b)]
        return tirx.if_then_else(te.all(*kept), score, tirx.const(float("-inf"), dtype_of(factor))) if kept else score

    return logit


def _shares(logits: te.Tensor, sinks: te.Tensor | None, dtype: str, name: str) -> te.Tensor:
    """The softmax over keys, of a further score for each head, if there are sinks, whose share is dropped."""
    *rows, keys = logits.shape
    m, t = te.reduce_axis((0, keys), "j"), te.reduce_axis((0, keys), "j")
    top = te.compute(rows, lambda *r: te.max(logits(*r, m), axis=m), name=f"{name}_max")
    if sinks is not None:
        largest, sink = top, sinks
        top = te.compute(rows, lambda *r: te.max(largest(*r), sink(r[1]).astype(dtype)), name=f"{name}_top")
    weights = te.compute(logits.shape, lambda *at: te.exp(logits(*at) - top(*at[:-1])), name=f"{name}_weights")
    total = te.compute(rows, lambda *r: te.sum(weights(*r, t), axis=t), name=f"{name}_sum")
    if sinks is not None:
        seen = total
        total = te.compute(rows, lambda *r: seen(*r) + te.exp(sink(r[1]).astype(dtype) - top(*r)), name=f"{name}_total")
    return te.compute(logits.shape, lambda *at: weights(*at) / total(*at[:-1]), name=f"{name}_shares")


def _reader(store: te.Tensor, name: str, heads: Expr, pages: te.Tensor | None, dtype: str) -> Callable[..., Expr]:
    """(batch, head of queries, key, feature) → an element of k or v, in pages or not."""
    extents = _extents(store, name)
    kv_heads = extents[1 if pages is None else 2]
    if int(heads) % int(kv_heads):
        where = f"tvm_cascade.te.attention({name}, …)"
        raise InputError(f"a number of heads that divides {heads}, the queries'", str(kv_heads), where)
    group = int(heads) // int(kv_heads)

    def element(b: Expr, h: Expr, j: Expr, c: Expr) -> Expr:
        g = h // group if group > 1 else h
        if pages is None:
            return store(b, g, j, c).astype(dtype)
        return store(pages(b, j // extents[1]), j % extents[1], g, c).astype(dtype)

    return element


def _extents(x: te.Tensor, name: str) -> tuple[Expr, ...]:
    if not isinstance(x, te.Tensor) or len(x.shape) != 4:
        found = f"one of {len(x.shape)}" if isinstance(x, te.Tensor) else type(x).__name__
        raise InputError("a te.Tensor of 4 dimensions", found, f"tvm_cascade.te.attention({name})")
    return tuple(x.shape)
