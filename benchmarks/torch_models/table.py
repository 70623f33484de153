"""The table of the models."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn

from benchmarks.torch_models import bert, gemma2, gpt2, llama, mixtral, t5, unet, vit, whisper
from benchmarks.torch_models.sizes import Sizes

MODELS: Mapping[str, Callable[[Sizes], tuple[nn.Module, tuple[torch.Tensor, ...]]]] = {
    "gpt2": gpt2.build,
    "llama": llama.build,
    "gemma2": gemma2.build,
    "mixtral": mixtral.build,
    "bert": bert.build,
    "vit": vit.build,
    "t5_encoder": t5.build,
    "whisper_encoder": whisper.build,
    "unet_block": unet.build,
}


def model(name: str, sizes: Sizes, seed: int = 0) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A model with random weights, in evaluation mode, and its inputs."""
    torch.manual_seed(seed)
    module, inputs = MODELS[name](sizes)
    return module.eval(), inputs
