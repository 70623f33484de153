"""Runs designs on a device of this machine, in a worker: each result is checked, then timed."""

from __future__ import annotations

import contextlib
import gc
import queue
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import tvm
from numpy.typing import NDArray
from tvm import rpc

from tvm_cascade.driver.backends import backend_of
from tvm_cascade.driver.space import Design
from tvm_cascade.errors import InputError
from tvm_cascade.tuning.building import Built
from tvm_cascade.tuning.measuring import Data
from tvm_cascade.tuning.task import Task, prepare
from tvm_cascade.tuning.worker import TrialError, Worker

Array = NDArray[Any]


class Runner(Protocol):
    """What checks and times designs."""

    batch: int
    """How many it runs at a time, on devices that are alike; known once a task is prepared."""

    def prepare(self, task: Task, inputs: Sequence[Array] | None) -> None:
        """Makes what designs of a task run on, before the first of a session; of the caller's inputs, if any."""
        ...

    def run(self, task: Task, design: Design, built: Built, default: Built) -> float:
        """Seconds of a design whose result is right.

        Raises
        ------
        TrialError
            Where it hangs, crashes, or its result is wrong.
        """
        ...

    def compare(self, task: Task, designs: Sequence[tuple[Design, Built]]) -> list[float]:
        """Seconds of several designs, measured in turns."""
        ...

    def close(self) -> None: ...


class LocalRunner:
    """Runs on this machine's device, in a worker.

    Parameters
    ----------
    seconds : that one design may take, with the first one's making of the data.
    """

    batch = 1

    def __init__(self, seconds: float = 60.0) -> None:
        self.seconds = seconds
        self._worker = Worker("run")

    def prepare(self, task: Task, inputs: Sequence[Array] | None) -> None:
        prepare(task, inputs)

    def run(self, task: Task, design: Design, built: Built, default: Built) -> float:
        return float(self._called("checked", self.seconds, task, built.library, default.library))

    def compare(self, task: Task, designs: Sequence[tuple[Design, Built]]) -> list[float]:
        libraries = [built.library for _, built in designs]
        return list(self._called("in_turns", self.seconds * len(libraries), task, libraries))

    def _called(self, how: str, seconds: float, *arguments: Any) -> Any:
        return self._worker.call(f"{__name__}:measured", how, *arguments, seconds=seconds)

    def close(self) -> None:
        self._worker.stop()


def check_device(target: tvm.target.Target) -> None:
    """Refuse targets that this machine cannot run.

    Raises
    ------
    InputError
        Where it has no such device.
    """
    if not backend_of(target).first_device.exist:
        hint = "tune on a machine with the device, or pass `runner`, as --tracker does; `compile(database=)` needs none"
        raise InputError(f"a device of kind {target.kind.name} to measure on", "none here", "tune", hint)


@lru_cache(maxsize=1)
def _data(task: Task) -> Data:
    return Data(task, backend_of(task.goal.target).first_device)


def measured(how: str, task: Task, *libraries: Any) -> Any:
    """What a method of the task's `Data` finds of libraries, in a worker."""
    return getattr(_data(task), how)(*libraries)


# Runs designs on devices elsewhere: servers of TVM's RPC that are registered at a tracker under a key.
#
# Each design has a session of its own, so a process of its own on the server, which ends it when its time is over: what
# crashes or hangs there leaves nothing behind. As many designs run at a time as servers are free when a task begins.
# Sessions are opened in workers here, since waiting for a server has no limit in TVM.


_CLOSING_SECONDS = 5.0
"""That a server has, beyond what a design may take, before it ends the design's process itself."""


@dataclass(frozen=True)
class Tracker:
    """Where servers are found.

    Attributes
    ----------
    host, port : of the tracker.
    key : of the servers.
    """

    host: str
    port: int
    key: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class TrackerRunner:
    """Runs on whichever servers are free: devices, systems and a TVM like those that designs are built for.

    Parameters
    ----------
    host, port : of the tracker.
    key : of the servers.
    seconds : that one design may take, with sending it and its data.
    waiting : seconds for a server to be free.
    """

    def __init__(self, host: str, port: int, key: str, seconds: float = 60.0, waiting: float = 60.0) -> None:
        self.tracker, self.seconds, self.waiting = Tracker(host, port, key), seconds, waiting
        self.batch = 1
        self._workers = [Worker("run")]
        self._free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        self._free.put(self._workers[0])

    def prepare(self, task: Task, inputs: Sequence[Array] | None) -> None:
        """See `Runner`; the data are kept here, and sent to each session.

        Raises
        ------
        InputError
            Where no server is registered under the key.
        """
        with self._worker() as worker:
            servers, free = self._asked(worker, "known", self.tracker)
        if self.tracker.key not in servers:
            raise self._missing(f"servers of keys: {', '.join(sorted(set(servers))) or 'none'}")
        self.batch = max(1, free)
        for _ in range(len(self._workers), self.batch):
            self._workers.append(Worker("run"))
            self._free.put(self._workers[-1])
        prepare(task, inputs)

    def run(self, task: Task, design: Design, built: Built, default: Built) -> float:
        return float(self._called("checked", self.seconds, task, built.library, default.library))

    def compare(self, task: Task, designs: Sequence[tuple[Design, Built]]) -> list[float]:
        """See `Runner`; all in one session, on one device."""
        libraries = [built.library for _, built in designs]
        return list(self._called("in_turns", self.seconds * len(libraries), task, libraries))

    def close(self) -> None:
        """Ends its workers, and with them their sessions."""
        for worker in self._workers:
            worker.stop()

    @contextlib.contextmanager
    def _worker(self) -> Iterator[Worker]:
        worker = self._free.get()
        try:
            yield worker
        finally:
            self._free.put(worker)

    def _called(self, how: str, seconds: float, *arguments: Any) -> Any:
        """What is measured in a session; once more where the server is lost, on whichever is free then."""
        with self._worker() as worker:
            for last in (False, True):
                self._asked(worker, "acquire", self.tracker, seconds + _CLOSING_SECONDS)
                try:
                    return worker.call(f"{__name__}:measured_elsewhere", how, *arguments, seconds=seconds)
                except TrialError as error:
                    if last or error.stage in ("check", "limit"):
                        raise
        raise AssertionError

    def _asked(self, worker: Worker, function: str, *arguments: Any) -> Any:
        """What concerns the tracker, and no design: where it fails the session ends, and goes on another time."""
        try:
            return worker.call(f"{__name__}:{function}", *arguments, seconds=self.waiting)
        except TrialError as error:
            raise self._missing(error.reason) from error

    def _missing(self, found: str) -> InputError:
        expected = f"a free server of key `{self.tracker.key}` at the tracker {self.tracker}"
        hint = (
            "start `python -m tvm.exec.rpc_tracker`, and `python -m tvm.exec.rpc_server --tracker HOST:PORT --key "
            f"{self.tracker.key}` where the device is; or wait until one is free. What was measured is on record"
        )
        return InputError(expected, found, "tune", hint)


_session: list[rpc.RPCSession] = []
"""That was acquired for the next call, in a worker."""


def known(tracker: Tracker) -> tuple[list[str], int]:
    """The keys of the servers that are registered, and how many of this key wait for a session, in a worker."""
    summary = rpc.connect_tracker(tracker.host, tracker.port).summary()
    keys = [str(server["key"]).removeprefix("server:") for server in summary["server_info"]]
    return keys, int(summary["queue_info"].get(tracker.key, {}).get("free", 0))


def acquire(tracker: Tracker, seconds: float) -> None:
    """Waits for a free server, and opens a session that it ends after so many seconds, in a worker."""
    gc.collect()  # what a failed call left of the last session
    _session[:] = [rpc.connect_tracker(tracker.host, tracker.port).request(tracker.key, session_timeout=seconds)]


def measured_elsewhere(how: str, task: Task, *libraries: Any) -> Any:
    """What a method of the task's `Data` finds of libraries on a server, in a worker that has a session.

    The session ends, and the server is free again, when nothing refers to it any more.
    """
    session = _session.pop()

    def loaded(library: Path) -> Any:
        session.upload(str(library))
        return session.load_module(library.name)

    data = Data(task, session.device(backend_of(task.goal.target).runtime, 0), loaded)
    return getattr(data, how)(*libraries)
