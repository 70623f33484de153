"""The operations of random programs with products: in TE, and as torch's users call them.

An operation on values works in float32 in TE. In torch it keeps the dtype of its arguments, as eager programs do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.ir import Expr

_EPSILON = 1e-5
_CAP = 20.0


@dataclass(frozen=True)
class Map:
    """An operation on elements.

    Attributes
    ----------
    program : from elements to an element, in TE.
    torch : from the module and tensors, broadcast against each other, to a tensor.
    """

    program: Callable[..., Expr]
    torch: Callable[..., Any]


def number(value: float) -> Expr:
    """A constant in float32."""
    return tirx.const(value, "float32")


def _gelu(x: Expr) -> Expr:
    inner = number(math.sqrt(2 / math.pi)) * (x + number(0.044715) * x * x * x)
    return number(0.5) * x * (number(1.0) + te.tanh(inner))


MAPS: Mapping[str, Map] = {
    "relu": Map(lambda x: te.max(x, number(0.0)), lambda torch, x: torch.relu(x)),
    "silu": Map(lambda x: x / (number(1.0) + te.exp(-x)), lambda torch, x: torch.nn.functional.silu(x)),
    "gelu": Map(_gelu, lambda torch, x: torch.nn.functional.gelu(x, approximate="tanh")),
    "tanh": Map(lambda x: te.tanh(x), lambda torch, x: torch.tanh(x)),
    "soft_cap": Map(lambda x: number(_CAP) * te.tanh(x / number(_CAP)), lambda torch, x: _CAP * torch.tanh(x / _CAP)),
    "halved": Map(lambda x: x * number(0.5), lambda torch, x: x * 0.5),
    "squared": Map(lambda x: x * x, lambda torch, x: x * x),
    "absolute": Map(lambda x: te.abs(x), lambda torch, x: x.abs()),
    "add": Map(lambda x, y: x + y, lambda torch, x, y: x + y),
    "multiply": Map(lambda x, y: x * y, lambda torch, x, y: x * y),
}


@dataclass(frozen=True)
class Fold:
    """An operation along an axis.

    Attributes
    ----------
    keeps : whether the axis stays.
    torch : from the module, a tensor and the number of its dimension.
    """

    keeps: bool
    torch: Callable[[Any, Any, int], Any]


def _rms(torch: Any, x: Any, dim: int) -> Any:
    return x * torch.rsqrt((x * x).mean(dim, keepdim=True) + _EPSILON)


def _standardised(torch: Any, x: Any, dim: int) -> Any:
    if dim == x.ndim - 1:
        return torch.nn.functional.layer_norm(x, x.shape[-1:], eps=_EPSILON)
    return (x - x.mean(dim, keepdim=True)) * torch.rsqrt(x.var(dim, unbiased=False, keepdim=True) + _EPSILON)


FOLDS: Mapping[str, Fold] = {
    "sum": Fold(False, lambda torch, x, dim: x.sum(dim)),
    "max": Fold(False, lambda torch, x, dim: x.amax(dim)),
    "absmax": Fold(False, lambda torch, x, dim: x.abs().amax(dim)),
    "logsumexp": Fold(False, lambda torch, x, dim: x.logsumexp(dim)),
    "softmax": Fold(True, lambda torch, x, dim: x.softmax(dim)),
    "rms_norm": Fold(True, _rms),
    "layer_norm": Fold(True, _standardised),
    "top4": Fold(False, lambda torch, x, dim: x.topk(4, dim).values),
}
RANKS = 4
"""Of `top4`, whose result has an axis of its own, the last."""

EPSILON = _EPSILON
