"""Attention over heads, queries and keys, with score maps and masks as data.

Causal variants align the last query with the last key of its sequence, so that one decoded query sees every key; with
more queries than keys the first rows see none, and come out as the program's own arithmetic has it (NaN).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from tvm import te, tirx
from tvm.ir import Expr

from corpus.programs.caches import CONTIGUOUS, Cache, lengths_of
from corpus.programs.draws import alibi_slopes, ancestors, mostly_true, steady
from corpus.programs.program import (
    Argument,
    Axes,
    Builder,
    Precision,
    Program,
    Shape,
    output_stage,
    placeholder,
    reduced,
    rows_of,
    stage,
)
from corpus.programs.softmax import softmax_stages

GEMMA_CAP = 50.0
"""The soft cap of Gemma 2's scores."""
_MASKED = float("-inf")


@dataclass(frozen=True)
class Site:
    """Where a score stands: its indices, and what a variant may read there.

    Attributes
    ----------
    batch, head, query, key : index expressions (`batch` is None where batch is folded into heads).
    arrays : the variant's own inputs by name.
    """

    batch: Expr | None
    head: Expr
    query: Expr
    key: Expr
    shape: Shape
    precision: Precision
    arrays: Mapping[str, te.Tensor]

    @property
    def context(self) -> Expr | int:
        """How many keys come before those of the queries themselves."""
        if "lengths" in self.arrays:
            return self.arrays["lengths"](self.batch) - self.shape["queries"]
        return self.shape["keys"] - self.shape["queries"]

    @property
    def last_visible_key(self) -> Expr:
        """The key aligned with this query: the last one that a causal mask keeps."""
        return self.query + self.context


ScoreMap = Callable[[Expr, Site], Expr]
_Keys: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class Mask:
    """Which scores are kept: as an expression at a site, and as the half-open spans of keys of queries."""

    keeps: Callable[[Site], Expr]
    span: Callable[[_Keys, Shape], tuple[_Keys | int, _Keys | int]]


@dataclass(frozen=True)
class Variant:
    """What an attention does to its scores: score maps in turn, then masks, all of which must keep a score.

    A sink is a further score of each head, without a value: it takes a share of the weights.
    """

    score_maps: tuple[ScoreMap, ...] = ()
    masks: tuple[Mask, ...] = ()
    arrays: Callable[[Shape, Precision], Mapping[str, Argument]] = lambda shape, precision: {}
    sink: bool = False

    def visible_pairs(self, shape: Shape) -> int:
        """Pairs of query and key that the masks' spans keep, in one head."""
        firsts, ends = self._spans(shape)
        return int(np.maximum(ends - firsts, 0).sum())

    def visible_keys(self, shape: Shape) -> int:
        """Keys from the first that some query sees to the last."""
        firsts, ends = self._spans(shape)
        return max(0, int(ends.max() - firsts.min()))

    def _spans(self, shape: Shape) -> tuple[_Keys, _Keys]:
        """Of each query, the first key that the masks' spans keep, and the one behind the last."""
        queries = np.arange(shape["queries"])
        firsts, ends = np.zeros_like(queries), np.full_like(queries, shape["keys"])
        for mask in self.masks:
            first, end = mask.span(queries, shape)
            firsts, ends = np.maximum(firsts, first), np.minimum(ends, end)
        return firsts, ends


def _soft_cap(score: Expr, site: Site, cap: float) -> Expr:
    return site.precision.constant(cap) * te.tanh(score / site.precision.constant(cap))


def _alibi(score: Expr, site: Site) -> Expr:
    distance = site.precision.widen(site.key - site.last_visible_key)
    return score + site.precision.widen(site.arrays["slopes"](site.head)) * distance


def _alibi_arrays(shape: Shape, precision: Precision) -> Mapping[str, Argument]:
    slopes = placeholder({"h": shape["heads"]}, precision.accumulate, "slopes")
    return {"slopes": Argument(slopes, alibi_slopes)}


def _mask_arrays(shape: Shape, precision: Precision) -> Mapping[str, Argument]:
    mask = placeholder({"i": shape["queries"], "j": shape["keys"]}, "bool", "mask")
    return {"mask": Argument(mask, mostly_true)}


def _tree_arrays(shape: Shape, precision: Precision) -> Mapping[str, Argument]:
    batch = {"b": shape["batch"]} if "batch" in shape else {}
    tree = placeholder({**batch, "i": shape["queries"], "t": shape["queries"]}, "bool", "tree")
    return {"tree": Argument(tree, ancestors)}


def _in_tree(site: Site) -> Expr:
    """A query is a draft token: it sees the context, and of the draft tokens those that the tree keeps."""
    batch = () if site.batch is None else (site.batch,)
    draft = site.key - site.context
    return tirx.if_then_else(draft < 0, tirx.const(True, "bool"), site.arrays["tree"](*batch, site.query, draft))


def _sink_arrays(shape: Shape, precision: Precision) -> Mapping[str, Argument]:
    return {"sink": Argument(placeholder({"h": shape["heads"]}, precision.accumulate, "sink"), steady)}


_CAUSAL = Mask(
    keeps=lambda site: site.key <= site.last_visible_key,
    span=lambda queries, shape: (0, queries + shape["keys"] - shape["queries"] + 1),
)
_WINDOW = Mask(
    keeps=lambda site: site.key > site.last_visible_key - site.shape["window"],
    span=lambda queries, shape: (queries + shape["keys"] - shape["queries"] + 1 - shape["window"], shape["keys"]),
)
_BOOLEAN = Mask(
    keeps=lambda site: site.arrays["mask"](site.query, site.key),
    span=lambda _queries, shape: (0, shape["keys"]),
)
# Of a chain of draft tokens as many are kept as of any tree's: it stands for the count alone.
_TREE = Mask(keeps=_in_tree, span=_CAUSAL.span)
_GEMMA_SOFT_CAP = partial(_soft_cap, cap=GEMMA_CAP)

VARIANTS: Mapping[str, Variant] = {
    "full": Variant(),
    "causal": Variant(masks=(_CAUSAL,)),
    "mask": Variant(masks=(_BOOLEAN,), arrays=_mask_arrays),
    "softcap": Variant(score_maps=(_GEMMA_SOFT_CAP,)),
    "causal_softcap": Variant(score_maps=(_GEMMA_SOFT_CAP,), masks=(_CAUSAL,)),
    "alibi": Variant(score_maps=(_alibi,), arrays=_alibi_arrays),
    "causal_alibi": Variant(score_maps=(_alibi,), masks=(_CAUSAL,), arrays=_alibi_arrays),
    "window": Variant(masks=(_CAUSAL, _WINDOW)),
    "window_softcap": Variant(score_maps=(_GEMMA_SOFT_CAP,), masks=(_CAUSAL, _WINDOW)),
    "sink": Variant(masks=(_CAUSAL,), arrays=_sink_arrays, sink=True),
    "window_sink": Variant(masks=(_CAUSAL, _WINDOW), arrays=_sink_arrays, sink=True),
    "tree": Variant(masks=(_CAUSAL, _TREE), arrays=_tree_arrays),
}


def attention(
    variant: Variant, scores: str | None = None, cached: str | None = None, cache: Cache = CONTIGUOUS
) -> Builder:
    """The builder of one variant.

    Extents: heads, queries, keys, head_dim; optionally batch, an axis of its own ([b, h, i, d] instead of
    [h, i, d]), kv_heads (a divisor of heads: grouped queries), value_dim (features of v, where they differ from
    head_dim), window, and those of the cache. Arguments: q, k, v, then the cache's tables and the variant's own;
    output: out[b, h, i, value_dim], of the storage dtype.

    Parameters
    ----------
    scores : the dtype of q and k, where it is not that of storage.
    cached : the dtype of k and v, where it is not that of storage.
    cache : where k and v stand. With lengths, a query sees no key behind the one aligned with it.
    """
    return partial(attention_over, variant, scores=scores, cached=cached, cache=cache)


def attention_over(
    variant: Variant, shape: Shape, precision: Precision, scores: str | None, cached: str | None, cache: Cache
) -> Program:
    batch: Axes = {"b": shape["batch"]} if "batch" in shape else {}
    kv_heads = shape.get("kv_heads", shape["heads"])
    group = shape["heads"] // kv_heads
    of_queries = {**batch, "h": shape["heads"], "i": shape["queries"]}
    of_scores = {**of_queries, "j": shape["keys"]}
    width = shape.get("value_dim", shape["head_dim"])

    tables, heads = cache.tables(shape), {"h": kv_heads}
    q = placeholder({**of_queries, "d": shape["head_dim"]}, scores or precision.storage, "q")
    k = cache.store(shape, tables, heads, "k", cached or scores or precision.storage, shape["head_dim"])
    v = cache.store(shape, tables, heads, "v", cached or precision.storage, width)
    own = variant.arrays(shape, precision)
    if "lengths" in tables and _CAUSAL not in variant.masks:
        variant = replace(variant, masks=(_CAUSAL, *variant.masks))

    def kv_head(head: Expr) -> tuple[Expr]:
        return (head if group == 1 else head // group,)

    def dot(*at: Expr) -> Expr:
        *sequence, head, query, key, d = at
        element = k.read(tuple(sequence), kv_head(head), key, d)
        return precision.widen(q(*sequence, head, query, d)) * precision.widen(element)

    dots = reduced(te.sum, {**of_scores, "d": shape["head_dim"]}, dot, "scores")
    arrays = {name: argument.tensor for name, argument in {**tables, **own}.items()}
    logits = stage(of_scores, partial(_logit, variant, shape, precision, arrays, dots), "logits")
    if variant.sink:
        shares = probs_with_sink(precision, logits, of_scores, arrays["sink"])
    else:
        shares = stage(of_scores, softmax_stages(precision, logits, of_scores).share, "probs")

    def weighted(*at: Expr) -> Expr:
        *sequence, head, query, feature, j = at
        element = v.read(tuple(sequence), kv_head(head), j, feature)
        return shares(*sequence, head, query, j) * precision.widen(element)

    of_values = {**of_queries, "d": width, "j": shape["keys"]}
    out = output_stage(precision, of_values, weighted, "out", te.sum)
    arguments = (Argument(q, steady), *k.arguments, *v.arguments, *tables.values(), *own.values())
    lengths = [{**shape, "keys": int(length)} for length in lengths_of(shape)]
    pairs = sum(variant.visible_pairs(one) for one in lengths)
    unread = 0
    if all(store.per_position for store in (k, v)):
        kept = sum(variant.visible_keys(one) for one in lengths)
        unread = (len(lengths) * shape["keys"] - kept) * sum(store.per_position for store in (k, v))
    return Program(arguments, (out,), 2 * shape["heads"] * pairs * (shape["head_dim"] + width), unread)


def _logit(
    variant: Variant,
    shape: Shape,
    precision: Precision,
    arrays: Mapping[str, te.Tensor],
    scores: te.Tensor,
    *at: Expr,
) -> Expr:
    """The scaled, mapped and masked score at (..., h, i, j)."""
    *batch, head, query, key = at
    site = Site(batch[0] if batch else None, head, query, key, shape, precision, arrays)
    score = scores(*at) * precision.constant(1.0 / math.sqrt(shape["head_dim"]))
    for score_map in variant.score_maps:
        score = score_map(score, site)
    if not variant.masks:
        return score
    return tirx.if_then_else(te.all(*(mask.keeps(site) for mask in variant.masks)), score, precision.constant(_MASKED))


def probs_with_sink(precision: Precision, logits: te.Tensor, axes: Axes, sink: te.Tensor) -> te.Tensor:
    """The softmax of [..., head, query, key], each head with a further score sink[head] whose share is dropped."""
    rows, largest = rows_of(axes), reduced(te.max, axes, logits, "largest")
    row_max = stage(rows, lambda *at: te.max(largest(*at), precision.widen(sink(at[-2]))), "row_max")
    weights = stage(axes, lambda *at: te.exp(logits(*at) - row_max(*at[:-1])), "weights")
    row_sum = reduced(te.sum, axes, weights, "row_sum")
    total = stage(rows, lambda *at: row_sum(*at) + te.exp(precision.widen(sink(at[-2])) - row_max(*at)), "total")
    return stage(axes, lambda *at: weights(*at) / total(*at[:-1]), "probs")
