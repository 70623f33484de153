"""The workloads in PyTorch, by its fused operators where it has one; PyTorch is in the extra `bench`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
Formula = Callable[[Any, Sequence[Any]], Callable[[], Any]]
"""Takes the torch module and the inputs as tensors; gives a call that computes the result anew."""


def attention(torch: Any, inputs: Sequence[Any]) -> Callable[[], Any]:
    """`scaled_dot_product_attention`, whose CPU kernel is a FlashAttention, on [batch, head, position, feature]."""
    q, k, v = (x if x.ndim == 4 else x[None] for x in inputs)
    grouped = q.shape[-3] != k.shape[-3]
    kernel = torch.nn.functional.scaled_dot_product_attention
    return lambda: kernel(q, k, v, enable_gqa=grouped).reshape(inputs[0].shape)


def variance(torch: Any, inputs: Sequence[Any]) -> Callable[[], Any]:
    """`torch.var` over the last axis, as population variance."""
    (x,) = inputs
    return lambda: torch.var(x, dim=-1, correction=0)


def inertia(torch: Any, inputs: Sequence[Any]) -> Callable[[], Any]:
    """Two batched matrix products around the centred squares: torch has no operator of its own."""
    mass, position = inputs
    weights = mass[:, None, :]

    def call() -> Any:
        centre = torch.bmm(weights, position) / mass.sum(1)[:, None, None]
        return torch.bmm(weights, (position - centre).square_()).sum((1, 2))

    return call


def logsumexp(torch: Any, inputs: Sequence[Any]) -> Callable[[], Any]:
    """`torch.logsumexp` over the last axis."""
    (x,) = inputs
    return lambda: torch.logsumexp(x, dim=-1)


FORMULAS: Mapping[str, Formula] = {
    "attention": attention,
    "variance": variance,
    "inertia": inertia,
    "logsumexp": logsumexp,
}


def prepare(formula: str, arrays: Sequence[Array]) -> Callable[[], Any]:
    """A call that computes the formula on the arrays, which it shares, and gives a torch tensor.

    Raises
    ------
    ImportError
        When torch is not installed.
    """
    import torch

    return FORMULAS[formula](torch, [torch.from_numpy(array) for array in arrays])
