"""Attention over heads, queries and keys, with score maps and masks as data; and latent attention (MLA).

Causal variants align the last query with the last key, so that one decoded query sees every key; with more queries
than keys the first rows see none, and come out as the program's own arithmetic has it (NaN).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from tvm import te, tirx
from tvm.ir import Expr

from tvm_cascade.bench.programs.draws import alibi_slopes, folded, mostly_true, steady
from tvm_cascade.bench.programs.program import (
    Argument,
    Axes,
    Builder,
    Precision,
    Program,
    Shape,
    output_stage,
    placeholder,
    stage,
)
from tvm_cascade.bench.programs.softmax import softmax_stages

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
    def last_visible_key(self) -> Expr:
        """The key aligned with this query: the last one that a causal mask keeps."""
        return self.query + (self.shape["keys"] - self.shape["queries"])


ScoreMap = Callable[[Expr, Site], Expr]


@dataclass(frozen=True)
class Mask:
    """Which scores are kept: as an expression at a site, and as the half-open span of keys of one query."""

    keeps: Callable[[Site], Expr]
    span: Callable[[int, Shape], tuple[int, int]]


@dataclass(frozen=True)
class Variant:
    """What an attention does to its scores: score maps in turn, then masks, all of which must keep a score."""

    score_maps: tuple[ScoreMap, ...] = ()
    masks: tuple[Mask, ...] = ()
    arrays: Callable[[Shape, Precision], Mapping[str, Argument]] = lambda shape, precision: {}

    def visible_pairs(self, shape: Shape) -> int:
        """Pairs of query and key that the masks' spans keep, in one head."""
        total = 0
        for query in range(shape["queries"]):
            spans = [mask.span(query, shape) for mask in self.masks]
            first = max([0, *(span[0] for span in spans)])
            end = min([shape["keys"], *(span[1] for span in spans)])
            total += max(0, end - first)
        return total


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


_CAUSAL = Mask(
    keeps=lambda site: site.key <= site.last_visible_key,
    span=lambda query, shape: (0, query + shape["keys"] - shape["queries"] + 1),
)
_WINDOW = Mask(
    keeps=lambda site: site.key > site.last_visible_key - site.shape["window"],
    span=lambda query, shape: (query + shape["keys"] - shape["queries"] + 1 - shape["window"], shape["keys"]),
)
_BOOLEAN = Mask(
    keeps=lambda site: site.arrays["mask"](site.query, site.key),
    span=lambda query, shape: (0, shape["keys"]),
)
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
}


def attention(variant: Variant, scores: str | None = None) -> Builder:
    """The builder of one variant, with q and k in a dtype of their own where `scores` names one.

    Extents: heads, queries, keys, head_dim; optionally batch, an axis of its own ([b, h, i, d] instead of
    [h, i, d]), kv_heads (a divisor of heads: grouped queries), and window. Arguments: q, k, v, then the variant's
    own; output: out, of q's shape and v's dtype.
    """
    return partial(_attention, variant, scores=scores)


def _attention(variant: Variant, shape: Shape, precision: Precision, scores: str | None) -> Program:
    batch: Axes = {"b": shape["batch"]} if "batch" in shape else {}
    kv_heads = shape.get("kv_heads", shape["heads"])
    group = shape["heads"] // kv_heads
    of_queries = {**batch, "h": shape["heads"], "i": shape["queries"]}
    of_keys = {**batch, "h": kv_heads, "j": shape["keys"]}
    of_scores = {**of_queries, "j": shape["keys"]}
    features = {"d": shape["head_dim"]}

    q = placeholder({**of_queries, **features}, scores or precision.storage, "q")
    k = placeholder({**of_keys, **features}, scores or precision.storage, "k")
    v = placeholder({**of_keys, **features}, precision.storage, "v")
    extra = variant.arrays(shape, precision)

    def kv_head(*head: Expr) -> tuple[Expr, ...]:
        return head if group == 1 else (*head[:-1], head[-1] // group)

    d = te.reduce_axis((0, shape["head_dim"]), "d")
    dots = stage(
        of_scores,
        lambda *at: te.sum(precision.widen(q(*at[:-1], d)) * precision.widen(k(*kv_head(*at[:-2]), at[-1], d)), axis=d),
        "scores",
    )
    arrays = {name: argument.tensor for name, argument in extra.items()}
    logits = stage(of_scores, partial(_logit, variant, shape, precision, arrays, dots), "logits")
    probs = _probs(precision, logits, of_scores)
    j = te.reduce_axis((0, shape["keys"]), "j")
    out = output_stage(
        precision,
        {**of_queries, **features},
        lambda *at: te.sum(probs(*at[:-1], j) * precision.widen(v(*kv_head(*at[:-2]), j, at[-1])), axis=j),
        "out",
    )
    heads = shape.get("batch", 1) * shape["heads"]
    arguments = (Argument(q, steady), Argument(k, folded(-2)), Argument(v, folded(-2)), *extra.values())
    return Program(arguments, (out,), flops=4 * heads * variant.visible_pairs(shape) * shape["head_dim"])


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


def _probs(precision: Precision, logits: te.Tensor, axes: Axes) -> te.Tensor:
    stages = softmax_stages(precision, logits, axes)
    return stage(axes, lambda *at: stages.weights(*at) / stages.row_sum(*at[:-1]), "probs")


def latent_attention(shape: Shape, precision: Precision) -> Program:
    """One decoded query of latent attention (MLA).

    q[b, h, latent + rope], kv[b, j, latent + rope] -> out[b, h, latent].
    All heads share the cached kv; its first `latent_dim` features are also the values.
    """
    features = shape["latent_dim"] + shape["rope_dim"]
    of_queries = {"b": shape["batch"], "h": shape["heads"]}
    of_scores = {**of_queries, "j": shape["keys"]}
    q = placeholder({**of_queries, "d": features}, precision.storage, "q")
    kv = placeholder({"b": shape["batch"], "j": shape["keys"], "d": features}, precision.storage, "kv")

    d = te.reduce_axis((0, features), "d")
    scores = stage(
        of_scores,
        lambda b, h, j: te.sum(precision.widen(q(b, h, d)) * precision.widen(kv(b, j, d)), axis=d),
        "scores",
    )
    scale = precision.constant(1.0 / math.sqrt(features))
    logits = stage(of_scores, lambda b, h, j: scores(b, h, j) * scale, "logits")
    probs = _probs(precision, logits, of_scores)
    j = te.reduce_axis((0, shape["keys"]), "j")
    out = output_stage(
        precision,
        {**of_queries, "d": shape["latent_dim"]},
        lambda b, h, c: te.sum(probs(b, h, j) * precision.widen(kv(b, j, c)), axis=j),
        "out",
    )
    pairs = shape["batch"] * shape["heads"] * shape["keys"]
    flops = 2 * pairs * (features + shape["latent_dim"])
    return Program((Argument(q, steady), Argument(kv, folded(-2))), (out,), flops)
