"""Runs designs: checks each result, and takes times that compare: cold on GPUs, all by the same rule."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tvm
from numpy.typing import NDArray

from tvm_cascade.devices.device import Gpu
from tvm_cascade.driver.backends import backend_of
from tvm_cascade.driver.space import Design
from tvm_cascade.errors import InputError
from tvm_cascade.evaluate import tolerance
from tvm_cascade.tuning.building import Built
from tvm_cascade.tuning.task import Task, load, prepare
from tvm_cascade.tuning.worker import TrialError, Worker

Array = NDArray[Any]

_SAMPLES, _ROUNDS, _ROUND_SAMPLES = 21, 8, 5
"""Times of a design, and of one of the best: rounds in which each has a turn, and times of a turn."""

_SAMPLE_MS = 10
"""That a sample on a CPU lasts at least."""

_COMPARED = 1 << 22
"""Elements of a result up to which all are compared; of larger ones, rows from all over it."""


class Runner(Protocol):
    """What checks and times designs."""

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

    def close(self) -> None:
        """Ends what it started."""
        ...


class LocalRunner:
    """Runs on this machine's device, in a worker.

    Parameters
    ----------
    seconds : that one design may take, with the first one's making of the data.
    """

    def __init__(self, seconds: float = 60.0) -> None:
        self.seconds = seconds
        self._worker = Worker("run")

    def prepare(self, task: Task, inputs: Sequence[Array] | None) -> None:
        """See `Runner`."""
        prepare(task, inputs)

    def run(self, task: Task, design: Design, built: Built, default: Built) -> float:
        """See `Runner`."""
        found = self._worker.call(f"{__name__}:checked", task, built.library, default.library, seconds=self.seconds)
        return float(found)

    def compare(self, task: Task, designs: Sequence[tuple[Design, Built]]) -> list[float]:
        """See `Runner`."""
        libraries = [built.library for _, built in designs]
        return list(self._worker.call(f"{__name__}:in_turns", task, libraries, seconds=self.seconds * len(libraries)))

    def close(self) -> None:
        """Ends its worker."""
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
class _Data:
    """The tensors of a task on the device, and what its results are compared with."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.device = backend_of(task.goal.target).first_device
        inputs = iter(load(task.folder / "inputs"))
        self.arguments, self.outputs = [], []
        for parameter in task.parameters:
            if parameter.written:
                tensor = tvm.runtime.empty(parameter.shape, parameter.dtype, self.device)
                self.outputs.append(tensor)
            else:
                tensor = tvm.runtime.tensor(next(inputs), self.device)
            self.arguments.append(tensor)
        self.exact, self.rounded = load(task.folder / "exact"), load(task.folder / "rounded")
        self.dtypes = [one.dtype for one in task.parameters if one.written]
        self.narrowest = _narrowest([one.dtype for one in task.parameters])
        self.length = max(int(extent) for one in task.parameters for extent in (1, *(one.shape or ())))

    def results(self, call: Any) -> list[Array]:
        """What a call writes into outputs that hold NaN before it, or the lowest number."""
        for tensor in self.outputs:
            tensor.copyfrom(_poison(tensor.shape, str(tensor.dtype)))
        call(*self.arguments)
        self.device.sync()
        return [tensor.numpy() for tensor in self.outputs]

    def check(self, results: list[Array], reference: list[Array]) -> None:
        """Compares results with the oracle; without one, with those of the default design.

        Raises
        ------
        TrialError
            Where a result is not within the project's tolerance.
        """
        for number, (result, other) in enumerate(zip(results, self.exact or reference, strict=True)):
            if self.exact:
                found = tolerance.check(
                    result, other, self.rounded[number], length=self.length, dtype=self.dtypes[number]
                )
            else:
                dtype = self.dtypes[number] if "int" in self.dtypes[number] else self.narrowest
                found = tolerance.check(_rows(result), _rows(other), length=self.length, dtype=dtype)
            if not found.ok:
                against = "float64" if self.exact else "the default design"
                raise TrialError("check", f"output {number} against {against}: {found.message}")


def _narrowest(dtypes: list[str]) -> str:
    floats = [dtype for dtype in dtypes if "float" in dtype]
    return min(floats, key=lambda dtype: tvm.DataType(dtype).bits, default="float32")


def _poison(shape: Sequence[int], dtype: str) -> Array:
    return np.full(tuple(int(e) for e in shape), np.nan if "float" in dtype else 1, np.dtype(dtype))


def _rows(array: Array) -> Array:
    if array.size <= _COMPARED or array.ndim < 2:
        return array
    rows = array.reshape(-1, array.shape[-1])
    return rows[:: -(-array.size // _COMPARED) | 1]


_references: dict[Task, list[Array]] = {}


def _reference(task: Task, default: Path) -> list[Array]:
    """The default design's results; where it was checked against float64, they are not needed."""
    data = _Data(task)
    if data.exact:
        return []
    if task not in _references:
        _references.clear()
        _references[task] = data.results(tvm.runtime.load_module(str(default))[task.name])
    return _references[task]


def checked(task: Task, library: Path, default: Path) -> float:
    """The median seconds of a library whose results are right, in a worker."""
    data, module = _Data(task), tvm.runtime.load_module(str(library))
    reference = _reference(task, default)
    data.check(data.results(module[task.name]), reference)
    return statistics.median(_seconds(task, module, _SAMPLES))


def in_turns(task: Task, libraries: Sequence[Path]) -> list[float]:
    """The median seconds of each library, measured in turns, in a worker."""
    modules = [tvm.runtime.load_module(str(library)) for library in libraries]
    found: list[list[float]] = [[] for _ in modules]
    for turn in range(_ROUNDS):
        order = list(range(len(modules)))
        for number in order[::-1] if turn % 2 else order:
            found[number] += _seconds(task, modules[number], _ROUND_SAMPLES)
    return [statistics.median(seconds) for seconds in found]


def _seconds(task: Task, module: Any, samples: int) -> list[float]:
    """Times of single runs with another content of the L2 cache on a GPU, of several runs on a CPU."""
    data, machine = _Data(task), task.goal.device
    if isinstance(machine, Gpu):
        timed = {"number": 1, "repeat": samples, "cache_flush_bytes": 2 * machine.l2_bytes}
    else:
        timed = {"number": 1, "repeat": samples, "min_repeat_ms": _SAMPLE_MS}
    return list(module.time_evaluator(task.name, data.device, **timed)(*data.arguments).results)
