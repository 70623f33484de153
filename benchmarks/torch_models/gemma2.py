"""Gemma 2: soft-capped scores, sliding windows in every other layer, norms before and after each part."""

from __future__ import annotations

import math

import torch
from torch import nn

from benchmarks.torch_models.parts import GatedFeedForward, join_heads, rotated, split_heads, tokens
from benchmarks.torch_models.sizes import Sizes

SCORE_CAP, LOGIT_CAP = 50.0, 30.0


class CappedAttention(nn.Module):
    """Attention written out, since torch's operator has no cap: cap · tanh(scores / cap), then the mask."""

    def __init__(self, sizes: Sizes, window: int | None) -> None:
        super().__init__()
        self.heads, self.shared, self.window = sizes.heads, sizes.shared_heads, window
        shared = sizes.shared_heads * sizes.head_width
        self.query, self.key, self.value = (
            nn.Linear(sizes.width, width, bias=False) for width in (sizes.width, shared, shared)
        )
        self.outward = nn.Linear(sizes.width, sizes.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attended features."""
        q = rotated(split_heads(self.query(x), self.heads))
        k, v = rotated(split_heads(self.key(x), self.shared)), split_heads(self.value(x), self.shared)
        k, v = (one.repeat_interleave(self.heads // self.shared, 1) for one in (k, v))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        scores = SCORE_CAP * torch.tanh(scores / SCORE_CAP)
        at = torch.arange(x.shape[1], device=x.device)
        seen = at[None, :] <= at[:, None]
        if self.window is not None:
            seen = seen & (at[None, :] > at[:, None] - self.window)
        weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        return self.outward(join_heads(weights @ v))


class Block(nn.Module):
    """One layer."""

    def __init__(self, sizes: Sizes, window: int | None) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(sizes.width, eps=1e-6) for _ in range(4))
        self.attention = CappedAttention(sizes, window)
        self.feed = GatedFeedForward(sizes, nn.GELU("tanh"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The next hidden state."""
        x = x + self.norms[1](self.attention(self.norms[0](x)))
        return x + self.norms[3](self.feed(self.norms[2](x)))


class Gemma2(nn.Module):
    """Tokens in, capped logits out."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.width, self.embedding = sizes.width, nn.Embedding(sizes.vocabulary, sizes.width)
        windows = [sizes.length // 2 if layer % 2 == 0 else None for layer in range(sizes.layers)]
        self.blocks = nn.Sequential(*(Block(sizes, window) for window in windows))
        self.norm = nn.RMSNorm(sizes.width, eps=1e-6)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits of each position."""
        hidden = self.norm(self.blocks(self.embedding(ids) * math.sqrt(self.width)))
        return LOGIT_CAP * torch.tanh(hidden @ self.embedding.weight.T / LOGIT_CAP)


def build(sizes: Sizes) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model and its inputs."""
    return Gemma2(sizes), (tokens(sizes),)
