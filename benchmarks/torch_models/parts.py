"""Layers that several models have."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.torch_models.sizes import Sizes


def split_heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    """[batch, position, feature] as [batch, head, position, feature]."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(x: torch.Tensor) -> torch.Tensor:
    """The other way."""
    return x.transpose(1, 2).flatten(2)


def tokens(sizes: Sizes) -> torch.Tensor:
    """Random tokens."""
    return torch.randint(0, sizes.vocabulary, (sizes.batch, sizes.length))


class SelfAttention(nn.Module):
    """Attention of a sequence to itself, by torch's own operator."""

    def __init__(self, sizes: Sizes, *, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = sizes.heads, causal
        self.inward, self.outward = nn.Linear(sizes.width, 3 * sizes.width), nn.Linear(sizes.width, sizes.width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Attended features."""
        q, k, v = (split_heads(one, self.heads) for one in self.inward(x).chunk(3, -1))
        return self.outward(join_heads(F.scaled_dot_product_attention(q, k, v, mask, is_causal=self.causal)))


class FeedForward(nn.Sequential):
    """Two linear layers with GELU between them."""

    def __init__(self, sizes: Sizes, approximate: str = "none") -> None:
        wide = 4 * sizes.width
        super().__init__(nn.Linear(sizes.width, wide), nn.GELU(approximate), nn.Linear(wide, sizes.width))


class GatedFeedForward(nn.Module):
    """SwiGLU, or with another activation."""

    def __init__(self, sizes: Sizes, activation: nn.Module | None = None) -> None:
        super().__init__()
        wide = 2 * sizes.width
        self.gate, self.up = (nn.Linear(sizes.width, wide, bias=False) for _ in range(2))
        self.down, self.activation = nn.Linear(wide, sizes.width, bias=False), activation or nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """down(activation(gate x) · up x)."""
        return self.down(self.activation(self.gate(x)) * self.up(x))


def rotated(x: torch.Tensor, start: torch.Tensor | int = 0) -> torch.Tensor:
    """Rotary embedding of [batch, head, position, feature], whose positions begin at `start`."""
    half = x.shape[-1] // 2
    frequency = 10000.0 ** (-torch.arange(half, device=x.device) / half)
    angle = (torch.arange(x.shape[-2], device=x.device) + start)[:, None] * frequency
    cosine, sine = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    left, right = x.chunk(2, -1)
    return torch.cat([left * cosine - right * sine, right * cosine + left * sine], -1)


class RotaryAttention(nn.Module):
    """Causal attention with rotary positions and grouped heads."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.heads, self.shared = sizes.heads, sizes.shared_heads
        shared = sizes.shared_heads * sizes.head_width
        self.query, self.key, self.value = (
            nn.Linear(sizes.width, width, bias=False) for width in (sizes.width, shared, shared)
        )
        self.outward = nn.Linear(sizes.width, sizes.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attended features."""
        q, k = rotated(split_heads(self.query(x), self.heads)), rotated(split_heads(self.key(x), self.shared))
        v = split_heads(self.value(x), self.shared)
        return self.outward(join_heads(F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)))
