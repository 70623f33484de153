"""Attention over keys and values in pages, which a table of each sequence finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from tvm import ir, te, tirx

Read = Callable[..., ir.Expr]
"""(tensor, page, slot, head, feature, 0 of keys or 1 of values) -> an element."""


@dataclass(frozen=True)
class Layout:
    """Of pages: the shape of a tensor of them, and where an element is."""

    shape: Callable[[int, int, int, int], tuple[int, ...]]
    read: Read
    together: bool = False


LAYOUTS = {
    "slots": Layout(lambda p, s, h, d: (p, s, h, d), lambda t, p, s, h, f, kv: t[p, s, h, f]),
    "heads": Layout(lambda p, s, h, d: (p, h, s, d), lambda t, p, s, h, f, kv: t[p, h, s, f]),
    "together": Layout(lambda p, s, h, d: (p, 2, s, h, d), lambda t, p, s, h, f, kv: t[p, kv, s, h, f], True),
    "slots_last": Layout(lambda p, s, h, d: (p, h, d, s), lambda t, p, s, h, f, kv: t[p, h, f, s]),
}

Number = Callable[[te.Tensor, ir.Expr, ir.Expr], ir.Expr]
"""(table, sequence, key) -> the number of the page that the key is in."""


@dataclass(frozen=True)
class Paged:
    """The extents of an attention over pages.

    Attributes
    ----------
    layout : of `LAYOUTS`.
    size : slots of a page.
    flat : the table is one row of numbers, and `starts` says where each sequence's begin.
    causal : the last query stands at the last key of its sequence.
    limited : sequences end at their lengths.
    scaled : keys and values are multiplied by a number of each head, which tensors have.
    stored : the dtype of keys and values, where it is not that of queries.
    spare : pages that no table names.
    indices : the dtype of tables and lengths.
    pages_known : the number of pages is a constant of the program.
    number, slot : how a page's number, and a slot of it, are found, where that is not the usual way.
    """

    layout: str = "slots"
    size: int = 16
    flat: bool = False
    causal: bool = False
    limited: bool = True
    batch: int = 2
    heads: int = 2
    kv_heads: int = 2
    queries: int = 70
    keys: int = 200
    depth: int = 64
    spare: int = 3
    dtype: str = "float16"
    stored: str | None = None
    scaled: bool = False
    indices: str = "int32"
    pages_known: bool = True
    number: Number | None = None
    slot: Number | None = None

    @property
    def table_width(self) -> int:
        """Pages of the longest sequence."""
        return -(-self.keys // self.size)

    @property
    def pages(self) -> int:
        """Pages in memory."""
        return self.batch * self.table_width + self.spare

    def func(self) -> tirx.PrimFunc:
        """q, k and v or both in one, table, starts where it is flat, lengths -> out[b, h, i, d]."""
        layout, at = LAYOUTS[self.layout], (self.batch, self.heads, self.queries)
        pages = self.pages if self.pages_known else te.var("pages")
        shape = layout.shape(pages, self.size, self.kv_heads, self.depth)
        q = te.placeholder((*at, self.depth), self.dtype, "q")
        k = te.placeholder(shape, self.stored or self.dtype, "kv" if layout.together else "k")
        v = k if layout.together else te.placeholder(shape, self.stored or self.dtype, "v")
        total = self.batch * self.table_width
        table = te.placeholder((total,) if self.flat else (self.batch, self.table_width), self.indices, "table")
        starts = te.placeholder((self.batch + 1,), self.indices, "starts")
        lengths = te.placeholder((self.batch,), self.indices, "lengths")
        group, scales = self.heads // self.kv_heads, te.placeholder((2, self.kv_heads), "float32", "scales")

        def element(tensor: te.Tensor, b: ir.Expr, h: ir.Expr, j: ir.Expr, f: ir.Expr, kv: int) -> ir.Expr:
            if self.number is not None:
                page = self.number(table, b, j)
            else:
                page = table[starts[b] + j // self.size] if self.flat else table[b, j // self.size]
            slot = j % self.size if self.slot is None else self.slot(table, b, j)
            value = layout.read(tensor, page, slot, h // group, f, kv).astype("float32")
            return value * scales[kv, h // group] if self.scaled else value

        def kept(b: ir.Expr, i: ir.Expr, j: ir.Expr) -> ir.Expr:
            if not self.limited:
                return j < self.keys
            return j <= lengths[b] - self.queries + i if self.causal else j < lengths[b]

        out = attention_of(
            (*at, self.keys, self.depth),
            lambda b, h, i, j, f: q[b, h, i, f].astype("float32") * element(k, b, h, j, f, 0),
            lambda b, h, i, j: kept(b, i, j),
            lambda b, h, j, f: element(v, b, h, j, f, 1),
            self.dtype,
        )
        caches = [k] if layout.together else [k, v]
        further = [*([starts] if self.flat else []), lengths, *([scales] if self.scaled else [])]
        return te.create_prim_func([q, *caches, table, *further, out])

    def inputs(self, lengths: list[int], tail: int | None = None, seed: int = 0) -> list[np.ndarray]:
        """Arguments; of the table past a sequence's last page `tail`, or where that is None any page."""
        rng, layout = np.random.default_rng(seed), LAYOUTS[self.layout]
        shape = layout.shape(self.pages, self.size, self.kv_heads, self.depth)
        count = 1 if layout.together else 2
        q = rng.standard_normal((self.batch, self.heads, self.queries, self.depth)).astype(
            getattr(ml_dtypes, self.dtype, self.dtype)
        )
        stored = np.dtype(getattr(ml_dtypes, self.stored or self.dtype, self.stored or self.dtype))
        caches = [rng.standard_normal(shape).astype(stored) for _ in range(count)]
        table = rng.integers(0, self.pages - self.spare, (self.batch, self.table_width), self.indices)
        for row, length in zip(table, lengths, strict=True):
            if tail is not None:
                row[-(-length // self.size) :] = tail
        starts = np.arange(self.batch + 1, dtype=self.indices) * self.table_width
        flat = [table.reshape(-1), starts] if self.flat else [table]
        scales = [rng.uniform(0.5, 2.0, (2, self.kv_heads)).astype("float32")] if self.scaled else []
        return [q, *caches, *flat, np.array(lengths, self.indices), *scales]


def _numpy(dtype: str) -> np.dtype[np.generic]:
    return np.dtype(getattr(ml_dtypes, dtype, dtype))


def attention_of(extents: tuple[int, int, int, int, int], term: Read, kept: Read, value: Read, dtype: str) -> te.Tensor:
    """Softmax attention of terms of scores, over the keys that are kept, of values."""
    b, h, i, j, f = extents
    axes, d = [te.reduce_axis((0, j), f"j{n}") for n in range(3)], te.reduce_axis((0, f), "d")
    scores = te.compute((b, h, i, j), lambda *at: te.sum(term(*at, d), axis=d), "scores")
    lowest = tirx.const(-np.inf, "float32")
    logits = te.compute(
        (b, h, i, j), lambda *at: tirx.if_then_else(kept(*at), scores(*at) * (f**-0.5), lowest), "logits"
    )
    top = te.compute((b, h, i), lambda *at: te.max(logits(*at, axes[0]), axis=axes[0]), "top")
    weights = te.compute((b, h, i, j), lambda *at: te.exp(logits(*at) - top(*at[:-1])), "weights")
    total = te.compute((b, h, i), lambda *at: te.sum(weights(*at, axes[1]), axis=axes[1]), "total")
    wide = te.compute(
        (b, h, i, f),
        lambda b, h, i, f: te.sum(weights(b, h, i, axes[2]) * value(b, h, axes[2], f), axis=axes[2]),
        "wide",
    )
    return te.compute((b, h, i, f), lambda *at: (wide(*at) / total(*at[:-1])).astype(dtype), "out")
