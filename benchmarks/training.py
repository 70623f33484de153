"""One training step of transformers' models, beside PyTorch's eager mode and Inductor.

    python -m benchmarks.training [--models MODEL …] [--device cuda|cpu]

On a GPU, weights and activations are bfloat16, and gradients are compared with those of float32; on a CPU they are
float32, of two layers and few tokens, and compared with those of float64. The gradient that is worst beside eager
PyTorch's is told, and none may be off by more than twice what eager's is, or by what the dtype leaves. A step is
forward and backward; backends take turns. The times of a GPU's kernels are told too, as few tokens are bound by the
host.
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
LEAST_ERROR = {torch.bfloat16: 2.0**-7, torch.float32: 2.0**-19}
"""Of the largest element: what a dtype leaves of a gradient that eager has nearly exact."""

BACKENDS: dict[str, Any] = {"ours": backend, "inductor": "inductor", "eager": "eager"}
Case = tuple[torch.nn.Module, dict[str, torch.Tensor]]


def gpt2(small: bool) -> Case:
    """GPT-2 small, 8 sequences of 1024; two of its layers and two sequences of 256."""
    from transformers import GPT2Config, GPT2LMHeadModel

    layers, batch, length = (2, 2, 256) if small else (12, 8, 1024)
    config = GPT2Config(n_layer=layers, use_cache=False, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    return GPT2LMHeadModel(config), _words(batch, length, config.vocab_size)


def llama(small: bool) -> Case:
    """Four layers of Llama 1B, 4 sequences of 2048; two layers of a quarter of its width, two sequences of 512."""
    from transformers import LlamaConfig, LlamaForCausalLM

    part, layers, batch, length = (4, 2, 2, 512) if small else (1, 4, 4, 2048)
    config = LlamaConfig(
        hidden_size=2048 // part, intermediate_size=8192 // part, num_hidden_layers=layers,
        num_attention_heads=32 // part, num_key_value_heads=8 // part, vocab_size=32000, use_cache=False,
    )  # fmt: skip
    return LlamaForCausalLM(config), _words(batch, length, config.vocab_size)


def vit(small: bool) -> Case:
    """ViT base, 64 images; two of its layers, 4 images."""
    from transformers import ViTConfig, ViTForImageClassification

    layers, batch = (2, 4) if small else (12, 64)
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = ViTConfig(num_hidden_layers=layers, num_labels=1000, **dropout)
    images = torch.randn(batch, 3, 224, 224)
    return ViTForImageClassification(config), {"pixel_values": images, "labels": torch.randint(0, 1000, (batch,))}


def _words(batch: int, length: int, count: int) -> dict[str, torch.Tensor]:
    words = torch.randint(0, count, (batch, length))
    return {"input_ids": words, "labels": words}


MODELS: Mapping[str, Callable[[bool], Case]] = {"gpt2": gpt2, "llama": llama, "vit": vit}


def step_of(model: torch.nn.Module, given: dict[str, torch.Tensor], through: Any) -> Callable[[], torch.Tensor]:
    """A step, which gives the loss and leaves gradients."""
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
    """Microseconds of all kernels of a step on a GPU."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        step()
        torch.cuda.synchronize()
    return sum(one.self_device_time_total for one in seen.key_averages())


def row(name: str, device: str) -> dict[str, Any]:
    """One row of the table; times in microseconds."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    on_gpu = device == "cuda"
    narrow, wide = (torch.bfloat16, torch.float32) if on_gpu else (torch.float32, torch.float64)
    model, given = MODELS[name](not on_gpu)
    model, given = model.to(device).train(), {key: one.to(device) for key, one in given.items()}
    exact_model = copy.deepcopy(model).to(wide)
    exact_loss = float(step_of(exact_model, _in(given, wide), "eager")())
    exact = gradients(exact_model)
    del exact_model
    found: dict[str, Any] = {"model": name, "loss": exact_loss}
    steps, wrong = dict[str, Callable[[], Any]](), dict[str, dict[str, float]]()
    for who in ("eager", "ours", "inductor"):
        start, own = time.perf_counter(), copy.deepcopy(model).to(narrow)
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", FallbackWarning)
                step = step_of(own, _in(given, narrow), BACKENDS[who])
                loss = float(step())
            seconds = time.perf_counter() - start
            wrong[who] = errors(gradients(own), exact)
            allowed = {key: max(2 * error, LEAST_ERROR[narrow]) for key, error in wrong["eager"].items()}
            worst = max(allowed, key=lambda key: wrong[who][key] / allowed[key])
            if not wrong[who][worst] <= allowed[worst]:  # also of NaN
                raise ValueError(f"{worst} is off by {wrong[who][worst]:.1e}, eager's by {wrong['eager'][worst]:.1e}")
            found[f"of {who}"] = {
                "loss": loss, "compile": seconds, "worst": worst, "error": wrong[who][worst],
                "error of eager": wrong["eager"][worst], "kernels": kernels_of(step) if on_gpu else None,
                "told": [str(one.message)[:200] for one in caught if issubclass(one.category, FallbackWarning)],
            }  # fmt: skip
            steps[who] = step
        except Exception as error:  # one backend does not stop the table
            found[f"failed {who}"] = f"{type(error).__name__}: {error}"[:300]
    return found | timed(steps, torch.cuda.synchronize if on_gpu else lambda: None)


def _in(given: dict[str, torch.Tensor], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    return {key: one.to(dtype) if one.is_floating_point() else one for key, one in given.items()}


def timed(steps: Mapping[str, Callable[[], Any]], wait: Callable[[], object]) -> dict[str, float]:
    """Microseconds of each step, the median of several; steps take turns."""
    times: dict[str, list[float]] = {who: [] for who in steps}
    for _ in range(RUNS):
        for who, step in steps.items():
            step()  # what others left in the caches goes
            wait()
            start = time.perf_counter()
            step()
            wait()
            times[who].append((time.perf_counter() - start) * 1e6)
    return {who: statistics.median(found) for who, found in times.items()}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    named = f"of {', '.join(MODELS)}"
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, metavar="MODEL", help=named)
    here = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=("cuda", "cpu"), default=here, help=f"where models run; here {here}")


def run(args: argparse.Namespace) -> int:
    """Measure a step of each model; returns the exit code."""
    rows = []
    for name in args.models:
        rows.append(row(name, args.device))
        Path(os.environ.get("OUT", "."), "training.json").write_text(json.dumps(rows, indent=1))
    where = torch.cuda.get_device_name() if args.device == "cuda" else f"{torch.get_num_threads()} threads"
    print(f"{where}, torch {torch.__version__}: microseconds of a step, and of a GPU's kernels")
    for one in sorted(rows, key=lambda one: min(one.get(who, 0.0) for who in BACKENDS) / one.get("ours", 1.0)):
        kernels = {who: one[f"of {who}"]["kernels"] for who in BACKENDS if who in one}
        told = {who: f" ({spent:.0f})" if spent is not None else "" for who, spent in kernels.items()}
        times = (f"{who} {one[who]:.0f}{told[who]}" for who in BACKENDS if who in one)
        failed = (f"{key}: {text}" for key, text in one.items() if key.startswith("failed"))
        print(f"{one['model']:<8} " + ", ".join((*times, *failed)))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    told = "one training step of transformers' models, against eager PyTorch and Inductor"
    return command("benchmarks.training", told, add_arguments, run, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
