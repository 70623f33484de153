"""How fast attention's gradient is on this GPU, against cuDNN's, FlashAttention 2's and FlexAttention's: run by hand.

    python -m benchmarks.backward [--cases WORD …]

Ours is `tvm_cascade.gradient` of the plain program, compiled; nothing of it is written for attention. Every row is
checked against float64 first, and computed twice for the same bits. Slower rows come first.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import tvm_cascade
from benchmarks.commands import add_cases as add_arguments
from benchmarks.commands import chosen, command
from corpus.programs.attention import GEMMA_CAP, VARIANTS, attention
from corpus.programs.program import Precision

Tensors = Mapping[str, Any]
Run = Callable[[], Any]

RUNS, TURNS = 20, 4
"""Runs that are timed together, and how often each row has its turn."""


@dataclass(frozen=True)
class Case:
    """An attention of one sequence, in bfloat16 or float16."""

    heads: int
    length: int
    width: int
    variant: str = "full"
    kv_heads: int = 0
    window: int = 1024
    dtype: str = "bfloat16"

    def __str__(self) -> str:
        shared = f" over {self.kv_heads}" if self.kv_heads else ""
        return f"{self.variant} {self.heads}{shared} x {self.length} x {self.width} {self.dtype}"

    @property
    def flops(self) -> float:
        """Of five products, of what masks keep."""
        kept = VARIANTS[self.variant].visible_pairs(
            {"queries": self.length, "keys": self.length, "window": self.window}
        )
        return 10.0 * self.heads * kept * self.width

    @property
    def shape(self) -> dict[str, int]:
        kv_heads = self.kv_heads or self.heads
        return {
            "batch": 1, "heads": self.heads, "kv_heads": kv_heads, "queries": self.length, "keys": self.length,
            "head_dim": self.width, "window": self.window,
        }  # fmt: skip


CASES = [
    *(
        Case(16, length, 128, variant)
        for variant in ("full", "causal")
        for length in (1024, 2048, 4096, 8192, 16384, 32768)
    ),
    *(Case(16, 4096, width, variant) for variant in ("full", "causal") for width in (64, 96, 192, 256)),
    Case(64, 4096, 128, "causal", kv_heads=8),
    Case(16, 4096, 128, "causal_softcap"),
    Case(16, 4096, 128, "softcap"),
    Case(16, 8192, 128, "window"),
    Case(16, 4096, 128, "causal_alibi"),
    *(Case(16, 4096, width, variant, dtype="float16") for variant in ("full", "causal") for width in (64, 128)),
]


def drawn(case: Case) -> dict[str, Any]:
    """Queries, keys, values and the adjoint of the output, and slopes of heads."""
    torch.manual_seed(0)
    narrow = {"device": "cuda", "dtype": getattr(torch, case.dtype)}
    q, d_out = (torch.randn(1, case.heads, case.length, case.width, **narrow) for _ in range(2))
    k, v = (torch.randn(1, case.kv_heads or case.heads, case.length, case.width, **narrow) for _ in range(2))
    slopes = 2.0 ** (-8.0 * torch.arange(1, case.heads + 1, device="cuda") / case.heads)
    return {"q": q, "k": k, "v": v, "d_out": d_out, "slopes": slopes}


def keeps(case: Case, query: Any, key: Any) -> Any:
    """Whether a mask keeps a key for a query."""
    kept = key <= query if case.variant != "full" and case.variant != "softcap" else key >= 0
    return kept & (key > query - case.window) if "window" in case.variant else kept


def in_float64(case: Case, given: Tensors) -> tuple[Any, ...]:
    """Maximum, sum and output of the forward function, and its gradients, a head at a time."""
    group = case.heads // (case.kv_heads or case.heads)
    found: list[list[Any]] = [[], [], [], []]
    further = [torch.zeros_like(given[name], dtype=torch.float64) for name in "kv"]
    at = torch.arange(case.length, device="cuda")
    kept = keeps(case, at[:, None], at[None, :])
    for head in range(case.heads):
        q = given["q"][0, head].double().requires_grad_()
        k, v = (given[name][0, head // group].double().requires_grad_() for name in "kv")
        scores = q @ k.T / math.sqrt(case.width)
        if "softcap" in case.variant:
            scores = GEMMA_CAP * (scores / GEMMA_CAP).tanh()
        if "alibi" in case.variant:
            scores = scores + given["slopes"][head].double() * (at[None, :] - at[:, None])
        scores = scores.masked_fill(~kept, -math.inf)
        out = scores.softmax(-1) @ v
        largest = scores.amax(-1)
        d_q, d_k, d_v = torch.autograd.grad(out, (q, k, v), given["d_out"][0, head].double())
        for one, value in zip(found, (largest, scores.logsumexp(-1), out, d_q), strict=True):
            one.append(value.detach())
        for one, value in zip(further, (d_k, d_v), strict=True):
            one[0, head // group] += value
    largest, logarithm, out, d_q = (torch.stack(one)[None] for one in found)
    return largest, logarithm, out, d_q, *further


def backward(case: Case) -> Any:
    """The gradient of the plain program by queries, keys and values."""
    func = attention(VARIANTS[case.variant])(case.shape, Precision(case.dtype, "float32")).prim_func()
    return tvm_cascade.gradient(func, wrt=("q", "k", "v")).backward


def compiled_ahead(case: Case) -> None:
    """Leaves the compiled gradient in the cache on disk, in a process of its own."""
    tvm_cascade.compile(backward(case), target="cuda")


def ours(case: Case, given: Tensors, saved: Tensors) -> tuple[Run, Run]:
    """(a run, the results) of the compiled gradient."""
    func = backward(case)
    compiled = tvm_cascade.compile(func, target="cuda")
    results = {f"d_{name}": torch.full_like(given[name], math.nan) for name in "qkv"}
    values = [{**given, **saved, **results}[param.name] for param in func.params]
    return lambda: compiled(*values), lambda: tuple(results[f"d_{name}"] for name in "qkv")


def peer(case: Case, given: Tensors, backend: SDPBackend | None) -> Run | str:
    """A run of torch's gradient, or why there is none.

    Parameters
    ----------
    backend : of `scaled_dot_product_attention`; FlexAttention without one.
    """
    q, k, v = (given[name].detach().clone().requires_grad_() for name in "qkv")
    grouped = bool(case.kv_heads)
    if backend is None:
        torch._dynamo.reset()  # which compiles for a few shapes alone, and gives up then
        mask = create_block_mask(lambda b, h, i, j: keeps(case, i, j), None, None, case.length, case.length)
        slopes = given["slopes"]

        def modified(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            if "softcap" in case.variant:
                return GEMMA_CAP * torch.tanh(score / GEMMA_CAP)
            return score + slopes[h] * (j - i) if "alibi" in case.variant else score

        flex = torch.compile(flex_attention, dynamic=False)
        out = flex(q, k, v, score_mod=modified, block_mask=mask, enable_gqa=grouped)
    elif case.variant not in ("full", "causal"):
        return "scaled_dot_product_attention has no window, soft cap or slopes"
    else:
        with sdpa_kernel(backend):
            attend = torch.nn.functional.scaled_dot_product_attention
            out = attend(q, k, v, is_causal=case.variant == "causal", enable_gqa=grouped)
    return lambda: torch.autograd.grad(out, (q, k, v), given["d_out"], retain_graph=True)


PEERS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FA2": SDPBackend.FLASH_ATTENTION, "Flex": None}


def seconds(run: Run) -> float:
    """Of one run, from the start of the first of several to the end of the last."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(RUNS):
        run()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / RUNS / 1e3


def errors(found: Any, exact: Any) -> list[float]:
    return [((one.double() - other).norm() / other.norm()).item() for one, other in zip(found, exact, strict=True)]


def measured(case: Case) -> tuple[float, str]:
    """(the best peer's time over ours, a line)."""
    given = drawn(case)
    largest, logarithm, out, *exact = in_float64(case, given)
    saved = {"out": out.to(given["q"].dtype), "log_row_sum": logarithm.float(), "row_max": largest.float()}
    run, results = ours(case, given, saved)
    runs: dict[str, Run] = {"ours": run}
    told = []
    for name, backend in PEERS.items():
        try:
            prepared = peer(case, given, backend)
            if not isinstance(prepared, str):
                prepared()
                runs[name] = prepared
        except Exception as refusal:
            told.append(f"{name}: {type(refusal).__name__}")
    run()
    first = [one.clone() for one in results()]
    run()
    same = all(torch.equal(one, other) for one, other in zip(first, results(), strict=True))
    error = max(errors(first, exact))
    allowed = 1.5 * max(max(errors(runs[name](), exact)) for name in runs if name != "ours")
    times = {name: min(seconds(runs[name]) for _ in range(TURNS)) for name in runs}
    best = min(time for name, time in times.items() if name != "ours")
    rates = ", ".join(f"{name} {time * 1e6:.1f} us" for name, time in times.items())
    verdict = "" if error <= allowed and same else f" WRONG {error:.1e} > {allowed:.1e}, same bits {same}"
    ratio = best / times["ours"]
    line = f"{case}: {ratio:.2f} of the best peer's rate, {case.flops / times['ours'] / 1e12:.0f} TFLOP/s; {rates}"
    return ratio, f"{line}; error {error:.1e}{verdict} {' '.join(told)}"


def run(args: argparse.Namespace) -> int:
    """Check and time the chosen cases, and print them; returns the exit code."""
    cases = chosen(CASES, args.cases)
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        pool.map(compiled_ahead, cases, chunksize=1)
    rows = sorted(measured(case) for case in cases)
    print("\n".join(line for _, line in rows))
    mean = statistics.geometric_mean(ratio for ratio, _ in rows)
    print(f"{torch.cuda.get_device_name()}: geometric mean {mean:.2f} of {len(rows)}, least {rows[0][0]:.2f}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    told = "gradients of attention on a GPU, against cuDNN, FlashAttention 2 and FlexAttention"
    return command("benchmarks.backward", told, add_arguments, run, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
