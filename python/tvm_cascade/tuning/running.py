"""Runs designs on a device of this machine, in a worker: each result is checked, then timed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
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
        found = self._worker.call(f"{__name__}:checked", task, built.library, default.library, seconds=self.seconds)
        return float(found)

    def compare(self, task: Task, designs: Sequence[tuple[Design, Built]]) -> list[float]:
        libraries = [built.library for _, built in designs]
        return list(self._worker.call(f"{__name__}:in_turns", task, libraries, seconds=self.seconds * len(libraries)))

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


_references: dict[Task, list[Array]] = {}


def _reference(task: Task, default: Path) -> list[Array]:
    """The default design's results; where it was checked against float64, they are not needed."""
    data = _data(task)
    if data.has_exact:
        return []
    if task not in _references:
        _references.clear()
        _references[task] = data.results(data.library(default))
    return _references[task]


def checked(task: Task, library: Path, default: Path) -> float:
    """The median seconds of a library whose results are right, in a worker."""
    data = _data(task)
    module = data.library(library)
    reference = _reference(task, default)
    data.check(data.results(module), reference)
    return data.seconds(module)


def in_turns(task: Task, libraries: Sequence[Path]) -> list[float]:
    """The median seconds of each library, measured in turns, in a worker."""
    data = _data(task)
    return data.seconds_in_turns([data.library(library) for library in libraries])
