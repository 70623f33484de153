"""Compiles the programs of a suite ahead in worker processes: TVM's as libraries, Inductor's in its disk cache.

Nothing is timed meanwhile. What fails here is compiled again when it is measured, whose row then says what is wrong.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import tvm

from benchmarks.gpu import device, peers, torch_peers, tvm_peers
from benchmarks.gpu.check import twin
from benchmarks.gpu.entry import GpuEntry
from benchmarks.gpu.peers import INDUCTOR, OURS, OWN, TVM_DEFAULT
from benchmarks.gpu.prepared import Prepare, Prepared
from benchmarks.gpu.problems import AnyProblem, problem_class
from benchmarks.gpu.suites import entries
from tvm_cascade.corpus.forms import Absent
from tvm_cascade.corpus.one_core import on_one_core
from tvm_cascade.corpus.workload import Workload


@dataclass(frozen=True)
class Ready:
    """What a process has compiled.

    Attributes
    ----------
    seconds : that it took, beside others.
    path : of a library whose `main` is the program; None where a cache on disk has it.
    configuration : see `Prepared`.
    """

    seconds: float
    path: str | None = None
    configuration: str = ""


Key = tuple[object, ...]


def _key(name: str, workload: Workload) -> Key:
    return (name, workload.builder, *workload.shape.items(), workload.dtype)


@contextmanager
def compiled_ahead(
    rows: Mapping[str, Prepare], suite: str, chosen: Sequence[GpuEntry], jobs: int
) -> Iterator[Mapping[str, Prepare]]:
    """The same rows, whose programs of a suite's workloads are compiled already.

    Parameters
    ----------
    suite, chosen : its name and its entries.
    jobs : processes.
    """
    with TemporaryDirectory() as folder:
        ready = _compiled(rows, suite, chosen, jobs, Path(folder))
        yield {name: _with(ready, name, prepare) for name, prepare in rows.items()}


def _compiled(
    rows: Mapping[str, Prepare], suite: str, chosen: Sequence[GpuEntry], jobs: int, folder: Path
) -> dict[Key, Ready]:
    context = multiprocessing.get_context("spawn")  # neither TVM's threads nor CUDA survive a fork
    pool = ProcessPoolExecutor(jobs, context, initializer=on_one_core)
    coming: dict[Key, Future[Ready]] = {}
    wanted = [(entry, name, small) for entry in chosen for name in rows for small in (False, True)]
    with suppress(BrokenProcessPool):  # a process was killed: what is not compiled by then is not
        for entry, name, small in wanted:
            key = _key(name, twin(entry.workload) if small else entry.workload)
            known = name == OURS or (entry.smallest and name in OWN)
            known |= not small and (name == INDUCTOR or (entry.smallest and name == TVM_DEFAULT))
            if known and key not in coming:
                path = str(folder / f"{len(coming)}.so")
                coming[key] = pool.submit(_compile, suite, entry.label, name, small, path)
    found = {}
    for key, future in coming.items():
        if future.exception() is None:
            found[key] = future.result()
    pool.shutdown()
    return found


def _compile(suite: str, label: str, name: str, small: bool, path: str) -> Ready:
    """What a process does."""
    start = time.perf_counter()
    (entry,) = entries(suite, [label])
    workload = twin(entry.workload) if small else entry.workload
    if name == INDUCTOR:
        torch = device.torch_on_gpu(f"--suite {suite}")
        prepared = peers.of_suite(suite)[name](problem_class(workload).drawn(torch, workload, device.DEVICE, seed=0))
        if not isinstance(prepared, Absent):
            prepared.run()
        torch.cuda.synchronize()
        torch_peers.forget_compiled()
        torch.cuda.empty_cache()
        return Ready(time.perf_counter() - start)
    allowed = dict.fromkeys(workload.allowances if name == OURS else (), True)
    code = tvm_peers.COMPILERS[name](workload.program.prim_func(), **allowed)
    code.executable.export_library(path)
    return Ready(time.perf_counter() - start, path, code.configuration())


def _with(ready: Mapping[Key, Ready], name: str, prepare: Prepare) -> Prepare:
    def prepared(problem: AnyProblem) -> Prepared | Absent:
        found = ready.get(_key(name, problem.workload))
        if found is None:
            return prepare(problem)
        if found.path is None:
            own = prepare(problem)
            return own if isinstance(own, Absent) else replace(own, ahead_seconds=found.seconds)
        function = tvm.runtime.load_module(found.path)["main"]
        own = tvm_peers.filling(problem, function, lambda: found.configuration)
        return replace(own, ahead_seconds=found.seconds)

    return prepared
