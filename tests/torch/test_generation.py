"""Generation with a decoder of one's own: prompt and next tokens compiled apart, one cache, which both write to."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import tvm_cascade  # noqa: E402

LAYERS, HEADS, SHARED, WIDTH, VOCABULARY, LONGEST = 2, 4, 2, 32, 40, 24
FEATURES = WIDTH // HEADS


def rotated(x: Any, positions: Any) -> Any:
    half = FEATURES // 2
    angle = positions[:, None] * 100.0 ** (-torch.arange(half) / half)
    left, right = x.chunk(2, -1)
    return torch.cat([left * angle.cos() - right * angle.sin(), right * angle.cos() + left * angle.sin()], -1)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.out = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.key, self.value = (nn.Linear(WIDTH, SHARED * FEATURES, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(WIDTH, 64, bias=False) for _ in range(2))
        self.down = nn.Linear(64, WIDTH, bias=False)
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(2))
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, SHARED, LONGEST, FEATURES))

    def forward(self, x: Any, positions: Any) -> Any:
        normed = self.norms[0](x)
        q = rotated(self.query(normed).unflatten(-1, (HEADS, -1)).transpose(1, 2), positions)
        k = rotated(self.key(normed).unflatten(-1, (SHARED, -1)).transpose(1, 2), positions)
        self.keys.index_copy_(2, positions, k)
        self.values.index_copy_(2, positions, self.value(normed).unflatten(-1, (SHARED, -1)).transpose(1, 2))
        seen = torch.arange(LONGEST) <= positions[:, None]
        mixed = F.scaled_dot_product_attention(q, self.keys, self.values, seen, enable_gqa=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        normed = self.norms[1](x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Any, positions: Any) -> Any:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, positions)
        return self.head(self.norm(x[:, -1]))


def generated(first: Any, following: Any, prompt: Any, count: int) -> list[int]:
    tokens = [int(first(prompt, torch.arange(prompt.shape[1])).argmax())]
    while len(tokens) < count:
        at = torch.tensor([prompt.shape[1] + len(tokens) - 1])
        tokens.append(int(following(torch.tensor([tokens[-1:]]), at).argmax()))
    return tokens


@torch.no_grad()
def test_greedy_tokens_are_those_of_pytorch() -> None:
    torch.manual_seed(3)
    decoder = Decoder().eval()
    length = torch.export.Dim("length", min=2, max=LONGEST)
    prompt = torch.randint(0, VOCABULARY, (1, 5))
    dynamic = {"tokens": {1: length}, "positions": {0: length}}
    first = tvm_cascade.optimize(decoder, (prompt, torch.arange(5)), dynamic=dynamic)
    following = tvm_cascade.optimize(decoder, (prompt[:, :1], torch.tensor([5])))
    for prompt_length in (5, 9):
        prompt = torch.randint(0, VOCABULARY, (1, prompt_length))
        ours = generated(first, following, prompt, 10)
        cache = decoder.layers[1].keys.clone()
        assert ours == generated(decoder, decoder, prompt, 10)
        assert len(set(ours)) > 2
        written = (cache - decoder.layers[1].keys).abs().amax((0, 1, 3)) < 1e-5
        assert written[: prompt_length + 9].all() and cache[:, :, : prompt_length + 9].abs().amin() > 0
