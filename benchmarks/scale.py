"""How well folds scale over the GPUs of a host, against what torch's own collectives and attention reach: run by hand.

    torchrun --nproc-per-node 4 -m benchmarks.scale [--cases WORD …]

Every row is checked first, against attention of some rows, or all losses, in float32. The share is that of ideal: the
time of one GPU for the whole, over that of all ranks together.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional as F

import tvm_cascade
from benchmarks.commands import add_cases as add_arguments
from benchmarks.commands import chosen, command
from benchmarks.context_parallel import PEERS, positions
from corpus.programs.attention import VARIANTS, attention
from corpus.programs.program import Precision
from corpus.workloads import get
from tvm_cascade.distributed import shard
from tvm_cascade.distributed.transport import Transport

Run = Callable[[], Any]
Tensors = Mapping[str, Any]

TURNS, RUNS = 5, 4
MOST_WRONG = 0.02
"""Of the largest value: what bfloat16 leaves of attention, of whose results zeros are 1 off."""

HEADS, KV_HEADS, WIDTH = 32, 8, 128


@dataclass(frozen=True)
class Case:
    """A sharded program: causal attention of a sequence, attention of one query over a cache, or a loss."""

    kind: str
    length: int
    batch: int = 1

    def __str__(self) -> str:
        return f"{self.kind} {self.length}" + (f" x {self.batch}" if self.batch > 1 else "")

    @property
    def program(self) -> Any:
        if self.kind == "cross-entropy":
            return get("cross_entropy").with_shape(rows=4096, length=self.length).with_dtype("bfloat16").build()
        queries = self.length if self.kind == "prefill" else 1
        shape = {
            "batch": self.batch, "heads": HEADS, "kv_heads": KV_HEADS, "queries": queries, "keys": self.length,
            "head_dim": WIDTH, "window": 0,
        }  # fmt: skip
        variant = "causal" if self.kind == "prefill" else "full"
        return attention(VARIANTS[variant])(shape, Precision("bfloat16", "float32")).prim_func()

    @property
    def sharding(self) -> dict[str, Any]:
        return {"rows": "i", "order": "zigzag"} if self.kind == "prefill" else {}


CASES = [
    *(Case("prefill", length) for length in (16384, 65536, 131072)),
    *(Case("decode", 131072, batch) for batch in (1, 16)),
    Case("cross-entropy", 128256),
]


def drawn(program: Any) -> dict[str, Any]:
    """Whole inputs, the same on all ranks."""
    torch.manual_seed(0)
    found = {}
    for param in program.params:
        shape, dtype = [int(extent) for extent in param.ty.shape], getattr(torch, str(param.ty.dtype))
        if dtype.is_floating_point:
            found[param.name] = torch.randn(shape, device="cuda", dtype=torch.float32).to(dtype)
        else:
            found[param.name] = torch.randint(0, 1000, shape, device="cuda", dtype=dtype)
    return found


def timed(run: Run) -> float:
    """Microseconds of a run on the slowest rank: the median of turns."""
    run()
    found = []
    for _ in range(TURNS):
        dist.barrier()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(RUNS):
            run()
        end.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(end) * 1e3 / RUNS)
    slowest = torch.tensor([statistics.median(found)], device="cuda")
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(slowest.item())


def in_graph(run: Run) -> Run:
    """The run as a CUDA graph, as servers launch decoding: it is shorter than what launches it."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def ours(case: Case, exchange: str, given: Tensors) -> tuple[Run, Tensors]:
    """(a run, this rank's tensors)."""
    program = case.program
    sharded = shard(program, exchange=exchange, **case.sharding)
    local = {name: sharded.local(name, tensor) for name, tensor in given.items()}
    values = list(local.values())
    return lambda: sharded(*values), local


def alone(case: Case, given: Tensors) -> Run:
    """The whole on one GPU, by the same compiler."""
    compiled = tvm_cascade.compile(case.program, target="cuda")
    values = list(given.values())
    return lambda: compiled(*values)


def wrong(case: Case, out: Any, own: Any, given: Tensors) -> float:
    """The largest error of some rows of this rank over the largest value, against float32.

    Parameters
    ----------
    own : positions of this rank's rows.
    """
    names = list(given)
    if case.kind == "cross-entropy":
        logits, label = given[names[0]].float(), given[names[1]].long()
        exact = F.cross_entropy(logits, label, reduction="none")
        return float((out.float().view(-1) - exact).abs().max() / exact.abs().max())
    q, k, v, *_ = (given[name].float() for name in names)
    out, worst = out.float(), 0.0
    for place in {0, len(own) // 3, len(own) - 1}:
        row = int(own[place])
        end = row + 1 if case.kind == "prefill" else case.length
        one = q[:, :, row].unflatten(1, (KV_HEADS, -1))
        p = (torch.einsum("bghd,bgkd->bghk", one, k[:, :, :end]) / math.sqrt(WIDTH)).softmax(-1)
        exact = torch.einsum("bghk,bgkd->bghd", p, v[:, :, :end]).flatten(1, 2)
        worst = max(worst, float((out[:, :, place] - exact).abs().max() / exact.abs().max()))
    return worst


def check(error: float) -> None:
    """Whether results of all ranks are right, on all of them.

    Raises
    ------
    ValueError
        When one is not.
    """
    errors = Transport(None).agree(error, "compare results")
    if not all(one <= MOST_WRONG for one in errors):  # also of NaN
        raise ValueError(f"wrong by {max(errors):.1e} of the largest value")


def row(case: Case) -> dict[str, Any]:
    """One row of the table; times in microseconds."""
    program = case.program
    given, graph = drawn(program), (lambda run: run) if case.kind == "prefill" else in_graph
    found: dict[str, Any] = {"case": str(case), "one": timed(graph(alone(case, given)))}
    own = positions(case.length, "zigzag", given[next(iter(given))]) if case.kind == "prefill" else torch.arange(1)
    for exchange in ("inputs", "rows", "ring") if case.kind == "prefill" else ("states",):
        try:
            run, local = ours(case, exchange, given)
            run()
            check(wrong(case, list(local.values())[-1], own, given))
            found[exchange] = timed(graph(run))
        except Exception as error:  # one exchange does not stop the table
            found[f"failed {exchange}"] = f"{type(error).__name__}: {error}"[:300]
    for name, peer in PEERS.items() if case.kind == "prefill" else ():
        try:
            with peer(*list(given.values())[:3]) as one:
                check(wrong(case, torch.cat([*one.run()], 2), one.positions, given))
                found[name] = timed(one.run)
        except Exception as error:
            found[f"failed {name}"] = f"{type(error).__name__}: {error}"[:300]
    found["chosen"] = shard(program, **case.sharding).plan.exchange.name
    return found


def run(args: argparse.Namespace) -> int:
    """Check and time the chosen cases on all ranks, and print them on the first; returns the exit code."""
    cases = chosen(CASES, args.cases)
    dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    ranks, rows = dist.get_world_size(), []
    for case in cases:
        rows.append(row(case))
        if dist.get_rank() == 0:
            print(rows[-1], flush=True)
    if dist.get_rank() == 0:
        print(f"{torch.cuda.get_device_name()} x {ranks}")
        for one in rows:
            times = {k: v for k, v in one.items() if isinstance(v, float) and k != "one"}
            shares = ", ".join(f"{k} {v:.0f} us, {one['one'] / v / ranks:.2f} of ideal" for k, v in times.items())
            failed = "".join(f"; {key}: {text}" for key, text in one.items() if key.startswith("failed"))
            print(f"{one['case']}: one GPU {one['one']:.0f} us; {shares}{failed}")
        Path(os.environ.get("OUT", "."), "scale.json").write_text(json.dumps(rows, indent=1))
    dist.destroy_process_group()
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    told = "folds over the GPUs of a host, started by torchrun, against torch's collectives and attention"
    return command("benchmarks.scale", told, add_arguments, run, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
