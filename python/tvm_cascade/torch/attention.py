"""Attention as one function, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, te, tirx

from tvm_cascade.analysis.tir import substitute
from tvm_cascade.errors import ModelError
from tvm_cascade.reverse.gradient import gradient
from tvm_cascade.torch.site import Site, accumulator, broadcast, is_one, names_of, shape_of, type_name


def scaled_dot_product_attention(site: Site) -> relax.Var:
    """softmax(scale · Q·Kᵀ + mask)·V; a row that is masked everywhere is 0, as PyTorch has it."""
    return site.compute(lambda *given: attention_of(site, given).result, *_operands(site), name="attention")


def whole_attention(site: Site) -> tuple[relax.Expr, ...]:
    """tvm_cascade::attention: the result, and lse = log Σ exp(scores) of each row, 0 in rows masked everywhere."""
    both = site.compute(lambda *given: with_log_sums(site, given), *_operands(site), name="attention")
    return tuple(site.emit(relax.TupleGetItem(both, k)) for k in range(2))


def with_log_sums(site: Site | Mapping[str, Any], given: Sequence[te.Tensor]) -> list[te.Tensor]:
    """The result, and the logarithm of each row's sum, 0 in rows masked everywhere; see `attention_of`."""
    found = attention_of(site, given)

    def logarithm(*i: Any) -> Any:
        total = found.sums(*i)
        return tirx.Select(total == 0.0, tirx.const(0.0, str(total.ty.dtype)), found.logarithm(*i))

    return [found.result, te.compute(found.sums.shape, logarithm, name=LOG_SUMS)]


def whole_attention_backward(site: Site) -> tuple[relax.Expr, ...]:
    """tvm_cascade::attention_backward: adjoints of query, key and value, and of the mask where that is asked for.

    The gradient of the forward function reads its result and the logarithm of each row's sum, which is lse.
    """
    operands = dict(zip(_NAMES, _operands(site), strict=False))

    def forward(given: Sequence[te.Tensor], _: Sequence[Any]) -> list[te.Tensor]:
        return [attention_of(site, given, guarded=False).result]

    asked, known = _NAMES[: len(site.node.meta["val"])], {LOG_SUMS: site["logsumexp"]}
    return tuple(adjoints(site, forward, (operands, []), asked, known, [(site["out"], site["grad_out"])]))


_NAMES = ("query", "key", "value", "mask")
LOG_SUMS = "log_sums"
"""What a gradient of attention reads: the logarithm of Σ exp(score) of each row."""


def adjoints(
    site: Site,
    forward: Callable[[Sequence[te.Tensor], Sequence[Any]], list[te.Tensor]],
    given: tuple[Mapping[str, relax.Expr], Sequence[Any]],
    asked: Sequence[str],
    known: Mapping[str, relax.Expr],
    results: Sequence[tuple[relax.Expr | None, relax.Expr]],
) -> list[relax.Expr]:
    """Adjoints of operands of a formula, by the gradient of the program that it is.

    Parameters
    ----------
    forward : from tensors like the operands, and from sizes, to the results.
    given : operands, and sizes.
    asked : names of the operands whose adjoints are asked for.
    known : by name, what the gradient may read of the forward program.
    results : by result, its value, if that is at hand, and its adjoint.
    """
    operands, sizes = given
    symbols: dict[Any, tirx.Var] = {}

    def extent(value: Any) -> Any:
        known = isinstance(value, (int, tirx.IntImm))
        return tirx.const(int(value), "int64") if known else symbols.setdefault(value, tirx.Var(value.name, "int64"))

    tensors = [
        te.placeholder([extent(one) for one in shape_of(value) or ()], type_name(value), name=name)
        for name, value in operands.items()
    ]
    outputs = forward(tensors, [substitute(one, symbols) for one in sizes])
    backward = gradient(te.create_prim_func([*tensors, *outputs]), wrt=asked).backward
    values = {**operands, **known}
    for output, (result, adjoint) in zip(outputs, results, strict=True):
        values |= {output.op.name: result, f"d_{output.op.name}": adjoint}
    function = site.importer.block_builder.add_func(backward.without_attr("global_symbol"), "attention_backward")
    read = [values.get(one.name, one) for one in backward.params[: -len(asked)]]
    both = site.emit(relax.call_tir(function, read, [operands[name].ty for name in asked]))
    if len(asked) == 1:
        return [both]
    return [site.emit(relax.TupleGetItem(both, k)) for k in range(len(asked))]


@dataclass(frozen=True)
class Attention:
    """The tensors of an attention.

    Attributes
    ----------
    result : softmax(scores)·V, in the dtype of the query.
    highest, sums : per row, the highest score and Σ exp(score − highest).
    """

    result: te.Tensor
    highest: te.Tensor
    sums: te.Tensor

    def logarithm(self, *i: Any) -> Any:
        """log Σ exp(score) of a row, of which some score is not −∞."""
        return self.highest(*i) + tirx.log(self.sums(*i))


def _operands(site: Site) -> list[relax.Expr]:
    """Query, key and value, and a mask where there is one.

    Raises
    ------
    ModelError
        Where weights are dropped.
    """
    if "dropout_p" in names_of(site) and site["dropout_p"]:
        raise ModelError("dropout_p=0", f"dropout_p={site['dropout_p']}", "attention", "call the module's .eval()")
    mask = site["attn_mask"]
    return [site[name] for name in _NAMES[:3]] + ([] if mask is None else [mask])


def attention_of(site: Site | Mapping[str, Any], given: Sequence[te.Tensor], guarded: bool = True) -> Attention:
    """The attention of an operator.

    Parameters
    ----------
    site : its options `scale`, `is_causal` and `enable_gqa`.
    given : query, key, value, and a mask where there is one.
    guarded : rows that are masked everywhere are 0; otherwise NaN.
    """
    q, k, v, mask = given if len(given) == len(_NAMES) else (*given, None)
    factor, wide = scaling(q, site["scale"]), accumulator(str(q.dtype))
    lowest = tirx.const(float("-inf"), wide)

    def score(product: Any, i: tuple[Any, ...]) -> Any:
        scaled = product * factor
        if site["is_causal"]:
            scaled = tirx.if_then_else(i[-1] <= i[-2], scaled, lowest)
        if mask is None:
            return scaled
        if str(mask.dtype) == "bool":
            return tirx.if_then_else(broadcast(mask, i), scaled, lowest)
        return scaled + broadcast(mask, i).astype(wide)

    return attention(q, k, v, score, group_size(q, k) if site["enable_gqa"] else 1, guarded and mask is not None)


def group_size(query: te.Tensor, key: te.Tensor) -> int:
    """Heads of the query that share one of the key and the value."""
    heads = [one.shape[-3] if len(one.shape) > 2 else 1 for one in (query, key)]
    known = all(isinstance(one, (int, tirx.IntImm)) for one in heads)
    return max(int(heads[0]) // int(heads[1]), 1) if known else 1


def scaling(q: te.Tensor, scale: float | None) -> Any:
    """What scores are multiplied by: by default 1 over the square root of the number of features."""
    wide, depth = accumulator(str(q.dtype)), q.shape[-1]
    if scale is None and not isinstance(depth, (int, tirx.IntImm)):
        return tirx.const(1.0, wide) / tirx.sqrt(depth.astype(wide))
    return tirx.const(1.0 / math.sqrt(int(depth)) if scale is None else float(scale), wide)


def attention(
    q: te.Tensor,
    k: te.Tensor,
    v: te.Tensor,
    score: Callable[[Any, tuple[Any, ...]], Any],
    groups: int,
    guarded: bool,
) -> Attention:
    """softmax(scores)·V.

    Parameters
    ----------
    score : of a product of a query with a key, and its batch, head, query and key.
    guarded : rows whose scores are all −∞ are 0; otherwise NaN.
    """
    dtype, wide = str(q.dtype), accumulator(str(q.dtype))
    depth, length = q.shape[-1], k.shape[-2]
    batch = _batch(q, k, v, groups)
    rows, of_batch = [*batch, q.shape[-2]], [*batch, None, None]

    def shared(x: te.Tensor, index: tuple[Any, ...], *last: Any) -> Any:
        """The element of a key or a value for the rows of a batch index."""
        head = (index[-1] // groups,) if groups > 1 else index[-1:]
        return broadcast(x, (*index[:-1], *head, *last), of_batch).astype(wide)

    inner = te.reduce_axis((0, depth), "d")

    def product(*i: Any) -> Any:
        query = broadcast(q, (*i[:-1], inner), of_batch).astype(wide)
        return te.sum(query * shared(k, i[:-2], i[-1], inner), axis=inner)

    products = te.compute((*rows, length), product, name="products")
    scores = te.compute(products.shape, lambda *i: score(products(*i), i), name="scores")
    highest, sums, weights = _softmax(scores, rows, length, dtype, tirx.const(0.0, wide) if guarded else None)
    last = te.reduce_axis((0, length), "j")

    def weighted(*i: Any) -> Any:
        return te.sum(weights(*i[:-1], last).astype(wide) * shared(v, i[:-2], last, i[-1]), axis=last)

    summed = te.compute((*rows, v.shape[-1]), weighted, name="attended")
    rounded = te.compute(summed.shape, lambda *i: summed(*i).astype(dtype), name="rounded")
    return Attention(summed if dtype == wide else rounded, highest, sums)


def _softmax(
    scores: te.Tensor, rows: list[Any], length: Any, dtype: str, empty: Any | None
) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """Extrema, sums and weights of the softmax along the last axis.

    Parameters
    ----------
    empty : the weight in rows where every score is −inf; NaN where it is None.
    """
    top, total = te.reduce_axis((0, length), "t"), te.reduce_axis((0, length), "s")
    highest = te.compute(rows, lambda *i: te.max(scores(*i, top), axis=top), name="highest")
    powers = te.compute(scores.shape, lambda *i: te.exp(scores(*i) - highest(*i[:-1])), name="powers")
    sums = te.compute(rows, lambda *i: te.sum(powers(*i, total), axis=total), name="sums")

    def weight(*i: Any) -> Any:
        share = powers(*i) / sums(*i[:-1])
        # The highest score has the power 1, so that a sum of 0 means that there was none.
        kept = share if empty is None else tirx.if_then_else(sums(*i[:-1]) == empty, empty, share)
        return kept.astype(dtype)

    return highest, sums, te.compute(scores.shape, weight, name="weights")


def _batch(q: te.Tensor, k: te.Tensor, v: te.Tensor, groups: int) -> list[Any]:
    """The batch dimensions of the result: those of the query, those of the others where it has extent 1."""
    shapes = [list(x.shape[:-2]) for x in (q, k, v)]
    if groups > 1:
        return shapes[0]
    rank = max(map(len, shapes))
    padded = [[1] * (rank - len(shape)) + shape for shape in shapes]
    return [next((e for e in extents if not is_one(e)), extents[0]) for extents in zip(*padded, strict=True)]
