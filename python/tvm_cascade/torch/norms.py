"""Normalisations that TVM's converters take in part."""

from __future__ import annotations

from typing import Any

import numpy as np
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
