"""Products of matrices, kept whole: halves are summed in float32 and rounded once, as PyTorch does.

TVM's own converters leave float32 where PyTorch gives a half, so that the next operator fails or the model's outputs
change their dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, te, tirx

from tvm_cascade.errors import ModelError
from tvm_cascade.torch.precision import operands_in_float32, rounded
from tvm_cascade.torch.site import Site, accumulator, broadcast, is_one, of_each_axis, shape_of, type_name


def matmul(site: Site) -> relax.Var:
    """aten.matmul, with its broadcasting and its vectors."""
    return site.cast(_product(site, site["self"], site["other"]), site.dtype)


def mm(site: Site) -> relax.Var:
    """aten.mm and aten.bmm."""
    return site.cast(_product(site, site["self"], site["mat2"]), site.dtype)


def mv(site: Site) -> relax.Var:
    return site.cast(_product(site, site["self"], site["vec"]), site.dtype)


def addmm(site: Site) -> relax.Var:
    """beta · input + alpha · mat1 · mat2."""
    return _added(site, _product(site, site["mat1"], site["mat2"]))


def baddbmm(site: Site) -> relax.Var:
    """beta · input + alpha · batch1 · batch2."""
    return _added(site, _product(site, site["batch1"], site["batch2"]))


def linear(site: Site) -> relax.Var:
    """x·Wᵀ + b, which reads the weight as it is stored."""
    x, weight, bias = site["input"], site["weight"], site["bias"]
    wide = accumulator(type_name(x))

    def formula(a: te.Tensor, w: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, w.shape[1]), "k")
        shape = (*a.shape[:-1], w.shape[0])
        return te.compute(
            shape, lambda *i: te.sum(a(*i[:-1], k).astype(wide) * w(i[-1], k).astype(wide), axis=k), name="linear"
        )

    summed = site.compute(formula, x, weight, name="linear")
    if bias is not None:
        summed = site.emit(relax.op.add(summed, site.cast(bias, wide)))
    return site.cast(summed, site.dtype)


def convolution(site: Site) -> relax.Var:
    """aten.convolution along one to three axes: of one position a product; transposed ones are TVM's own."""
    if site["transposed"]:
        with operands_in_float32(site):
            return rounded(site, site.importer.create_convert_map()["convolution.default"](site.node))
    x, weight, bias = site["input"], site["weight"], site["bias"]
    wide, axes = accumulator(type_name(x)), weight.ty.ndim - 2
    strides, padding, dilation = (of_each_axis(site[name], axes) for name in ("stride", "padding", "dilation"))
    convolve = (relax.op.nn.conv1d, relax.op.nn.conv2d, relax.op.nn.conv3d)[axes - 1]
    window, positions = shape_of(weight), shape_of(x)
    if window and positions and all(map(is_one, (*window[2:], *strides, site["groups"]))) and not any(padding):
        summed = _of_one_position(site, x, positions, weight, window)
    else:
        summed = site.emit(convolve(x, weight, strides, padding, dilation, site["groups"], out_dtype=wide))
    if bias is not None:
        channels = site.emit(relax.op.reshape(site.cast(bias, wide), (1, -1, *[1] * axes)))
        summed = site.emit(relax.op.add(summed, channels))
    return site.cast(summed, site.dtype)


def _of_one_position(
    site: Site, x: relax.Expr, positions: Sequence[Any], weight: relax.Expr, window: Sequence[Any]
) -> relax.Var:
    """W·x over positions in a row, from the shapes of x and W."""
    (batch, channels, *along), made = positions, window[0]
    matrix = site.emit(relax.op.reshape(weight, (made, channels)))
    rows = site.emit(relax.op.reshape(x, (batch, channels, math.prod(along))))
    return site.emit(relax.op.reshape(_product(site, matrix, rows), (batch, made, *along)))


def _product(site: Site, left: relax.Expr, right: relax.Expr) -> relax.Var:
    return site.emit(relax.op.matmul(left, right, out_dtype=accumulator(type_name(left))))


def _added(site: Site, product: relax.Var) -> relax.Var:
    wide, alpha, beta = type_name(product), site["alpha"], site["beta"]
    if alpha != 1:
        product = site.emit(relax.op.multiply(product, relax.const(alpha, wide)))
    if beta != 0:
        added = site.cast(site["self"], wide)
        if beta != 1:
            added = site.emit(relax.op.multiply(added, relax.const(beta, wide)))
        product = site.emit(relax.op.add(product, added))
    return site.cast(product, site.dtype)


# `scaled_dot_product_attention` as one function.


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
