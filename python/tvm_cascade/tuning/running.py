"""Runs designs on a device of this machine, in a worker: each result is checked, then timed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

import tvm
from numpy.typing import NDArray

from tvm_cascade.driver.backends import backend_of
from tvm_cascade.driver.space import Design
from tvm_cascade.errors import InputError
from tvm_cascade.tuning.building import Built
from tvm_cascade.tuning.measuring import Data
from tvm_cascade.tuning.task import Task, prepare
from tvm_cascade.tuning.worker import Worker

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
        hint = "tune on a machine with the device, or pass `runner`; `compile(database=)` needs no device"
        raise InputError(f"a device of kind {target.kind.name} to measure on", "none here", "tune", hint)


@lru_cache(maxsize=1)
def _data(task: Task) -> Data:
    return Data(task, backend_of(task.goal.target).first_device)


def measured(how: str, task: Task, *libraries: Any) -> Any:
    """What a method of the task's `Data` finds of libraries, in a worker."""
    return getattr(_data(task), how)(*libraries)
