"""`scaled_dot_product_attention` as one function: scores, mask, softmax and P·V, which fuse as one cascade.

TVM's own converter ignores `scale`, reads out of bounds with `enable_gqa`, takes no boolean mask, and gives NaN where
causal scores are low.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx

from tvm_cascade.errors import ModelError
from tvm_cascade.torch.site import Site, accumulator, broadcast, is_one, shape_of

Scores = Callable[..., Any]


def scaled_dot_product_attention(site: Site) -> relax.Var:
    """softmax(scale · Q·Kᵀ + mask)·V; a row that is masked everywhere is 0, as PyTorch has it."""
    if site["dropout_p"]:
        raise ModelError("dropout_p=0", f"dropout_p={site['dropout_p']}", "attention", "call the module's .eval()")
    query, key, value, mask = (site[name] for name in ("query", "key", "value", "attn_mask"))
    scale, causal = site["scale"], site["is_causal"]
    groups = _group_size(query, key) if site["enable_gqa"] else 1
    arguments = [query, key, value] + ([] if mask is None else [mask])

    def formula(q: te.Tensor, k: te.Tensor, v: te.Tensor, masked: te.Tensor | None = None) -> te.Tensor:
        return _attention(q, k, v, masked, _factor(q, scale), causal, groups)

    return site.compute(formula, *arguments, name="attention")


def _group_size(query: relax.Expr, key: relax.Expr) -> int:
    """Heads of the query that share one of the key and the value."""
    heads = [(shape_of(one) or [])[-3] for one in (query, key)]
    return int(heads[0]) // int(heads[1])


def _factor(q: te.Tensor, scale: float | None) -> Any:
    """What scores are multiplied by: by default 1 over the square root of the number of features."""
    wide, depth = accumulator(str(q.dtype)), q.shape[-1]
    if scale is None and not isinstance(depth, (int, tirx.IntImm)):
        return tirx.const(1.0, wide) / tirx.sqrt(depth.astype(wide))
    return tirx.const(1.0 / math.sqrt(int(depth)) if scale is None else float(scale), wide)


def _attention(
    q: te.Tensor, k: te.Tensor, v: te.Tensor, mask: te.Tensor | None, factor: Any, causal: bool, groups: int
) -> te.Tensor:
    dtype, wide = str(q.dtype), accumulator(str(q.dtype))
    depth, length = q.shape[-1], k.shape[-2]
    rows = [*_batch(q, k, v, groups), q.shape[-2]]
    zero, lowest = tirx.const(0.0, wide), tirx.const(float("-inf"), wide)

    def shared(x: te.Tensor, index: tuple[Any, ...], *last: Any) -> Any:
        """The element of a key or a value for the rows of a batch index."""
        head = (index[-1] // groups,) if groups > 1 else index[-1:]
        return broadcast(x, (*index[:-1], *head, *last)).astype(wide)

    inner = te.reduce_axis((0, depth), "d")

    def product(*i: Any) -> Any:
        return te.sum(broadcast(q, (*i[:-1], inner)).astype(wide) * shared(k, i[:-2], i[-1], inner), axis=inner)

    products = te.compute((*rows, length), product, name="products")

    def score(*i: Any) -> Any:
        scaled = products(*i) * factor
        if causal:
            scaled = tirx.if_then_else(i[-1] <= i[-2], scaled, lowest)
        if mask is None:
            return scaled
        if str(mask.dtype) == "bool":
            return tirx.if_then_else(broadcast(mask, i), scaled, lowest)
        return scaled + broadcast(mask, i).astype(wide)

    scores = te.compute(products.shape, score, name="scores")
    weights = _softmax(scores, rows, length, dtype, zero if mask is not None else None)
    last = te.reduce_axis((0, length), "j")

    def weighted(*i: Any) -> Any:
        return te.sum(weights(*i[:-1], last).astype(wide) * shared(v, i[:-2], last, i[-1]), axis=last)

    summed = te.compute((*rows, v.shape[-1]), weighted, name="attended")
    return summed if dtype == wide else te.compute(summed.shape, lambda *i: summed(*i).astype(dtype), name="rounded")


def _softmax(scores: te.Tensor, rows: list[Any], length: Any, dtype: str, empty: Any | None) -> te.Tensor:
    """Softmax along the last axis; `empty` is the weight in rows where every score is −inf, NaN where it is None."""
    top, total = te.reduce_axis((0, length), "t"), te.reduce_axis((0, length), "s")
    highest = te.compute(rows, lambda *i: te.max(scores(*i, top), axis=top), name="highest")
    powers = te.compute(scores.shape, lambda *i: te.exp(scores(*i) - highest(*i[:-1])), name="powers")
    sums = te.compute(rows, lambda *i: te.sum(powers(*i, total), axis=total), name="sums")

    def weight(*i: Any) -> Any:
        share = powers(*i) / sums(*i[:-1])
        # The highest score has the power 1, so that a sum of 0 means that there was none.
        kept = share if empty is None else tirx.if_then_else(sums(*i[:-1]) == empty, empty, share)
        return kept.astype(dtype)

    return te.compute(scores.shape, weight, name="weights")


def _batch(q: te.Tensor, k: te.Tensor, v: te.Tensor, groups: int) -> list[Any]:
    """The batch dimensions of the result: those of the query, those of the others where it has extent 1."""
    shapes = [list(x.shape[:-2]) for x in (q, k, v)]
    if groups > 1:
        return shapes[0]
    rank = max(map(len, shapes))
    padded = [[1] * (rank - len(shape)) + shape for shape in shapes]
    return [next((e for e in extents if not is_one(e)), extents[0]) for extents in zip(*padded, strict=True)]
