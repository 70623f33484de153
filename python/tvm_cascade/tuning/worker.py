"""Worker processes: what is called there may hang or crash, and is cut off or told of.

A worker is a Python process of its own, which imports no file of the caller's, and takes calls of functions by name
until its pipe is closed. What runs past its limit ends the worker; the next call starts another.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import subprocess
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tvm_cascade.devices.host import core_count

_GRACE_SECONDS = 60.0
"""To start: importing TVM and this package takes seconds, on a busy machine many."""


class TrialError(Exception):
    """A design that gives no time: its stage (build, limit, crash, run, check) and the reason."""

    def __init__(self, stage: str, reason: str) -> None:
        super().__init__(f"{stage}: {reason}")
        self.stage, self.reason = stage, reason


class Worker:
    """One process, started at its first call.

    Attributes
    ----------
    stage : what failures of what is called count as.
    """

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection[Any, Any] | None = None

    def call(self, function: str, *arguments: Any, seconds: float) -> Any:
        """The result of `module:function` in the worker.

        Raises
        ------
        TrialError
            Where it raises, takes longer than that, or ends the process.
        """
        pipe = self._started()
        try:
            pipe.send((function, arguments))
            if not pipe.poll(seconds):
                self.stop()
                raise TrialError("limit", f"the {self.stage} took more than {seconds:.0f} s")
            ok, value = pipe.recv()
        except (EOFError, OSError) as error:
            code = self._ended()
            raise TrialError("crash", f"the {self.stage} ended its process with {code}") from error
        if not ok:
            stage, reason = value
            raise TrialError(stage or self.stage, reason)
        return value

    def stop(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = self._pipe = None

    def _started(self) -> Connection[Any, Any]:
        if self._pipe is not None:
            return self._pipe
        ours, theirs = socket.socketpair()
        places = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
        environment = {**_threads(), **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}
        command = [sys.executable, "-c", "from tvm_cascade.tuning.worker import serve; serve()", str(theirs.fileno())]
        self._process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        theirs.close()
        self._pipe = Connection(ours.detach())
        if not self._pipe.poll(_GRACE_SECONDS):
            self.stop()
            raise TrialError("crash", f"a worker did not start within {_GRACE_SECONDS:.0f} s")
        try:
            self._pipe.recv()
        except EOFError as error:
            raise TrialError("crash", f"a worker did not start, and ended with {self._ended()}") from error
        return self._pipe

    def _ended(self) -> str:
        assert self._process is not None
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = 0
        self.stop()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _threads() -> dict[str, str]:
    """What TVM is told of its threads: it would bind them to the first cores, also where we may use others alone."""
    return {"TVM_BIND_THREADS": "0"} if core_count() < (os.cpu_count() or 1) else {}


def serve() -> None:
    """What a worker runs: calls of functions by name, until the other end closes."""
    pipe = Connection(int(sys.argv[1]))
    pipe.send("ready")
    while True:
        try:
            name, arguments = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            module, _, function = name.partition(":")
            pipe.send((True, getattr(importlib.import_module(module), function)(*arguments)))
        except TrialError as error:
            pipe.send((False, (error.stage, error.reason)))
        except BaseException as error:  # whatever a compiler or a kernel runs into is the reason of a failed trial
            pipe.send((False, ("", _told(error))))


def _told(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    last = lines[-1] if lines else traceback.format_exception_only(error)[-1].strip()
    first = lines[0] if lines else ""
    return f"{type(error).__name__}: {first if first == last else f'{first} … {last}'}"[:400]
