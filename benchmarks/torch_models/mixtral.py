"""Mixtral: Llama's layers with experts, of which a router's softmax and top-2 choose."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.torch_models.llama import Block, Decoder
from benchmarks.torch_models.parts import tokens
from benchmarks.torch_models.sizes import Sizes

EXPERTS, CHOSEN = 4, 2


class Experts(nn.Module):
    """Each token's two experts, weighted; all are computed, which a graph without control flow has to."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        wide = 2 * sizes.width
        self.router = nn.Linear(sizes.width, EXPERTS, bias=False)
        self.inward = nn.Parameter(torch.randn(EXPERTS, sizes.width, 2 * wide) / sizes.width**0.5)
        self.outward = nn.Parameter(torch.randn(EXPERTS, wide, sizes.width) / wide**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The weighted sum of the chosen experts' results."""
        rows = x.flatten(0, 1)
        weights, chosen = self.router(rows).softmax(-1).topk(CHOSEN, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        shares = torch.zeros(rows.shape[0], EXPERTS, dtype=x.dtype, device=x.device).scatter(1, chosen, weights)
        gate, up = (rows @ self.inward).chunk(2, -1)
        results = (F.silu(gate) * up) @ self.outward
        return (shares.T[:, :, None] * results).sum(0).unflatten(0, x.shape[:2])


def build(sizes: Sizes) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model and its inputs."""
    return Decoder(sizes, [Block(sizes, Experts(sizes)) for _ in range(sizes.layers)]), (tokens(sizes),)
