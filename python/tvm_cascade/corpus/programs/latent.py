"""Latent attention (MLA): all heads share one cached row of features, of which the first are also the values."""

from __future__ import annotations

import math
from functools import partial

from tvm import te
from tvm.ir import Expr

from tvm_cascade.corpus.programs.caches import CONTIGUOUS, PAGED, Cache, lengths_of
from tvm_cascade.corpus.programs.program import Inputs, Precision, Program, Shape, output_stage, reduced, stage
from tvm_cascade.corpus.programs.softmax import softmax_stages

_MASKED = float("-inf")


def latent_attention_over(cache: Cache, shape: Shape, precision: Precision) -> Program:
    """One decoded query of latent attention.

    q[b, h, latent + rope], kv[b, j, latent + rope] or its pages -> out[b, h, latent].
    """
    features, latent = shape["latent_dim"] + shape["rope_dim"], shape["latent_dim"]
    of_queries, given = {"b": shape["batch"], "h": shape["heads"]}, Inputs(precision)
    of_scores, tables = {**of_queries, "j": shape["keys"]}, cache.tables(shape)
    q = given({**of_queries, "d": features}, "q")
    kv = cache.store(shape, tables, {}, "kv", precision.storage, features)
    given.arguments += (*kv.arguments, *tables.values())

    def cached(b: Expr, j: Expr, d: Expr) -> Expr:
        return precision.widen(kv.read((b,), (), j, d))

    scores = reduced(te.sum, {**of_scores, "d": features}, lambda b, h, j, d: q(b, h, d) * cached(b, j, d), "scores")
    scale = precision.constant(1.0 / math.sqrt(features))

    def logit(b: Expr, h: Expr, j: Expr) -> Expr:
        scaled = scores(b, h, j) * scale
        if "lengths" not in tables:
            return scaled
        return te.if_then_else(j < tables["lengths"].tensor(b), scaled, precision.constant(_MASKED))

    shares = stage(of_scores, softmax_stages(precision, stage(of_scores, logit, "logits"), of_scores).share, "probs")
    of_values = {**of_queries, "d": latent, "j": shape["keys"]}
    out = output_stage(precision, of_values, lambda b, h, c, j: shares(b, h, j) * cached(b, j, c), "out", te.sum)
    pairs = shape["heads"] * int(lengths_of(shape).sum())
    return given.program(out, flops=2 * pairs * (features + latent))


latent_attention = partial(latent_attention_over, CONTIGUOUS)
"""Extents: batch, heads, keys, latent_dim, rope_dim."""

paged_latent_attention = partial(latent_attention_over, PAGED)
"""The same, each sequence of its own length, through a page table. Extents: page, shortest besides."""
