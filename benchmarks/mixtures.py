"""Layers of mixtures of experts on a GPU, beside PyTorch's eager mode and Inductor.

    python -m benchmarks.mixtures [--layers LAYER …] [--tokens TOKENS …]

A layer takes tokens whose experts are chosen: rows sorted by expert, gate and up as one grouped product, the gate,
the product down, the weighted sum of each token's rows. Every row is checked against float64 at a few tokens, then
timed in CUDA graphs, in turns, with an L2 that holds something else.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F

from benchmarks.commands import command
from tvm_cascade.torch.backend import backend

RUNS = 15
CHECKED = 4
"""Tokens that are compared with float64."""

MOST_WRONG = 0.02
"""Of the largest value: what bfloat16 leaves; zeros are 1 off."""

FLUSHED = 1 << 28
"""Bytes that are read between runs, more than an L2 holds."""

TOKENS = (1, 16, 256, 4096)


class Layer(NamedTuple):
    """Widths of tokens and of an expert, how many experts there are, and how many a token has."""

    hidden: int
    inner: int
    experts: int
    chosen: int


LAYERS = {
    "mixtral": Layer(4096, 14336, 8, 2),
    "qwen3": Layer(2048, 768, 128, 8),
    "gpt-oss": Layer(2880, 2880, 128, 4),
    "deepseek-v3": Layer(7168, 256, 256, 8),
}
"""Of DeepSeek-V3 one of eight shards."""

BACKENDS: dict[str, Any] = {"ours": backend, "inductor": "inductor", "eager": "eager"}


class Experts(torch.nn.Module):
    """Gated experts, as transformers has them."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.layer = layer

        def drawn(rows: int, columns: int) -> torch.nn.Parameter:
            w = torch.empty(layer.experts, rows, columns, device="cuda", dtype=torch.bfloat16)
            return torch.nn.Parameter(w.normal_(std=columns**-0.5), requires_grad=False)

        self.inward = drawn(2 * layer.inner, layer.hidden)
        self.outward = drawn(layer.hidden, layer.inner)

    def forward(self, x: torch.Tensor, chosen: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        """Tokens [t, hidden] by the experts [t, chosen], weighted."""
        expert, order = torch.sort(chosen.reshape(-1))
        counts = torch.histc(expert.float(), bins=self.layer.experts, min=0, max=self.layer.experts - 1)
        ends = torch.cumsum(counts, 0, dtype=torch.int32)
        gate, up = torch._grouped_mm(x[order // self.layer.chosen], self.inward.mT, offs=ends).chunk(2, -1)
        rows = torch._grouped_mm(F.silu(gate) * up, self.outward.mT, offs=ends)
        rows = rows * shares.reshape(-1)[order].unsqueeze(-1)
        back = torch.empty_like(order)
        back[order] = torch.arange(order.shape[0], device=order.device)
        return rows[back].view(-1, self.layer.chosen, self.layer.hidden).sum(1)

    def exact(self, x: torch.Tensor, chosen: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        """The definition in float64, an expert of a token after another."""
        found = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
        for token, experts in enumerate(chosen.tolist()):
            for place, expert in enumerate(experts):
                gate, up = (self.inward[expert].double() @ x[token].double()).chunk(2)
                row = self.outward[expert].double() @ (F.silu(gate) * up)
                found[token] += row * shares[token, place].double()
        return found


def given(layer: Layer, tokens: int) -> tuple[torch.Tensor, ...]:
    """Tokens, the experts of each, and their shares."""
    drawn = torch.Generator(device="cuda").manual_seed(tokens)
    x = torch.randn(tokens, layer.hidden, device="cuda", generator=drawn, dtype=torch.bfloat16)
    scores = torch.randn(tokens, layer.experts, device="cuda", generator=drawn)
    shares, chosen = scores.softmax(-1).topk(layer.chosen)
    return x, chosen, (shares / shares.sum(-1, keepdim=True)).bfloat16()


def graph_of(call: Callable[[], torch.Tensor]) -> Callable[[], None]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def time_of(run: Callable[[], None], other: torch.Tensor) -> float:
    """Microseconds of a run behind work that keeps the launch waiting and fills the L2."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    other.sum()
    torch.cuda._sleep(200_000)
    start.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e3


def compiled(
    model: Experts, tensors: tuple[torch.Tensor, ...], through: Any
) -> tuple[Callable[[], torch.Tensor], float]:
    """The layer through a backend, and its error relative to the largest value."""
    torch._dynamo.reset()
    call = torch.compile(model, backend=through, fullgraph=True, dynamic=False)
    expected = model.exact(*(one[:CHECKED] for one in tensors))
    error = float((call(*tensors)[:CHECKED].double() - expected).abs().max() / expected.abs().max())
    if not error <= MOST_WRONG:  # also of NaN
        raise ValueError(f"wrong by {error:.1e} of the largest value")
    return lambda: call(*tensors), error


def row(name: str, model: Experts, tokens: int) -> dict[str, Any]:
    """One row of the table; times in microseconds."""
    found: dict[str, Any] = {"layer": name, "tokens": tokens}
    tensors, runs = given(model.layer, tokens), dict[str, Callable[[], None]]()
    with torch.no_grad():
        for who, through in BACKENDS.items():
            try:
                call, found[f"error of {who}"] = compiled(model, tensors, through)
                runs[who] = graph_of(call)
            except Exception as error:  # one backend does not stop the table
                found[f"failed {who}"] = f"{type(error).__name__}: {error}"[:300]
        other = torch.ones(FLUSHED // 4, device="cuda")
        times: dict[str, list[float]] = {who: [] for who in runs}
        for _ in range(RUNS):
            for who, run in runs.items():
                times[who].append(time_of(run, other))
    return {**found, **{who: statistics.median(several) for who, several in times.items()}}


def lines_of(rows: list[dict[str, Any]]) -> list[str]:
    """The table, slower rows first, what failed, and the ratio in geomean."""
    whole = [one for one in rows if all(who in one for who in BACKENDS)]
    ratios = {id(one): min(one[who] for who in BACKENDS if who != "ours") / one["ours"] for one in whole}
    found = [
        f"{one['layer']:<12} {one['tokens']:>5} {ratios[id(one)]:.2f} "
        + ", ".join(f"{who} {one[who]:.0f}" for who in BACKENDS)
        for one in sorted(whole, key=lambda one: ratios[id(one)])
    ]
    found += [
        f"{one['layer']} {one['tokens']}: {key}: {text}" for one in rows for key, text in one.items() if "failed" in key
    ]
    if whole:
        found.append(
            f"best peer over ours: {statistics.geometric_mean(ratios.values()):.2f} in geomean of {len(whole)}"
        )
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    named = f"of {', '.join(LAYERS)}"
    parser.add_argument("--layers", nargs="+", choices=LAYERS, default=LAYERS, metavar="LAYER", help=named)
    parser.add_argument("--tokens", nargs="+", type=int, default=TOKENS, metavar="TOKENS", help="rows of a call")


def run(args: argparse.Namespace) -> int:
    """Measure layers; returns the exit code."""
    rows = list[dict[str, Any]]()
    for name in args.layers:
        model = Experts(LAYERS[name])
        for tokens in args.tokens:
            rows.append(row(name, model, tokens))
            Path(os.environ.get("OUT", "."), "mixtures.json").write_text(json.dumps(rows, indent=1))
        del model
        torch.cuda.empty_cache()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: the best peer over ours, and microseconds")
    print("\n".join(lines_of(rows)))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    told = "layers of mixtures of experts on a GPU, against eager PyTorch and Inductor"
    return command("benchmarks.mixtures", told, add_arguments, run, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
