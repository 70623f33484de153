"""Runs designs on devices elsewhere: servers of TVM's RPC that are registered at a tracker under a key.

Each design has a session of its own, so a process of its own on the server, which ends it when its time is over: what
crashes or hangs there leaves nothing behind. Sessions are opened in a worker here, since waiting for a server has no
limit in TVM.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

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
T = TypeVar("T")

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
    """Runs on the first server that is free: a device, a system and a TVM like those that designs are built for.

    Parameters
    ----------
    host, port : of the tracker.
    key : of the servers.
    seconds : that one design may take, with sending it and its data.
    waiting : seconds for a server to be free.
    """

    def __init__(self, host: str, port: int, key: str, seconds: float = 60.0, waiting: float = 60.0) -> None:
        self.tracker, self.seconds, self.waiting = Tracker(host, port, key), seconds, waiting
        self._worker = Worker("run")

    def prepare(self, task: Task, inputs: Sequence[Array] | None) -> None:
        """See `Runner`; the data are kept here, and sent to each session.

        Raises
        ------
        InputError
            Where no server is registered under the key.
        """
        found = self._asked("servers", self.tracker)
        if self.tracker.key not in found:
            keys = ", ".join(sorted(set(found))) or "none"
            raise self._missing(f"servers of keys: {keys}")
        prepare(task, inputs)

    def run(self, task: Task, design: Design, built: Built, default: Built) -> float:
        """See `Runner`."""
        return float(self._called("checked", self.seconds, task, built.library, default.library))

    def compare(self, task: Task, designs: Sequence[tuple[Design, Built]]) -> list[float]:
        """See `Runner`; all in one session, on one device."""
        libraries = [built.library for _, built in designs]
        return list(self._called("in_turns", self.seconds * len(libraries), task, libraries))

    def close(self) -> None:
        """Ends its worker, and with it the session."""
        self._worker.stop()

    def _called(self, function: str, seconds: float, *arguments: Any) -> Any:
        """What a function gives in a session; once more where the server is lost, on whichever is free then."""
        for last in (False, True):
            self._asked("acquire", self.tracker, seconds + _CLOSING_SECONDS)
            try:
                return self._worker.call(f"{__name__}:{function}", *arguments, seconds=seconds)
            except TrialError as error:
                if last or error.stage in ("check", "limit"):
                    raise
        raise AssertionError

    def _asked(self, function: str, *arguments: Any) -> Any:
        """What concerns the tracker, and no design: where it fails the session ends, and goes on another time."""
        try:
            return self._worker.call(f"{__name__}:{function}", *arguments, seconds=self.waiting)
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


def servers(tracker: Tracker) -> list[str]:
    """The keys of the servers that are registered, in a worker."""
    known = rpc.connect_tracker(tracker.host, tracker.port).summary()["server_info"]
    return [str(server["key"]).removeprefix("server:") for server in known]


def acquire(tracker: Tracker, seconds: float) -> None:
    """Waits for a free server, and opens a session that it ends after so many seconds, in a worker."""
    gc.collect()  # what a failed call left of the last session
    _session[:] = [rpc.connect_tracker(tracker.host, tracker.port).request(tracker.key, session_timeout=seconds)]


def checked(task: Task, library: Path, default: Path) -> float:
    """The median seconds of a library whose results are right, in a worker that has a session."""

    def run(data: Data, loaded: Callable[[Path], Any]) -> float:
        reference = [] if data.has_exact else data.results(loaded(default))
        module = loaded(library)
        data.check(data.results(module), reference)
        return data.seconds(module)

    return _in_session(task, run)


def in_turns(task: Task, libraries: Sequence[Path]) -> list[float]:
    """The median seconds of each library, measured in turns, in a worker that has a session."""
    return _in_session(task, lambda data, loaded: data.seconds_in_turns([loaded(one) for one in libraries]))


def _in_session(task: Task, run: Callable[[Data, Callable[[Path], Any]], T]) -> T:
    """What a function of the data, and of what loads libraries, gives on a server.

    The session ends, and the server is free again, when nothing refers to it any more.
    """
    session = _session.pop()

    def loaded(library: Path) -> Any:
        session.upload(str(library))
        return session.load_module(library.name)

    return run(Data(task, session.device(backend_of(task.goal.target).runtime, 0)), loaded)
