"""FlexAttention in compiled models, against PyTorch's own: its documentation's and attention-gym's modifications.

    python -m benchmarks.flex [--cases WORD …]

A row is checked first, forward and backward, against float64 in two heads. Times are those in which kernels run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import multiprocessing
import os
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.profiler import ProfilerActivity, profile

from benchmarks.commands import add_cases as add_arguments
from benchmarks.commands import chosen, command
from tvm_cascade.torch.backend import backend

HEADS, LENGTH, WIDTH, SIDE = 16, 4096, 128, 64
RUNS = 5
MOST_WRONG = 0.02
"""Of the largest value: what bfloat16 leaves; zeros are 1 off."""

BACKENDS = {"ours": backend, "FlexAttention": "inductor"}

generator = torch.Generator().manual_seed(1)
cuts = torch.randint(0, LENGTH, (11,), generator=generator).sort().values
PLACES = torch.arange(LENGTH)
TENSORS = {
    "slopes": 2.0 ** (-8.0 * torch.arange(1, HEADS + 1) / HEADS),
    "documents": (PLACES // 700).int(),
    "packed": torch.bucketize(PLACES, cuts, right=True).int(),
    "of_distances": torch.randn(HEADS, 2 * LENGTH, generator=generator),
    "of_heads": torch.randn(HEADS, generator=generator),
    "table": torch.rand(LENGTH // 128, LENGTH // 128, generator=generator) < 0.25,
    "times": torch.randint(0, 1000, (LENGTH,), generator=generator).sort().values.int(),
    "widths": 2 ** (4 + torch.arange(HEADS) % 8).int(),
    "caps": 10.0 + 5.0 * torch.arange(HEADS),
    "of_keys": torch.randn(LENGTH, generator=generator),
    "forgotten": torch.rand(HEADS, LENGTH, generator=generator).mul(0.02).cumsum(-1),
    "pictures": (PLACES // 256 % 3 == 1).int() * (1 + PLACES // 256).int(),
}
Modification = Callable[..., Any]


class Case(NamedTuple):
    """What modifies scores and what masks them, in `heads` different ways."""

    score: Modification | None = None
    mask: Modification | None = None
    heads: int | None = None


def causal(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q >= k


def window(b: Any, h: Any, q: Any, k: Any) -> Any:
    return (q >= k) & (q - k <= 512)


def neighbours(b: Any, h: Any, q: Any, k: Any) -> Any:
    """Of an image, the places near one."""
    return ((q // SIDE - k // SIDE).abs() <= 6) & ((q % SIDE - k % SIDE).abs() <= 6)


def tiles(b: Any, h: Any, q: Any, k: Any) -> Any:
    """Of an image, the tiles of eight by eight places next to one's own."""
    down, across = q // (8 * SIDE) - k // (8 * SIDE), q % SIDE // 8 - k % SIDE // 8
    return (down.abs() <= 1) & (across.abs() <= 1)


def cap(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return 30.0 * torch.tanh(s / 30.0)


def documents(t: dict[str, Any]) -> Modification:
    return lambda b, h, q, k: (q >= k) & (t["documents"][q] == t["documents"][k])


def masks(t: dict[str, Any]) -> dict[str, Case]:
    """By name, of these tensors."""
    document = documents(t)

    def transfused(b: Any, h: Any, q: Any, k: Any) -> Any:
        """Text that is causal, with pictures that see themselves whole."""
        return (q >= k) | ((t["pictures"][q] == t["pictures"][k]) & (t["pictures"][q] > 0))

    return {
        "plain": Case(),
        "causal": Case(None, causal),
        "window": Case(None, window),
        "two-sided window": Case(None, lambda b, h, q, k: (q - k).abs() <= 256),
        "windows of heads": Case(None, lambda b, h, q, k: (q >= k) & (q - k <= t["widths"][h]), HEADS),
        "sinks and window": Case(None, lambda b, h, q, k: (q >= k) & ((q - k <= 512) | (k < 4))),
        "global keys, causal": Case(None, lambda b, h, q, k: (q >= k) & ((q - k <= 256) | (k % 512 == 0))),
        "dilated": Case(None, lambda b, h, q, k: (q >= k) & ((q - k <= 512) | ((q - k) % 64 == 0))),
        "strided": Case(None, lambda b, h, q, k: (q >= k) & ((q // 256 == k // 256) | (k % 256 >= 224))),
        "blocks of 256": Case(None, lambda b, h, q, k: q // 256 == k // 256),
        "random blocks": Case(None, lambda b, h, q, k: t["table"][q // 128, k // 128] | (q == k)),
        "documents, causal": Case(None, document),
        "documents, window": Case(None, lambda b, h, q, k: document(b, h, q, k) & (q - k <= 128)),
        "packed documents": Case(None, lambda b, h, q, k: t["packed"][q] == t["packed"][k]),
        "prefix": Case(None, lambda b, h, q, k: (q >= k) | (k < LENGTH // 4)),
        "padding": Case(None, lambda b, h, q, k: k < 3000),
        "padding, causal": Case(None, lambda b, h, q, k: (q >= k) & (k < 3000)),
        "keys to come": Case(None, lambda b, h, q, k: q <= k),
        "global and window": Case(None, lambda b, h, q, k: ((q - k).abs() <= 256) | (q < 64) | (k < 64)),
        "neighbours in an image": Case(None, neighbours),
        "tiles of an image": Case(None, tiles),
        "pictures in text": Case(None, transfused),
        "jagged times": Case(None, lambda b, h, q, k: t["times"][q] >= t["times"][k]),
    }


def scores(t: dict[str, Any]) -> dict[str, Case]:
    """By name, of these tensors."""

    def alibi(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
        return s + t["slopes"][h] * (k - q)

    return {
        "relative positions": Case(lambda s, b, h, q, k: s + (q - k) * 0.01, causal),
        "alibi": Case(alibi),
        "alibi, causal": Case(alibi, causal),
        "alibi, window": Case(alibi, window),
        "alibi, both ways": Case(lambda s, b, h, q, k: s - t["slopes"][h] * (q - k).abs()),
        "soft cap": Case(cap),
        "soft cap, causal": Case(cap, causal),
        "soft cap, window": Case(cap, window),
        "soft cap, documents": Case(cap, documents(t)),
        "soft caps of heads": Case(lambda s, b, h, q, k: t["caps"][h] * torch.tanh(s / t["caps"][h]), causal),
        "relative bias": Case(lambda s, b, h, q, k: s + t["of_distances"][h, q - k + LENGTH]),
        "clamped bias": Case(lambda s, b, h, q, k: s + t["of_distances"][h, (q - k).clamp(0, 127)], causal),
        "bias of keys": Case(lambda s, b, h, q, k: s + t["of_keys"][k]),
        "forgetting": Case(lambda s, b, h, q, k: s + t["forgotten"][h, k] - t["forgotten"][h, q], causal),
        "scale of a head": Case(lambda s, b, h, q, k: s * torch.sigmoid(t["of_heads"][h]), causal),
        "scale of a query": Case(lambda s, b, h, q, k: s * torch.log(q + 2.0) * 0.2, causal),
        "squared distance": Case(lambda s, b, h, q, k: s - 1e-4 * (q - k) ** 2, causal),
        "cosine": Case(lambda s, b, h, q, k: s + torch.cos(0.3 * (q - k)), causal),
        "checkerboard": Case(lambda s, b, h, q, k: torch.where((q - k) % 2 == 0, 2.0 * s, 0.5 * s)),
    }


def cases(t: dict[str, Any]) -> dict[str, Case]:
    return masks(t) | scores(t)


class Data(NamedTuple):
    """Query, key, value, and the adjoint of the result: [1, head, position, feature] of bfloat16."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    adjoint: torch.Tensor


def exact(case: Case, data: Data, head: int) -> list[torch.Tensor]:
    """The result of a head in float64, and the adjoints of query, key and value."""
    q, k, v = (one[0, head].double().requires_grad_() for one in data[:3])
    place, zero = torch.arange(LENGTH, device=q.device), torch.tensor(0, device=q.device)
    at = (zero, torch.tensor(head, device=q.device), place[:, None], place[None, :])
    scores = q @ k.mT / math.sqrt(WIDTH)
    scores = scores if case.score is None else case.score(scores, *at)
    scores = scores if case.mask is None else torch.where(case.mask(*at), scores, -math.inf)
    out = scores.softmax(-1) @ v
    return [out.detach(), *torch.autograd.grad(out, (q, k, v), data.adjoint[0, head].double())]


def time_of(run: Callable[[], Any]) -> float:
    """Microseconds of a call in which some kernel of it runs or, launched early, waits for the one before."""
    run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(RUNS):
            run()
        torch.cuda.synchronize()
    spans = sorted((one.time_range.start, one.time_range.end) for one in seen.events() if one.device_time_total)
    busy, end = 0.0, -math.inf
    for start, stop in spans:
        busy += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return busy / RUNS


def compiled(case: Case, through: Any) -> Callable[..., torch.Tensor]:
    torch._dynamo.reset()
    blocks = case.mask and create_block_mask(case.mask, None, case.heads, LENGTH, LENGTH, device="cuda")
    return torch.compile(lambda q, k, v: flex_attention(q, k, v, case.score, blocks), backend=through, fullgraph=True)


def compiled_ahead(name: str) -> None:
    """Leaves what a case compiles in the caches on disk, in a process of its own; what fails is told by its row."""
    known, data = on_device()
    for through in BACKENDS.values():
        with contextlib.suppress(Exception):
            call = compiled(known[name], through)
            with torch.no_grad():
                call(*data[:3])
            given = [one.detach().requires_grad_() for one in data[:3]]
            torch.autograd.grad(call(*given), given, data.adjoint, retain_graph=True)


def measured(case: Case, data: Data, through: Any, expected: dict[int, list[torch.Tensor]]) -> dict[str, float]:
    """Times and errors of a backend, forward and backward."""
    call = compiled(case, through)
    with torch.no_grad():
        forward = time_of(lambda: call(*data[:3]))
    given = [one.detach().clone().requires_grad_() for one in data[:3]]
    out = call(*given)
    found = [out, *torch.autograd.grad(out, given, data.adjoint, retain_graph=True)]
    errors = [
        float((one[0, head].double() - wanted).abs().max() / wanted.abs().max())
        for head, all_wanted in expected.items()
        for one, wanted in zip(found, all_wanted, strict=True)
    ]
    if not max(errors) <= MOST_WRONG:  # also of NaN
        raise ValueError(f"wrong by {max(errors):.1e} of the largest value")
    backward = time_of(lambda: torch.autograd.grad(out, given, data.adjoint, retain_graph=True))
    return {"forward": forward, "backward": backward, "error": max(errors)}


def row(name: str, case: Case, data: Data) -> dict[str, Any]:
    """One row of the table; times in microseconds."""
    expected = {head: exact(case, data, head) for head in (0, HEADS - 1)}
    found: dict[str, Any] = {"case": name}
    for who, through in BACKENDS.items():
        try:
            found[who] = measured(case, data, through, expected)
        except Exception as error:  # one backend does not stop the table
            found[f"failed {who}"] = f"{type(error).__name__}: {error}"[:300]
    return found


def lines_of(rows: list[dict[str, Any]]) -> list[str]:
    """The table, slower rows first, what failed, and the ratios in geomean."""
    times = {
        one["case"]: [[one[who][way] for who in BACKENDS] for way in ("forward", "backward")]
        for one in rows
        if all(who in one for who in BACKENDS)
    }
    ratios = {name: [other / own for own, other in pairs] for name, pairs in times.items()}
    found = [
        f"{name:<24} " + ", ".join(f"{own:.0f} {other:.0f} {other / own:.2f}" for own, other in times[name])
        for name in sorted(times, key=lambda name: min(ratios[name]))
    ]
    found += [f"{one['case']}: {key}: {text}" for one in rows for key, text in one.items() if key.startswith("failed")]
    for way, each in zip(("forward", "backward"), zip(*ratios.values(), strict=True), strict=False):
        found.append(f"{way}: {statistics.geometric_mean(each):.2f} in geomean of {len(each)}, least {min(each):.2f}")
    return found


def on_device() -> tuple[dict[str, Case], Data]:
    drawn = torch.Generator(device="cuda").manual_seed(0)
    shape = (1, HEADS, LENGTH, WIDTH)
    data = Data(*(torch.randn(shape, device="cuda", dtype=torch.bfloat16, generator=drawn) for _ in Data._fields))
    return cases({name: one.cuda() for name, one in TENSORS.items()}), data


def run(args: argparse.Namespace) -> int:
    """Check and time the chosen modifications, and print them; returns the exit code."""
    known, data = on_device()
    names, rows = chosen(known, args.cases), []
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        pool.map(compiled_ahead, names, chunksize=1)
    for name in names:
        rows.append(row(name, known[name], data))
        Path(os.environ.get("OUT", "."), "flex.json").write_text(json.dumps(rows, indent=1))
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: us of ours and FlexAttention's, and their ratio")
    print("\n".join(lines_of(rows)))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    told = "FlexAttention's modifications in compiled models on a GPU, against PyTorch's own"
    return command("benchmarks.flex", told, add_arguments, run, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
