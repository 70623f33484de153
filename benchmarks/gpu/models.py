"""The suite `gpu_models`: whole PyTorch models on a GPU, by ours, by PyTorch eager and compiled, and by plain TVM.

What is timed is one replay of a CUDA graph of each, so that the host's time to launch kernels does not count.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib
from collections.abc import Mapping
from typing import Any

from benchmarks.gpu import device, table
from benchmarks.gpu.timing import DeviceClock, GpuPlan, measure
from benchmarks.model_suite import ROWS, Call, Entry, Place, measured
from benchmarks.record import check_files
from benchmarks.table import console
from tvm_cascade.cli.timing import Timing
from tvm_cascade.corpus.forms import TVM_DEFAULT
from tvm_cascade.driver.progress import waiting
from tvm_cascade.driver.targets import resolve_target

SUITE = "gpu_models"

_WARM_UP_CALLS = 3


def run(args: argparse.Namespace) -> int:
    """Measure the models, print their tables, and write them where `--json` says; 1 where a row is wrong or failed."""
    check_files(json=args.json)
    torch = device.torch_on_gpu(f"--suite {SUITE}")
    importlib.import_module("tvm_cascade.torch")
    plan = GpuPlan() if args.rounds is None else GpuPlan(rounds=args.rounds)
    where, clock = device.describe(torch, args.commit), DeviceClock(torch)
    table.print_environment(console(), where)

    def timed(label: str, calls: Mapping[str, Call]) -> Mapping[str, Timing | Exception]:
        with waiting(f"{label}: timing"):
            return measure(calls, plan, clock)

    rows = {name: row for name, row in ROWS.items() if not (args.skip_default and name == TVM_DEFAULT)}
    ready = functools.partial(captured, torch)
    place = Place(SUITE, resolve_target(device.DEVICE), "bfloat16", device.DEVICE, rows, ready, timed)
    return measured(entries(), args, place, dataclasses.asdict(where))


def entries() -> list[Entry]:
    """The models, and Llama's layers as they are served: a batch of prompts, and one token over caches."""
    from benchmarks.torch_models import served
    from benchmarks.torch_models.sizes import Sizes
    from benchmarks.torch_models.table import MODELS, model

    sizes = Sizes(layers=4, width=1024, heads=16, shared_heads=4, length=1024, batch=8, vocabulary=8192)
    found = [Entry(name, dataclasses.asdict(sizes), functools.partial(model, name, sizes)) for name in MODELS]
    layers = {
        "llama_prefill": served.Served(),
        "llama_decode_1": served.Served(batch=1, tokens=1, keys=4096),
        "llama_decode_32": served.Served(batch=32, tokens=1, keys=4096),
    }
    return found + [
        Entry(name, dataclasses.asdict(one), functools.partial(served.build, one)) for name, one in layers.items()
    ]


def captured(torch: Any, call: Call) -> Call:
    """A replay of a call's CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UP_CALLS):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        kept = call()

    def replay() -> Any:
        graph.replay()
        return kept

    return replay
