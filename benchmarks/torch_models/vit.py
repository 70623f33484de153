"""ViT: patches of an image by a convolution, a class token, layers as GPT-2's without a mask."""

from __future__ import annotations

import math

import torch
from torch import nn

from benchmarks.torch_models.parts import FeedForward, SelfAttention
from benchmarks.torch_models.sizes import Sizes

PATCH = 4


class Block(nn.Module):
    """One layer."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(sizes.width) for _ in range(2))
        self.attention, self.feed = SelfAttention(sizes), FeedForward(sizes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The next hidden state."""
        x = x + self.attention(self.norms[0](x))
        return x + self.feed(self.norms[1](x))


class ViT(nn.Module):
    """Images in, logits of ten classes out."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, sizes.width, PATCH, PATCH)
        self.token = nn.Parameter(torch.randn(1, 1, sizes.width))
        self.positions = nn.Parameter(torch.randn(sizes.length + 1, sizes.width))
        self.blocks = nn.Sequential(*(Block(sizes) for _ in range(sizes.layers)))
        self.norm, self.head = nn.LayerNorm(sizes.width), nn.Linear(sizes.width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits of each image."""
        x = self.patches(images).flatten(2).mT
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


def build(sizes: Sizes) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model and its inputs."""
    side = PATCH * math.isqrt(sizes.length)
    return ViT(sizes), (torch.randn(sizes.batch, 3, side, side),)
