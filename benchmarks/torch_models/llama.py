"""Llama: RMS norms, rotary positions, grouped heads, SwiGLU."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.torch_models.parts import GatedFeedForward, RotaryAttention, tokens
from benchmarks.torch_models.sizes import Sizes


class Block(nn.Module):
    """One layer."""

    def __init__(self, sizes: Sizes, feed: nn.Module | None = None) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(sizes.width, eps=1e-5) for _ in range(2))
        self.attention, self.feed = RotaryAttention(sizes), feed or GatedFeedForward(sizes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The next hidden state."""
        x = x + self.attention(self.norms[0](x))
        return x + self.feed(self.norms[1](x))


class Decoder(nn.Module):
    """Tokens in, logits out, by layers given."""

    def __init__(self, sizes: Sizes, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.embedding, self.blocks = nn.Embedding(sizes.vocabulary, sizes.width), nn.Sequential(*blocks)
        self.norm = nn.RMSNorm(sizes.width, eps=1e-5)
        self.head = nn.Linear(sizes.width, sizes.vocabulary, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits of each position."""
        return self.head(self.norm(self.blocks(self.embedding(ids))))


def build(sizes: Sizes) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model and its inputs."""
    return Decoder(sizes, [Block(sizes) for _ in range(sizes.layers)]), (tokens(sizes),)
