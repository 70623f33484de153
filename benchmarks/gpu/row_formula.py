"""Row reductions and their gradients as torch's users write them: eager programs, and in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from corpus.programs import gradients, moments, normalisation, softmax
from corpus.programs.normalisation import EPSILON
from corpus.programs.program import Builder

Formula = Callable[..., Any]


def _inertia(_torch: Any, mass: Any, position: Any) -> Any:
    centre = (mass[..., None] * position).sum(1) / mass.sum(1)[:, None]
    return (mass * ((position - centre[:, None]) ** 2).sum(-1)).sum(1)


def _softmax_gradient(torch: Any, x: Any, d_out: Any) -> Any:
    p, gradient = _wide(torch, x).softmax(-1), _wide(torch, d_out)
    return (p * (gradient - (p * gradient).sum(-1, keepdim=True))).to(x.dtype)


def _cross_entropy_gradient(torch: Any, logits: Any, target: Any, d_loss: Any) -> Any:
    hit = torch.arange(logits.shape[1], device=logits.device) == target[:, None]
    p = _wide(torch, logits).softmax(-1)
    return (_wide(torch, d_loss)[:, None] * (p - hit.to(p.dtype))).to(logits.dtype)


def _layer_norm_gradient(torch: Any, x: Any, gain: Any, d_out: Any) -> Any:
    offset = _wide(torch, x) - _wide(torch, x).mean(-1, keepdim=True)
    inverse_std = torch.rsqrt((offset * offset).mean(-1, keepdim=True) + EPSILON)
    normal, scaled = offset * inverse_std, _wide(torch, gain) * _wide(torch, d_out)
    centred = scaled - scaled.mean(-1, keepdim=True)
    return ((centred - normal * (scaled * normal).mean(-1, keepdim=True)) * inverse_std).to(x.dtype)


def _wide(torch: Any, x: Any) -> Any:
    """In single precision at least, as sums of half-width floats are taken."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


FORMULAS: Mapping[Builder, Formula] = {
    moments.variance: lambda _torch, x: x.var(dim=1, unbiased=False),
    moments.inertia: _inertia,
    softmax.softmax: lambda _torch, x: x.softmax(-1),
    softmax.cross_entropy: lambda torch, x, target: torch.nn.functional.cross_entropy(x, target, reduction="none"),
    normalisation.rms_norm: lambda torch, x, gain: torch.nn.functional.rms_norm(x, x.shape[1:], gain, EPSILON),
    normalisation.layer_norm: lambda torch, x, gain, bias: torch.nn.functional.layer_norm(
        x, x.shape[1:], gain, bias, EPSILON
    ),
    gradients.softmax_gradient: _softmax_gradient,
    gradients.cross_entropy_gradient: _cross_entropy_gradient,
    gradients.layer_norm_gradient: _layer_norm_gradient,
}
"""What a user of torch writes, by the builder of the workload's program."""

OF_ALL_ROWS = ("gain", "bias")
"""Arguments that have an element for every position, and the same ones for all rows."""
