"""Settings of the whole test run: the same draws every time, no options from the user's shell, no code from disk."""

from __future__ import annotations

import gc
import importlib.util
import inspect
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# Derandomised: a failure seen once is seen again. No deadline: the first example of a test often compiles.
hypothesis.settings.register_profile("tvm-cascade", derandomize=True, deadline=None)
hypothesis.settings.load_profile("tvm-cascade")


NO_CACHE = {"TVM_CASCADE_CACHE_MIB": "0"}
"""Compiled code is neither read from disk nor kept there: tests are of the code as it is, and of what they changed."""

os.environ.update(NO_CACHE)
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of NumPy: tests are many at once already, and products small


XDIST = importlib.util.find_spec("xdist")
if XDIST is not None and XDIST.origin:  # a worker runs this file, which `inspect` would search for at each PrimFunc
    inspect.modulesbyfile.setdefault(str(Path(XDIST.origin).with_name("remote.py")), "xdist.remote")


_BUILD = "target.build.llvm"
_QUICKLY = {"opt-level": 0, "cl-opt": ["-fast-isel=true"]}
"""Attributes of a target: no optimiser, and instructions selected one by one, as the former alone does not ask for."""


def pytest_addoption(parser: pytest.Parser) -> None:
    told = "LLVM optimises in all tests, as it does for users; without it, in those alone that ask for `optimised`"
    parser.addoption("--optimised", action="store_true", help=told)


@pytest.fixture(scope="session", autouse=True)
def _unoptimised(request: pytest.FixtureRequest) -> Iterator[Any]:
    """LLVM does not optimise: what tests of results would gain by it is a fraction of what it takes.

    It changes no bit of fused loops for a plain CPU, which a test of `transform` shows.
    """
    import tvm
    from tvm.target import Target

    build = tvm.get_global_func(_BUILD)
    if not request.config.getoption("optimised"):
        _register(lambda mod, target: build(mod, Target({**target.export(), **_QUICKLY})))
    yield build
    _register(build)


@pytest.fixture
def optimised(_unoptimised: Any) -> Iterator[None]:
    """For tests of the code that LLVM makes, or of its speed."""
    usual = _register(_unoptimised)
    yield
    _register(usual)


def _register(build: Any) -> Any:
    """Let it build what LLVM compiles; returns what did so."""
    import tvm

    before = tvm.get_global_func(_BUILD)
    tvm.register_global_func(_BUILD, build, override=True)
    return before


def pytest_collection_finish() -> None:
    """Collects garbage rarely: what imports and SymPy's caches hold is long-lived."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture(autouse=True)
def _no_preset_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("TVM_CASCADE_") and name not in NO_CACHE:
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def _idle_workers() -> Iterator[list[tuple[Any, Any]]]:
    idle = list[tuple[Any, Any]]()
    yield idle
    for process, pipe in idle:
        pipe.close()
        process.wait()


@pytest.fixture
def kept_workers(_idle_workers: list[tuple[Any, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of sessions that are over serve the next ones, also of other tests: a process takes seconds to start."""
    from tvm_cascade.tuning.building import LocalBuilder
    from tvm_cascade.tuning.running import LocalRunner
    from tvm_cascade.tuning.worker import Worker

    start, call, busy = Worker._started, Worker.call, set[Worker]()

    def started(self: Worker) -> Any:
        while self._pipe is None and _idle_workers:
            process, pipe = _idle_workers.pop()
            if process.poll() is None:
                self._process, self._pipe = process, pipe
        return start(self)

    def called(self: Worker, *arguments: Any, **limits: Any) -> Any:
        busy.add(self)
        try:
            return call(self, *arguments, **limits)
        finally:
            busy.discard(self)

    def close(workers: list[Worker]) -> None:
        for worker in workers:
            if worker._pipe is not None and worker not in busy:
                _idle_workers.append((worker._process, worker._pipe))
                worker._process = worker._pipe = None
            worker.stop()

    monkeypatch.setattr(Worker, "_started", started)
    monkeypatch.setattr(Worker, "call", called)
    monkeypatch.setattr(LocalBuilder, "close", lambda builder: close(builder._workers))
    monkeypatch.setattr(LocalRunner, "close", lambda runner: close([runner._worker]))


@pytest.fixture(autouse=True)
def _plain_logger() -> Iterator[None]:
    """A tuning run of MetaSchedule leaves its logger apart from the root's, and pytest then adds handlers to it.

    They have no names, which the next run in the process stumbles over.
    """
    yield
    logger = logging.getLogger("tvm.s_tir.meta_schedule")
    logger.propagate = True
    logger.handlers.clear()
