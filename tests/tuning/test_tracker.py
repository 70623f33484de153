"""Designs measured on servers of TVM's RPC: a tracker and two servers on this machine, each a process of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tvm
from tvm import te

import tvm_cascade
from corpus import workloads
from tvm_cascade import cli
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.errors import InputError
from tvm_cascade.options import FuseOptions
from tvm_cascade.tuning import running as tracker
from tvm_cascade.tuning.building import Built, LocalBuilder, build
from tvm_cascade.tuning.running import Tracker, TrackerRunner, known
from tvm_cascade.tuning.task import Task, space_for, task_of
from tvm_cascade.tuning.worker import TrialError

from .fakes import FakeBuilder

pytest.importorskip("tornado")
pytestmark = pytest.mark.usefixtures("kept_workers")
KEY = "this-cpu"
START_SECONDS, WAITING = 60.0, 40.0


class Remote:
    """A tracker and servers, with what they say."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, _free_port()
        self.processes: list[subprocess.Popen[bytes]] = []
        self._started("rpc_tracker", "--port", str(self.port), "--port-end", str(self.port + 1))
        _wait(lambda: "bind to" in self.logs(), self.logs)
        self.tracker = Tracker("127.0.0.1", self.port, KEY)

    def serve(self) -> None:
        """Starts one more server, and waits until the tracker knows it."""
        before, port = self.count(), _free_port()
        address = ["--port", str(port), "--port-end", str(port + 1), "--tracker", str(self.tracker)]
        self._started("rpc_server", *address, "--key", KEY)
        self.wait_for(before + 1)

    def count(self) -> int:
        """The servers that the tracker knows."""
        return known(self.tracker)[0].count(KEY)

    def free(self) -> int:
        """The servers that wait for a session."""
        return known(self.tracker)[1]

    def wait_for(self, count: int) -> None:
        """Waits until the tracker knows so many."""
        _wait(lambda: self.count() == count, self.logs)

    def logs(self) -> str:
        """What all processes said."""
        return "\n".join(path.read_text() for path in self.folder.glob("*.log"))

    def sessions(self) -> list[int]:
        """How many sessions each server had."""
        return [path.read_text().count("start serving") for path in sorted(self.folder.glob("*rpc_server.log"))]

    def _started(self, program: str, *arguments: str) -> None:
        with (self.folder / f"{len(self.processes)}_{program}.log").open("wb") as log:
            command = [sys.executable, "-m", f"tvm.exec.{program}", "--host", "127.0.0.1", *arguments]
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True))

    def stop(self, number: int) -> None:
        """Ends a process with those that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.processes[number].pid, signal.SIGKILL)
        self.processes[number].wait(timeout=10)


def _wait(done: Callable[[], bool], told: Callable[[], str]) -> None:
    ends = time.monotonic() + START_SECONDS
    while not done():
        assert time.monotonic() < ends, told()
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    started = Remote(tmp_path_factory.mktemp("rpc"))
    try:
        started.serve()
        started.serve()
        yield started
    finally:
        for number in range(len(started.processes)):
            started.stop(number)


@pytest.fixture(scope="module")
def kept(remote: Remote) -> Iterator[TrackerRunner]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tracker, "_CLOSING_SECONDS", 1.0)
        made = TrackerRunner("127.0.0.1", remote.port, KEY, waiting=WAITING)
        yield made
        made.close()


@pytest.fixture
def runner(remote: Remote, kept: TrackerRunner) -> TrackerRunner:
    """One runner, whose workers are kept from test to test: a process takes seconds to start."""
    kept.tracker, kept.seconds, kept.waiting = remote.tracker, 60.0, WAITING
    return kept


def softmax() -> tvm.tirx.PrimFunc:
    return workloads.get("softmax").with_shape(rows=16, length=512).build()


def task_in(folder: Path) -> Task:
    return task_of("softmax", softmax(), resolve_target("auto"), FuseOptions(), folder / "task")


def summing(terms: int, folder: Path) -> Built:
    """A library that sums so many roots: none of them the function's result, and many of them for days."""
    x = te.placeholder((16, 512), name="x")
    k = te.reduce_axis((0, terms), "k")
    out = te.compute(x.shape, lambda i, j: te.sum(te.sqrt(x[i, (j + k) % 512]), axis=k), name="out")
    func = te.create_prim_func([x, out]).with_attr("global_symbol", "softmax")
    library = folder / f"{terms}.so"
    tvm.compile(func, "llvm").export_library(str(library))
    return Built(library, terms)


def test_a_session_is_measured_on_the_servers(remote: Remote, runner: TrackerRunner) -> None:
    before = remote.sessions()
    with contextlib.closing(LocalBuilder(batch=1)) as builder:
        (found,) = tvm_cascade.tune(softmax(), trials=3, runner=runner, builder=builder).functions
    assert found.tried == 3 and not found.failures and found.best is not None
    assert any(trial.in_turns for trial in found.trials)
    new = [after - old for after, old in zip(remote.sessions(), before, strict=True)]
    assert sum(new) == 4 and min(new) >= 1, "three designs and a comparison, on whichever is free"


def test_what_is_wrong_or_endless_there_is_told_of_and_the_next_design_runs(
    tmp_path: Path, runner: TrackerRunner, remote: Remote
) -> None:
    task = task_in(tmp_path)
    runner.prepare(task, None)
    right = Built(tmp_path / "right.so", build(task, space_for(task).default, tmp_path / "right.so", frozenset()))
    with pytest.raises(TrialError, match="check: output 0 against float64"):
        runner.run(task, (), summing(2, tmp_path), right)
    runner.seconds = 2.0
    with pytest.raises(TrialError, match="limit: the run took more than 2 s"):
        runner.run(task, (), summing(1 << 50, tmp_path), right)
    runner.seconds = 60.0
    assert runner.run(task, (), right, right) > 0.0
    _wait(lambda: remote.free() == 2, remote.logs)  # a server ends what hangs by itself


@pytest.mark.slow
def test_designs_run_on_all_servers_at_once(tmp_path: Path, runner: TrackerRunner, remote: Remote) -> None:
    task, endless = task_in(tmp_path), summing(1 << 50, tmp_path)
    runner.prepare(task, None)
    assert runner.batch == 2
    runner.seconds = 8.0
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(runner.run, task, (), endless, endless) for _ in range(2)]
        _wait(lambda: remote.free() == 0, remote.logs)
        for one in both:
            with pytest.raises(TrialError, match="limit: the run took more than 8 s"):
                one.result()
    _wait(lambda: remote.free() == 2, remote.logs)


def test_a_server_that_has_gone_is_done_without(remote: Remote, runner: TrackerRunner, tmp_path: Path) -> None:
    remote.stop(1)
    remote.wait_for(1)
    told = tmp_path / "tuned"
    command = ["tune", "softmax", "--shape", "rows=16", "length=512", "--trials", "2", "--work-dir", str(told)]
    assert cli.main([*command, "--tracker", str(remote.tracker), "--key", KEY]) == 0


def test_a_missing_server_or_tracker_is_told_of(remote: Remote, runner: TrackerRunner) -> None:
    runner.tracker = Tracker("127.0.0.1", remote.port, "a100")
    with pytest.raises(InputError, match=f"(?s)key `a100` .*servers of keys: {KEY}"):
        tvm_cascade.tune(softmax(), trials=1, runner=runner, builder=FakeBuilder())
    runner.tracker, runner.waiting = Tracker("127.0.0.1", _free_port(), KEY), 1.0
    with pytest.raises(InputError, match=r"rpc_server --tracker HOST:PORT"):
        tvm_cascade.tune(softmax(), trials=1, runner=runner, builder=FakeBuilder())
