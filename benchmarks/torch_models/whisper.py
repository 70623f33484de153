"""Whisper's encoder: two convolutions over a spectrogram, then layers as ViT's."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.torch_models.sizes import Sizes
from benchmarks.torch_models.vit import Block

BANDS = 16


class WhisperEncoder(nn.Module):
    """Spectrograms in, hidden states of half as many frames out."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.first = nn.Conv1d(BANDS, sizes.width, 3, padding=1)
        self.second = nn.Conv1d(sizes.width, sizes.width, 3, stride=2, padding=1)
        self.register_buffer("positions", torch.randn(sizes.length, sizes.width))
        self.blocks = nn.Sequential(*(Block(sizes) for _ in range(sizes.layers)))
        self.norm = nn.LayerNorm(sizes.width)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """Hidden states."""
        x = F.gelu(self.second(F.gelu(self.first(frames)))).mT
        return self.norm(self.blocks(x + self.positions))


def build(sizes: Sizes) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model and its inputs."""
    return WhisperEncoder(sizes), (torch.randn(sizes.batch, BANDS, 2 * sizes.length),)
