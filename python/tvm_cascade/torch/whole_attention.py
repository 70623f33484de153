"""Attention as an operator of `torch.library`, so that graphs with gradients have it whole.

PyTorch makes one of its operators of `scaled_dot_product_attention` before AOTAutograd sees it, by the device and by
sizes and strides; where none of its libraries takes the arguments, as masks that are broadcast along the keys, it makes
two products and a softmax whose weights are kept for the backward graph. Here it is one operator on every device:

    out = softmax(scale · Q·Kᵀ + mask)·V,  lse = log Σ exp(scores) of each row      what the backward operator reads
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

_WHOLE = torch.ops.aten.scaled_dot_product_attention.default
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


@torch.library.custom_op("tvm_cascade::attention", mutates_args=())
def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> tuple[Tensor, Tensor]:
    """As PyTorch computes it, where a graph runs there; lse is 0 in rows that are masked everywhere."""
    out = scaled_dot_product_attention(query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa)
    scores, _ = _scores(query, key, attn_mask, is_causal, scale)
    logsumexp = scores.logsumexp(-1)
    logsumexp = torch.where(logsumexp == -math.inf, 0.0, logsumexp).expand(out.shape[:-1])
    return _laid_out(out.shape, query).copy_(out), logsumexp.contiguous()


def _laid_out(shape: Sequence[int], query: Tensor) -> Tensor:
    """A tensor with its axes in the order in memory that those of the query have."""
    axes = [*range(len(shape))]
    if len(shape) == query.dim():
        axes = [*sorted(axes[:-1], key=query.stride, reverse=True), axes[-1]]
    return torch.empty_permuted(tuple(shape), axes, dtype=query.dtype, device=query.device)


def _scores(
    query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None
) -> tuple[Tensor, float]:
    """Scores in float32 or wider, and what products are multiplied by."""
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query.to(_wide(query)) @ _by_head(key, query).to(_wide(query)).mT * factor
    if is_causal:
        scores = scores.masked_fill(scores.new_ones(scores.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    return scores, factor


def _by_head(shared: Tensor, query: Tensor) -> Tensor:
    """A key or a value for each head of the query, of which several may share one."""
    if query.dim() < 3 or shared.shape[-3] in (1, query.shape[-3]):
        return shared
    return shared.repeat_interleave(query.shape[-3] // shared.shape[-3], -3)


def _summed(adjoint: Tensor, given: Tensor) -> Tensor:
    """The adjoint of an operand that was broadcast, or shared by heads."""
    if adjoint.dim() > 2 and given.dim() > 2 and given.shape[-3] not in (1, adjoint.shape[-3]):
        adjoint = adjoint.unflatten(-3, (given.shape[-3], -1)).sum(-3)
    return adjoint.sum_to_size(given.shape).to(given.dtype).contiguous()


def _wide(value: Tensor) -> torch.dtype:
    return torch.promote_types(value.dtype, torch.float32)


@_attention.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    shared = (*key.shape[:-3], query.shape[-3]) if rest[-1] else key.shape[:-2]
    rows = (*torch.broadcast_shapes(query.shape[:-2], shared), query.shape[-2])
    return _laid_out((*rows, value.shape[-1]), query), query.new_empty(rows, dtype=_wide(query))


@torch.library.custom_op("tvm_cascade::attention_backward", mutates_args=())
def _attention_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    of_mask: bool,
) -> list[Tensor]:
    """Adjoints of query, key and value, and of the mask where `of_mask` says so."""
    scores, factor = _scores(query, key, attn_mask, is_causal, scale)
    weights, adjoint = (scores - logsumexp[..., None]).exp(), grad_out.to(scores.dtype)
    of_weights = adjoint @ _by_head(value, query).to(scores.dtype).mT
    of_scores = weights * (of_weights - (adjoint * out).sum(-1, keepdim=True))
    of_query = of_scores @ _by_head(key, query).to(scores.dtype) * factor
    found = [of_query, of_scores.mT @ query.to(scores.dtype) * factor, weights.mT @ adjoint, of_scores]
    asked = [query, key, value, attn_mask] if of_mask else [query, key, value]
    return [_summed(one, given) for one, given in zip(found, asked, strict=False) if given is not None]


@_attention_backward.register_fake
def _(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, *rest: Any
) -> list[Tensor]:
    asked = (query, key, value, attn_mask) if rest[-1] else (query, key, value)
    return [one.new_empty(one.shape) for one in asked if one is not None]


def _saved(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:4], *output)
    ctx.options = inputs[4:]
    ctx.mark_non_differentiable(output[1])


def _adjoints(ctx: Any, grad_out: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    of_mask = ctx.needs_input_grad[3]
    found = torch.ops.tvm_cascade.attention_backward(grad_out, *ctx.saved_tensors, *ctx.options, of_mask)
    return (*found, *[None] * (7 - len(found)))


_attention.register_autograd(_adjoints, setup_context=_saved)


@contextmanager
def attention_whole() -> Iterator[None]:
    """While this lasts, AOTAutograd takes attention for the operator of this file, unless weights are dropped."""
    before = dict(_WHOLE.py_kernels)
    _WHOLE.py_kernels.pop(_COMPOSITE, None)
    _WHOLE.py_impl(_COMPOSITE)(_as_one_operator)
    try:
        yield
    finally:
        _WHOLE.py_kernels.clear()
        _WHOLE.py_kernels.update(before)
        _WHOLE._dispatch_cache.clear()


def _as_one_operator(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if dropout_p:
        given = (query, key, value, attn_mask, dropout_p, is_causal)
        taken_apart: Tensor = _WHOLE._op_dk(_COMPOSITE, *given, scale=scale, enable_gqa=enable_gqa)
        return taken_apart
    out: Tensor = _attention(query, key, value, attn_mask, is_causal, scale, enable_gqa)[0]
    return out
