"""BERT: layer norms after attention and GELU, and padded sequences, whose padding is masked."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.torch_models.parts import FeedForward, SelfAttention, tokens
from benchmarks.torch_models.sizes import Sizes


class Block(nn.Module):
    """One layer."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(sizes.width, eps=1e-12) for _ in range(2))
        self.attention, self.feed = SelfAttention(sizes), FeedForward(sizes)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The next hidden state."""
        x = self.norms[0](x + self.attention(x, mask))
        return self.norms[1](x + self.feed(x))


class BERT(nn.Module):
    """Tokens and which of them are no padding in, hidden states out."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        self.positions = nn.Parameter(torch.randn(sizes.length, sizes.width))
        self.norm = nn.LayerNorm(sizes.width, eps=1e-12)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))

    def forward(self, ids: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        """Hidden states of each position."""
        x = self.norm(self.embedding(ids) + self.positions)
        for block in self.blocks:
            x = block(x, kept[:, None, None, :])
        return x


def build(sizes: Sizes) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model and its inputs."""
    lengths = torch.linspace(sizes.length, sizes.length // 2, sizes.batch).long()
    return BERT(sizes), (tokens(sizes), torch.arange(sizes.length)[None] < lengths[:, None])
