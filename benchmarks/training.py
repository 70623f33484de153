"""One training step of transformers' models on a GPU, beside PyTorch's eager mode and Inductor.

    python -m benchmarks.training [--models MODEL …]

Weights and activations are bfloat16. Gradients are compared with those of float32: the one that is worst beside eager
PyTorch's is told, and none may be off by more than twice what eager's is, or by what bfloat16 leaves. A step is forward
and backward; the times of its kernels are told too, in microseconds, as few tokens are bound by the host.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.commands import command
from tvm_cascade.torch.backend import FallbackWarning, backend

RUNS = 10
LEAST_ERROR = 2.0**-7
"""Of the largest element: what bfloat16 leaves of a gradient that eager has nearly exact."""

BACKENDS: dict[str, Any] = {"ours": backend, "inductor": "inductor", "eager": "eager"}
Case = tuple[torch.nn.Module, dict[str, torch.Tensor]]


def gpt2() -> Case:
    """GPT-2 small, 8 sequences of 1024."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(use_cache=False, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    return GPT2LMHeadModel(config), _words(8, 1024, config.vocab_size)


def llama(layers: int = 4) -> Case:
    """Layers of Llama 1B, 4 sequences of 2048."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=2048, intermediate_size=8192, num_hidden_layers=layers, num_attention_heads=32,
        num_key_value_heads=8, vocab_size=32000, use_cache=False,
    )  # fmt: skip
    return LlamaForCausalLM(config), _words(4, 2048, config.vocab_size)


def vit() -> Case:
    """ViT base, 64 images."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=1000)
    images = torch.randn(64, 3, 224, 224)
    return ViTForImageClassification(config), {"pixel_values": images, "labels": torch.randint(0, 1000, (64,))}


def _words(batch: int, length: int, count: int) -> dict[str, torch.Tensor]:
    words = torch.randint(0, count, (batch, length))
    return {"input_ids": words, "labels": words}


MODELS: Mapping[str, Callable[[], Case]] = {"gpt2": gpt2, "llama": llama, "vit": vit}


def step_of(model: torch.nn.Module, given: dict[str, torch.Tensor], through: Any) -> Callable[[], torch.Tensor]:
    """A step, which gives the loss and leaves gradients."""
    torch._dynamo.reset()
    call = model if through == "eager" else torch.compile(model, backend=through)

    def step() -> torch.Tensor:
        model.zero_grad(set_to_none=True)
        loss = call(**given).loss
        loss.backward()
        return loss.detach()

    return step


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: one.grad.detach().double() for name, one in model.named_parameters() if one.grad is not None}


def errors(found: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]) -> dict[str, float]:
    """Of each gradient, relative to its largest element."""
    return {
        name: float((found[name] - exact[name]).abs().max() / exact[name].abs().max().clamp(min=1e-30))
        for name in exact
    }


def kernels_of(step: Callable[[], Any]) -> float:
    """Microseconds of all kernels of a step."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        step()
        torch.cuda.synchronize()
    return sum(one.self_device_time_total for one in seen.key_averages())


def row(name: str) -> dict[str, Any]:
    """One row of the table; times in microseconds."""
    torch.manual_seed(0)
    model, given = MODELS[name]()
    model, given = model.cuda().train(), {key: one.cuda() for key, one in given.items()}
    exact_model = copy.deepcopy(model)
    exact_loss = float(step_of(exact_model, given, "eager")())
    exact = gradients(exact_model)
    del exact_model
    model = model.bfloat16()
    given = {key: one.bfloat16() if one.is_floating_point() else one for key, one in given.items()}
    found: dict[str, Any] = {"model": name, "loss": exact_loss}
    wrong = dict[str, dict[str, float]]()
    for who in ("eager", "ours", "inductor"):
        start = time.perf_counter()
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", FallbackWarning)
                step = step_of(model, given, BACKENDS[who])
                loss = float(step())
            torch.cuda.synchronize()
            wrong[who] = errors(gradients(model), exact)
            allowed = {key: max(2 * error, LEAST_ERROR) for key, error in wrong["eager"].items()}
            worst = max(allowed, key=lambda key: wrong[who][key] / allowed[key])
            if not wrong[who][worst] <= allowed[worst]:  # also of NaN
                raise ValueError(f"{worst} is off by {wrong[who][worst]:.1e}, eager's by {wrong['eager'][worst]:.1e}")
            found[f"of {who}"] = {
                "loss": loss, "compile": time.perf_counter() - start, "worst": worst, "error": wrong[who][worst],
                "error of eager": wrong["eager"][worst], "kernels": kernels_of(step),
                "told": [str(one.message)[:200] for one in caught if issubclass(one.category, FallbackWarning)],
            }  # fmt: skip
            found[who] = timed(step)
        except Exception as error:  # one backend does not stop the table
            found[f"failed {who}"] = f"{type(error).__name__}: {error}"[:300]
    return found


def timed(step: Callable[[], Any]) -> float:
    """Microseconds of a step, the median of several."""
    times = []
    for _ in range(RUNS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    named = f"of {', '.join(MODELS)}"
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, metavar="MODEL", help=named)


def run(args: argparse.Namespace) -> int:
    """Measure a step of each model; returns the exit code."""
    rows = []
    for name in args.models:
        rows.append(row(name))
        Path(os.environ.get("OUT", "."), "training.json").write_text(json.dumps(rows, indent=1))
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: microseconds of a step, and of its kernels")
    for one in sorted(rows, key=lambda one: min(one.get(who, 0.0) for who in BACKENDS) / one.get("ours", 1.0)):
        times = (f"{who} {one[who]:.0f} ({one[f'of {who}']['kernels']:.0f})" for who in BACKENDS if who in one)
        failed = (f"{key}: {text}" for key, text in one.items() if key.startswith("failed"))
        print(f"{one['model']:<8} " + ", ".join((*times, *failed)))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    told = "one training step of transformers' models on a GPU, against eager PyTorch and Inductor"
    return command("benchmarks.training", told, add_arguments, run, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
