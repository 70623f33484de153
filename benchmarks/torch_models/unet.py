"""The attention block of a diffusion UNet: a group norm, attention to the image and to a text, GEGLU."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.torch_models.parts import SelfAttention, join_heads, split_heads
from benchmarks.torch_models.sizes import Sizes

TEXT = 7


class CrossAttention(nn.Module):
    """Attention of the image to the text."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.query, self.key, self.value = (nn.Linear(sizes.width, sizes.width, bias=False) for _ in range(3))
        self.outward = nn.Linear(sizes.width, sizes.width)

    def forward(self, x: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """Attended features."""
        parts = self.query(x), self.key(text), self.value(text)
        q, k, v = (split_heads(one, self.heads) for one in parts)
        return self.outward(join_heads(F.scaled_dot_product_attention(q, k, v)))


class UNetBlock(nn.Module):
    """An image and a text in, an image out."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.group_norm = nn.GroupNorm(sizes.width // 8, sizes.width, eps=1e-6)
        self.inward, self.outward = (nn.Conv2d(sizes.width, sizes.width, 1) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(sizes.width) for _ in range(3))
        self.own, self.cross = SelfAttention(sizes), CrossAttention(sizes)
        self.up, self.down = nn.Linear(sizes.width, 8 * sizes.width), nn.Linear(4 * sizes.width, sizes.width)

    def forward(self, image: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """The image after the block."""
        x = self.inward(self.group_norm(image)).flatten(2).mT
        x = x + self.own(self.norms[0](x))
        x = x + self.cross(self.norms[1](x), text)
        value, gate = self.up(self.norms[2](x)).chunk(2, -1)
        x = x + self.down(value * F.gelu(gate))
        return image + self.outward(x.mT.unflatten(2, image.shape[2:]))


def build(sizes: Sizes) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model and its inputs."""
    side = math.isqrt(sizes.length)
    image = torch.randn(sizes.batch, sizes.width, side, side)
    return UNetBlock(sizes), (image, torch.randn(sizes.batch, TEXT, sizes.width))
