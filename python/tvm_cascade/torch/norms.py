"""Normalisations that TVM's converters take in part, or that torch decomposes otherwise on each device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def group_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    batch: int,
    channels: int,
    _: int,
    groups: int,
    eps: float,
) -> tuple[torch.Tensor, ...]:
    """aten.native_group_norm as a layer's normalisation of each group, scaled and moved by channel."""
    grouped = x.reshape(batch, groups, -1)
    y, mean, rstd = torch.native_layer_norm(grouped, grouped.shape[-1:], None, None, eps)
    y, each = y.reshape(x.shape), (1, channels, *(1,) * (x.dim() - 2))
    y = y if weight is None else y * weight.reshape(each)
    y = y if bias is None else y + bias.reshape(each)
    return y, mean.reshape(batch, groups), rstd.reshape(batch, groups)


def rms_norm(
    x: torch.Tensor, normalized_shape: Sequence[int], weight: torch.Tensor | None = None, eps: float | None = None
) -> torch.Tensor:
    """aten.rms_norm by elementwise operators and a mean, in float32 where its input is narrower.

    x·weight/sqrt(mean(x²) + eps), the mean over the last axes, of the shape that is given; eps is by default the
    resolution of the dtype that is computed in.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    y = x.to(wide)
    axes = list(range(-len(normalized_shape), 0))
    y = y * torch.rsqrt((y * y).mean(axes, keepdim=True) + (torch.finfo(wide).eps if eps is None else eps))
    return (y if weight is None else y * weight).to(x.dtype)


def of_float64(decompose: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition for float64 alone, which TVM's own normalisations do not take."""

    def decomposed(x: torch.Tensor, *given: Any, **by_name: Any) -> Any:
        return decompose(x, *given, **by_name) if x.dtype == torch.float64 else NotImplemented

    return decomposed
