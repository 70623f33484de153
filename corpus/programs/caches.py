"""Where the keys and values of an attention stand: in one tensor, up to lengths, in pages, behind a shared prefix."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from tvm import te, tirx
from tvm.ir import Expr

from corpus.programs.draws import Extents, Values, folded
from corpus.programs.program import (
    Argument,
    Axes,
    Inputs,
    Precision,
    Program,
    Shape,
    dtype_of,
    output_stage,
    placeholder,
    reduced,
    stage,
)
from corpus.programs.softmax import softmax_stages

Index = tuple[Expr, ...]
Tables = Mapping[str, Argument]


@dataclass(frozen=True)
class Store:
    """The tensors of the keys or of the values.

    Attributes
    ----------
    arguments : in the order of the parameters.
    read : from the indices of the sequence (none without a batch), head (none where all share one) and position,
        and the feature, to the element.
    per_position : bytes of a sequence's position, where there are positions that no sequence may have; else 0.
    """

    arguments: tuple[Argument, ...]
    read: Callable[[Index, Index, Expr, Expr], Expr]
    per_position: int = 0


@dataclass(frozen=True)
class Cache:
    """A way to keep keys and values.

    Attributes
    ----------
    tables : integer tensors that say where a sequence's positions stand and how many there are, by name.
    store : from the shape, the tables, the axes of heads, a name, the dtype and the features to the tensors.
    """

    tables: Callable[[Shape], Tables]
    store: Callable[[Shape, Tables, Axes, str, str, int], Store]


def lengths_of(shape: Shape) -> NDArray[np.int32]:
    """How many positions each sequence has, [batch]: from `shortest` to `keys` evenly, in a fixed disorder."""
    count, longest = shape.get("batch", 1), shape["keys"]
    even = np.linspace(shape.get("shortest", longest), longest, count).round().astype(np.int32)
    return np.random.default_rng(0).permutation(even)


def pages_of(shape: Shape) -> NDArray[np.int64]:
    """How many pages each sequence takes, [batch]."""
    return -(-lengths_of(shape).astype(np.int64) // shape["page"])


def _batch(shape: Shape) -> Axes:
    return {"b": shape["batch"]} if "batch" in shape else {}


def _contiguous_store(shape: Shape, _tables: Tables, heads: Axes, name: str, dtype: str, features: int) -> Store:
    tensor = placeholder({**_batch(shape), **heads, "j": shape["keys"], "d": features}, dtype, name)
    size = math.prod(heads.values()) * features * dtype_of(tensor).itemsize
    return Store((Argument(tensor, folded(-2)),), lambda batch, head, key, d: tensor(*batch, *head, key, d), size)


def _lengths(shape: Shape) -> Tables:
    def draw(_rng: Generator, _extents: Extents, _kind: str) -> Values:
        return lengths_of(shape)

    return {"lengths": Argument(placeholder({"b": shape["batch"]}, "int32", "lengths"), draw)}


def _page_table(shape: Shape) -> Tables:
    most = -(-shape["keys"] // shape["page"])

    def draw(rng: Generator, extents: Extents, _kind: str) -> Values:
        """Every page of the pool once, in disorder; entries beyond a sequence's length are 0."""
        taken = np.arange(most) < pages_of(shape)[:, None]
        table = np.zeros(extents, np.int32)
        table[taken] = rng.permutation(int(taken.sum()))
        return table

    table = placeholder({"b": shape["batch"], "p": most}, "int32", "table")
    return {"table": Argument(table, draw), **_lengths(shape)}


def _paged_store(shape: Shape, tables: Tables, heads: Axes, name: str, dtype: str, features: int) -> Store:
    page, table = shape["page"], tables["table"].tensor
    axes = {"page": int(pages_of(shape).sum()), "slot": page, **heads, "d": features}
    tensor = placeholder(axes, dtype, f"{name}_pages")

    def read(batch: Index, head: Index, key: Expr, d: Expr) -> Expr:
        return tensor(table(*batch, key // page), key % page, *head, d)

    return Store((Argument(tensor, folded(1)),), read)


def _prefixed_store(shape: Shape, _tables: Tables, heads: Axes, name: str, dtype: str, features: int) -> Store:
    prefix = shape["prefix"]
    shared = placeholder({**heads, "j": prefix, "d": features}, dtype, f"{name}_prefix")
    own = placeholder({"b": shape["batch"], **heads, "j": shape["keys"] - prefix, "d": features}, dtype, name)

    def read(batch: Index, head: Index, key: Expr, d: Expr) -> Expr:
        return tirx.if_then_else(key < prefix, shared(*head, key, d), own(*batch, *head, key - prefix, d))

    return Store((Argument(shared, folded(-2)), Argument(own, folded(-2))), read)


CONTIGUOUS = Cache(lambda shape: {}, _contiguous_store)
"""[b, h, j, d], or [h, j, d] without a batch; every sequence has `keys` positions."""

RAGGED = Cache(_lengths, _contiguous_store)
"""The same with lengths[b]: positions from a sequence's length on are not there. Extents: shortest."""

PAGED = Cache(_page_table, _paged_store)
"""Pages [page, slot, h, d] of all sequences: position j of sequence b is slot j mod page of page table[b, j div page].

Extents: page, shortest. The pool holds the pages that the lengths take, and no more.
"""

PREFIXED = Cache(lambda shape: {}, _prefixed_store)
"""The first `prefix` of the `keys` positions are the same for all sequences, [h, j, d]; the others are [b, h, j, d]."""


# Latent attention (MLA): all heads share one cached row of features, of which the first are also the values.


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
