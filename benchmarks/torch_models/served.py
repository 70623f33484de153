"""Llama's layers as they are served: hidden states of a prompt, or of one token over a cache of keys and values."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.torch_models.parts import join_heads, rotated, split_heads


@dataclass(frozen=True)
class Served:
    """What a decoder is made of, and what it is given.

    Attributes
    ----------
    layers, width, heads, shared_heads, wide : of the transformer; `wide` features in the feed-forward networks.
    batch : sequences.
    tokens : of a prompt; 1 over a cache.
    keys : in the cache; 0 of a prompt.
    """

    layers: int = 8
    width: int = 4096
    heads: int = 32
    shared_heads: int = 8
    wide: int = 14336
    batch: int = 8
    tokens: int = 2048
    keys: int = 0


class Layer(nn.Module):
    """One layer; over a cache it reads the keys and values there, of which the newest are the token's own."""

    def __init__(self, sizes: Served) -> None:
        super().__init__()
        self.heads, self.shared, self.start = sizes.heads, sizes.shared_heads, max(sizes.keys - 1, 0)
        width, shared = sizes.width, sizes.shared_heads * (sizes.width // sizes.heads)
        self.norms = nn.ModuleList(nn.RMSNorm(width, eps=1e-5) for _ in range(2))
        self.query, self.outward = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(width, shared, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, sizes.wide, bias=False) for _ in range(2))
        self.down = nn.Linear(sizes.wide, width, bias=False)

    def forward(self, x: torch.Tensor, *cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The next hidden states, and the keys and values of these tokens."""
        h = self.norms[0](x)
        q = rotated(split_heads(self.query(h), self.heads), self.start)
        k, v = rotated(split_heads(self.key(h), self.shared), self.start), split_heads(self.value(h), self.shared)
        keys, values = cache or (k, v)
        attended = F.scaled_dot_product_attention(q, keys, values, is_causal=not cache, enable_gqa=True)
        x = x + self.outward(join_heads(attended))
        h = self.norms[1](x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h)), k, v


class Decoder(nn.Module):
    """Hidden states in, hidden states out; over caches also the keys and values that are new, layer by layer."""

    def __init__(self, sizes: Served) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.layers))

    def forward(self, x: torch.Tensor, *caches: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """The last hidden states."""
        made: list[torch.Tensor] = []
        for n, layer in enumerate(self.layers):
            x, *new = layer(x, *caches[2 * n : 2 * n + 2])
            made += new
        return (x, *made) if caches else x


def build(sizes: Served, seed: int = 0) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The decoder with random weights, in evaluation mode, and its inputs."""
    torch.manual_seed(seed)
    caches = 2 * sizes.layers if sizes.keys else 0
    shape = (sizes.batch, sizes.shared_heads, sizes.keys, sizes.width // sizes.heads)
    inputs = (torch.randn(sizes.batch, sizes.tokens, sizes.width), *(torch.randn(shape) for _ in range(caches)))
    return Decoder(sizes).eval(), inputs
