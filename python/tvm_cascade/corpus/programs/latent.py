"""Latent attention (MLA): all heads share one cached row of features, of which the first are also the values."""

from __future__ import annotations

import math
from functools import partial

from tvm import te
from tvm.ir import Expr

from tvm_cascade.corpus.programs.attention import probs
from tvm_cascade.corpus.programs.caches import CONTIGUOUS, PAGED, Cache, lengths_of
from tvm_cascade.corpus.programs.draws import steady
from tvm_cascade.corpus.programs.program import Argument, Precision, Program, Shape, output_stage, placeholder, stage

_MASKED = float("-inf")


def latent_attention_over(cache: Cache, shape: Shape, precision: Precision) -> Program:
    """One decoded query of latent attention.

    q[b, h, latent + rope], kv[b, j, latent + rope] or its pages -> out[b, h, latent].
    """
    features = shape["latent_dim"] + shape["rope_dim"]
    of_queries = {"b": shape["batch"], "h": shape["heads"]}
    of_scores = {**of_queries, "j": shape["keys"]}
    tables = cache.tables(shape)
    q = placeholder({**of_queries, "d": features}, precision.storage, "q")
    kv = cache.store(shape, tables, {}, "kv", precision.storage, features)

    d = te.reduce_axis((0, features), "d")
    scores = stage(
        of_scores,
        lambda b, h, j: te.sum(precision.widen(q(b, h, d)) * precision.widen(kv.read((b,), (), j, d)), axis=d),
        "scores",
    )
    scale = precision.constant(1.0 / math.sqrt(features))

    def logit(b: Expr, h: Expr, j: Expr) -> Expr:
        scaled = scores(b, h, j) * scale
        if "lengths" not in tables:
            return scaled
        return te.if_then_else(j < tables["lengths"].tensor(b), scaled, precision.constant(_MASKED))

    logits = stage(of_scores, logit, "logits")
    shares = probs(precision, logits, of_scores)
    j = te.reduce_axis((0, shape["keys"]), "j")
    out = output_stage(
        precision,
        {**of_queries, "d": shape["latent_dim"]},
        lambda b, h, c: te.sum(shares(b, h, j) * precision.widen(kv.read((b,), (), j, c)), axis=j),
        "out",
    )
    pairs = shape["heads"] * int(lengths_of(shape).sum())
    arguments = (Argument(q, steady), *kv.arguments, *tables.values())
    return Program(arguments, (out,), flops=2 * pairs * (features + shape["latent_dim"]))


latent_attention = partial(latent_attention_over, CONTIGUOUS)
"""Extents: batch, heads, keys, latent_dim, rope_dim."""

paged_latent_attention = partial(latent_attention_over, PAGED)
"""The same, each sequence of its own length, through a page table. Extents: page, shortest besides."""
