"""Normalisations that TVM's converters take in part, or that torch decomposes otherwise on each device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from tvm import relax

from tvm_cascade.torch.site import Site, type_name


def native_group_norm(site: Site) -> relax.Expr:
    """aten.native_group_norm, which may have no weight and no bias; its mean and deviation are for training alone."""
    x = site["input"]
    channels, rank = int(site["C"]), site.node.meta["val"][0].dim()

    def given(name: str, default: float) -> Any:
        return relax.const(np.full(channels, default), type_name(x)) if site[name] is None else site[name]

    axes = list(range(2, rank))
    normed = relax.op.nn.group_norm(x, given("weight", 1.0), given("bias", 0.0), site["group"], 1, axes, site["eps"])
    return (site.emit(normed),)


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
