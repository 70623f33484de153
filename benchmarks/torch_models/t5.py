"""T5's encoder: scores with a learned bias by the distance of positions, no scale, RMS norms."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.torch_models.parts import join_heads, split_heads, tokens
from benchmarks.torch_models.sizes import Sizes

BUCKETS, FARTHEST = 8, 16


def buckets(length: int, device: torch.device) -> torch.Tensor:
    """The bucket of the distance of each two positions: near ones one each, far ones by their logarithm."""
    at = torch.arange(length, device=device)
    distance = at[None, :] - at[:, None]
    half = BUCKETS // 2
    near = half // 2
    away = distance.abs()
    scaled = torch.log(away.clamp(min=1) / near) / math.log(FARTHEST / near) * (half - near)
    far = (near + scaled.long()).clamp(max=half - 1)
    return half * (distance > 0).long() + torch.where(away < near, away, far)


class Block(nn.Module):
    """One layer."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.norms = nn.ModuleList(nn.RMSNorm(sizes.width, eps=1e-6) for _ in range(2))
        self.inward = nn.Linear(sizes.width, 3 * sizes.width, bias=False)
        self.outward = nn.Linear(sizes.width, sizes.width, bias=False)
        self.up = nn.Linear(sizes.width, 4 * sizes.width, bias=False)
        self.down = nn.Linear(4 * sizes.width, sizes.width, bias=False)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """The next hidden state."""
        q, k, v = (split_heads(one, self.heads) for one in self.inward(self.norms[0](x)).chunk(3, -1))
        x = x + self.outward(join_heads(F.scaled_dot_product_attention(q, k, v, bias, scale=1.0)))
        return x + self.down(torch.relu(self.up(self.norms[1](x))))


class T5Encoder(nn.Module):
    """Tokens in, hidden states out."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        self.bias = nn.Embedding(BUCKETS, sizes.heads)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm = nn.RMSNorm(sizes.width, eps=1e-6)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Hidden states of each position."""
        x = self.embedding(ids)
        bias = self.bias(buckets(ids.shape[1], ids.device)).permute(2, 0, 1)[None]
        for block in self.blocks:
            x = block(x, bias)
        return self.norm(x)


def build(sizes: Sizes) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model and its inputs."""
    return T5Encoder(sizes), (tokens(sizes),)
