"""GPT-2: learned positions, layer norms before causal attention and GELU, logits by the embedding's weight."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.torch_models.parts import FeedForward, SelfAttention, tokens
from benchmarks.torch_models.sizes import Sizes


class Block(nn.Module):
    """One layer."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(sizes.width) for _ in range(2))
        self.attention, self.feed = SelfAttention(sizes, causal=True), FeedForward(sizes, "tanh")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The next hidden state."""
        x = x + self.attention(self.norms[0](x))
        return x + self.feed(self.norms[1](x))


class GPT2(nn.Module):
    """Tokens in, logits out."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        self.positions = nn.Embedding(sizes.length, sizes.width)
        self.blocks = nn.Sequential(*(Block(sizes) for _ in range(sizes.layers)))
        self.norm = nn.LayerNorm(sizes.width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits of each position."""
        at = torch.arange(ids.shape[1], device=ids.device)
        hidden = self.norm(self.blocks(self.embedding(ids) + self.positions(at)))
        return F.linear(hidden, self.embedding.weight)


def build(sizes: Sizes) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model and its inputs."""
    return GPT2(sizes), (tokens(sizes),)
