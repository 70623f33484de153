"""Attention over packed tokens: those of several sequences follow one another, and each row has keys of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tvm import te, tirx

from .paged_programs import attention_of


@dataclass(frozen=True)
class Packed:
    """The extents of an attention of packed queries over packed keys, in a range [starts[i], ends[i]) for query i."""

    queries: int
    keys: int
    heads: int = 2
    kv_heads: int = 1
    depth: int = 64
    dtype: str = "float16"

    def func(self) -> tirx.PrimFunc:
        """q[i, h, d], k[j, h, d], v[j, h, d], starts[i], ends[i] -> out[0, h, i, d]."""
        group = self.heads // self.kv_heads
        q = te.placeholder((self.queries, self.heads, self.depth), self.dtype, "q")
        k, v = (te.placeholder((self.keys, self.kv_heads, self.depth), self.dtype, name) for name in "kv")
        starts, ends = (te.placeholder((self.queries,), "int32", name) for name in ("starts", "ends"))
        out = attention_of(
            (1, self.heads, self.queries, self.keys, self.depth),
            lambda b, h, i, j, f: q[i, h, f].astype("float32") * k[j, h // group, f].astype("float32"),
            lambda b, h, i, j: tirx.all(j >= starts[i], j < ends[i]),
            lambda b, h, j, f: v[j, h // group, f].astype("float32"),
            self.dtype,
        )
        return te.create_prim_func([q, k, v, starts, ends, out])

    def inputs(self, bounds: tuple[np.ndarray, np.ndarray], seed: int = 0) -> list[np.ndarray]:
        """Arguments, with the ranges of keys."""
        rng = np.random.default_rng(seed)
        shapes = ((self.queries, self.heads), (self.keys, self.kv_heads), (self.keys, self.kv_heads))
        return [*(rng.standard_normal((*s, self.depth)).astype(self.dtype) for s in shapes), *bounds]


def bounds_of(queries: Sequence[int], keys: Sequence[int], causal: bool) -> tuple[np.ndarray, np.ndarray]:
    """The ranges of keys of packed queries, of sequences with so many queries and keys each.

    Parameters
    ----------
    causal : the last query of a sequence stands at its last key.
    """
    starts, ends, first = [], [], 0
    for own, length in zip(queries, keys, strict=True):
        starts += [first] * own
        ends += [first + (length - own + i + 1 if causal else length) for i in range(own)]
        first += length
    return np.array(starts, "int32"), np.array(ends, "int32")


@dataclass(frozen=True)
class Documents:
    """The extents of an attention of tokens over those of their own document, by its number."""

    tokens: int
    heads: int = 1
    depth: int = 64
    dtype: str = "float16"
    number: str = "int32"

    def func(self) -> tirx.PrimFunc:
        """q[i, h, d], k[j, h, d], v[j, h, d], doc[i] -> out[0, h, i, d]."""
        q, k, v = (te.placeholder((self.tokens, self.heads, self.depth), self.dtype, name) for name in "qkv")
        doc = te.placeholder((self.tokens,), self.number, "doc")
        out = attention_of(
            (1, self.heads, self.tokens, self.tokens, self.depth),
            lambda b, h, i, j, f: q[i, h, f].astype("float32") * k[j, h, f].astype("float32"),
            lambda b, h, i, j: doc[i] == doc[j],
            lambda b, h, j, f: v[j, h, f].astype("float32"),
            self.dtype,
        )
        return te.create_prim_func([q, k, v, doc, out])
