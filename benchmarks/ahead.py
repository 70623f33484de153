"""Compiles the programs of a suite ahead in worker processes: TVM's as libraries, Inductor's in its disk cache.

Nothing is timed meanwhile. What fails here is compiled again when it is measured, whose row then says what is wrong.
"""

from __future__ import annotations

import math
import multiprocessing
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import tvm

from benchmarks import peers
from benchmarks.check.audit import on_one_core
from benchmarks.device import CUDA, torch_on_gpu
from benchmarks.gpu import torch_peers, tvm_peers
from benchmarks.gpu.check import twin
from benchmarks.gpu.prepared import Prepare, Prepared
from benchmarks.gpu.problem import Problem, problem_class
from benchmarks.judge.forms import Absent
from benchmarks.record import OURS, own
from benchmarks.suites import entries
from benchmarks.suites.entry import Entry
from corpus.workload import Workload

Suites = Mapping[str, tuple[Sequence[Entry], Mapping[str, Prepare]]]
"""By name the entries and the rows of a suite."""


@dataclass(frozen=True)
class Ready:
    """What a process has compiled.

    Attributes
    ----------
    seconds : that it took, beside others.
    path : of a library whose `main` is the program; None where a cache on disk has it.
    configuration, estimate : see `Prepared`.
    """

    seconds: float
    path: str | None = None
    configuration: str = ""
    estimate: float | None = None


Key = tuple[object, ...]


def _key(name: str, workload: Workload) -> Key:
    return (name, workload.builder, *workload.shape.items(), workload.dtype)


@contextmanager
def compiled_ahead(
    suites: Suites, jobs: int, seconds: float = math.inf, twins: bool = True
) -> Iterator[Mapping[str, dict[str, Prepare]]]:
    """The rows of each suite, whose programs are compiled already.

    Parameters
    ----------
    suites : what is wanted.
    jobs : processes; without any, nothing is compiled ahead.
    seconds : after which what is not compiled is left to be.
    twins : whether small shapes are wanted too.
    """
    with TemporaryDirectory() as folder:
        ready = _compiled(suites, jobs, Path(folder), time.monotonic() + seconds, twins) if jobs else {}
        yield {
            suite: {name: _with(ready, name, prepare) for name, prepare in rows.items()}
            for suite, (_, rows) in suites.items()
        }


def _compiled(suites: Suites, jobs: int, folder: Path, deadline: float, twins: bool) -> dict[Key, Ready]:
    context = multiprocessing.get_context("spawn")  # neither TVM's threads nor CUDA survive a fork
    pool = ProcessPoolExecutor(jobs, context, initializer=on_one_core)
    coming: dict[Key, Future[Ready]] = {}
    with suppress(BrokenProcessPool):  # a process was killed: what is not compiled by then is not
        for suite, entry, name, small in _wanted(suites, twins):
            key = _key(name, twin(entry.workload) if small else entry.workload)
            if key not in coming:
                path = str(folder / f"{len(coming)}.so")
                coming[key] = pool.submit(_compile, suite, entry.label, name, small, path)
    wait(coming.values(), None if math.isinf(deadline) else max(0.0, deadline - time.monotonic()))
    found = {key: f.result() for key, f in coming.items() if f.done() and not f.cancelled() and f.exception() is None}
    workers = [*(pool._processes or {}).values()]  # which else would go on while something is timed
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()
        worker.join()
    return found


def _wanted(suites: Suites, twins: bool) -> Iterator[tuple[str, Entry, str, bool]]:
    """Suite, entry, row and whether its small twin: all suites side by side, twins last."""
    places = [
        (k / len(chosen), suite, entry, rows)
        for suite, (chosen, rows) in suites.items()
        for k, entry in enumerate(chosen)
    ]
    for small in (False, True) if twins else (False,):
        for _, suite, entry, rows in sorted(places, key=lambda place: place[0]):
            for name in rows:
                slow = own(name) or (name == tvm_peers.TVM_DEFAULT and not small)
                if name == OURS or (slow and entry.smallest) or (name == peers.INDUCTOR and not small):
                    yield suite, entry, name, small


def _compile(suite: str, label: str, name: str, small: bool, path: str) -> Ready:
    """What a process does."""
    start = time.perf_counter()
    (entry,) = entries(suite, [label])
    workload = twin(entry.workload) if small else entry.workload
    if name == peers.INDUCTOR:
        torch = torch_on_gpu(f"--suite {suite}")
        prepared = peers.of_suite(suite)[name](problem_class(workload).drawn(torch, workload, CUDA, seed=0))
        if not isinstance(prepared, Absent):
            prepared.run()
        torch.cuda.synchronize()
        torch_peers.forget_compiled()
        torch.cuda.empty_cache()
        return Ready(time.perf_counter() - start)
    allowed = dict.fromkeys(workload.allowances if name == OURS else (), True)
    code = tvm_peers.COMPILERS[name](workload.program.prim_func(), **allowed)
    code.executable.export_library(path)
    return Ready(time.perf_counter() - start, path, code.configuration(), code.estimate())


def _with(ready: Mapping[Key, Ready], name: str, prepare: Prepare) -> Prepare:
    def prepared(problem: Problem) -> Prepared | Absent:
        found = ready.get(_key(name, problem.workload))
        if found is None:
            return prepare(problem)
        if found.path is None:
            own = prepare(problem)
            return own if isinstance(own, Absent) else replace(own, ahead_seconds=found.seconds)
        function = tvm.runtime.load_module(found.path)["main"]
        own = tvm_peers.filling(problem, function, lambda: found.configuration, lambda: found.estimate)
        return replace(own, ahead_seconds=found.seconds)

    return prepared
