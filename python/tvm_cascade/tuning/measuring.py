"""A task's data on a device: results are checked, and times taken that compare: cold on GPUs, all by the same rule."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray

from tvm_cascade.devices.device import Gpu
from tvm_cascade.evaluate import tolerance
from tvm_cascade.evaluate.inputs import poisoned
from tvm_cascade.tuning import cold
from tvm_cascade.tuning.task import Task, load
from tvm_cascade.tuning.worker import TrialError

Array = NDArray[Any]

_SAMPLES, _ROUNDS, _ROUND_SAMPLES = 21, 8, 5
"""Times of a design, and of one of the best: rounds in which each has a turn, and times of a turn."""

_SAMPLE_MS = 10
"""That a sample on a CPU lasts at least."""

_COMPARED = 1 << 22
"""Elements of a result up to which all are compared; of larger ones, rows from all over it."""


def _loaded(path: Path) -> Any:
    return tvm.runtime.load_module(str(path))


class Data:
    """The tensors of a task on a device, and what its results are compared with.

    Parameters
    ----------
    load_library : how libraries are loaded there.
    """

    def __init__(self, task: Task, device: tvm.runtime.Device, load_library: Callable[[Path], Any] = _loaded) -> None:
        self._task, self._device, self._load = task, device, load_library
        self._reading, self._read = None, list[Any]()
        if isinstance(gpu := task.goal.device, Gpu):
            rows, columns = cold.shape_of(gpu)
            self._reading = load_library(task.reading)
            self._read = [
                tvm.runtime.tensor(np.zeros(shape, "float32"), device) for shape in ((rows, columns), (rows,))
            ]
        inputs = iter(load(task.folder / "inputs"))
        self._arguments, self._outputs = [], []
        for parameter in task.parameters:
            if parameter.written:
                tensor = tvm.runtime.empty(parameter.shape, parameter.dtype, device)
                self._outputs.append(tensor)
            else:
                tensor = tvm.runtime.tensor(next(inputs), device)
            self._arguments.append(tensor)
        self._exact, self._rounded = load(task.folder / "exact"), load(task.folder / "rounded")
        self._dtypes = [one.dtype for one in task.parameters if one.written]
        self._narrowest = _narrowest([one.dtype for one in task.parameters])
        self._length = max(int(extent) for one in task.parameters for extent in (1, *(one.shape or ())))
        self._reference: list[Array] = []

    def checked(self, library: Path, default: Path) -> float:
        """The median seconds of a library whose results are right: as float64's, or else as the default design's.

        Raises
        ------
        TrialError
            Where a result is not within the project's tolerance.
        """
        module = self._library(library)
        if not self._exact and not self._reference:
            self._reference = self._results(self._library(default))
        self._check(self._results(module))
        return statistics.median(self._samples(module, _SAMPLES))

    def in_turns(self, libraries: Sequence[Path]) -> list[float]:
        """The median seconds of each library, measured in turns."""
        modules = [self._library(library) for library in libraries]
        found: list[list[float]] = [[] for _ in modules]
        for turn in range(_ROUNDS):
            order = list(range(len(modules)))
            for number in order[::-1] if turn % 2 else order:
                found[number] += self._samples(modules[number], _ROUND_SAMPLES)
        return [statistics.median(seconds) for seconds in found]

    def _library(self, path: Path) -> Any:
        """A design's library, loaded; on a GPU it imports what is read between its runs."""
        module = self._load(path)
        if self._reading is not None:
            module.import_module(self._reading)
        return module

    def _results(self, module: Any) -> list[Array]:
        """What a library's function writes into outputs that hold NaN before it, or the least integer."""
        for tensor in self._outputs:
            tensor.copyfrom(poisoned(map(int, tensor.shape), str(tensor.dtype)))
        module[self._task.name](*self._arguments)
        self._device.sync()
        return [tensor.numpy() for tensor in self._outputs]

    def _check(self, results: list[Array]) -> None:
        for number, (result, other) in enumerate(zip(results, self._exact or self._reference, strict=True)):
            if self._exact:
                found = tolerance.check(
                    result, other, self._rounded[number], length=self._length, dtype=self._dtypes[number]
                )
            else:
                dtype = self._dtypes[number] if "int" in self._dtypes[number] else self._narrowest
                found = tolerance.check(_rows(result), _rows(other), length=self._length, dtype=dtype)
            if not found.ok:
                against = "float64" if self._exact else "the default design"
                raise TrialError("check", f"output {number} against {against}: {found.message}")

    def _samples(self, module: Any, samples: int) -> list[float]:
        """Times of single runs with another content of the L2 cache on a GPU, of several runs on a CPU."""
        name, arguments = self._task.name, self._arguments
        if self._reading is None:
            return self._timed(module, name, arguments, {"repeat": samples, "min_repeat_ms": _SAMPLE_MS})
        module[cold.behind(name)](*self._read, *arguments)  # what is allocated, or loaded, at the first run
        return [self._beyond_reading(module) for _ in range(samples)]

    def _beyond_reading(self, module: Any) -> float:
        """What a run takes behind the reading, beyond the reading alone, a moment before."""
        once = {"repeat": 1, "min_repeat_ms": 0}
        (alone,) = self._timed(self._reading, cold.READ, self._read, once)
        (both,) = self._timed(module, cold.behind(self._task.name), [*self._read, *self._arguments], once)
        return both - alone

    def _timed(self, module: Any, name: str, arguments: Sequence[Any], how: dict[str, int]) -> list[float]:
        return list(module.time_evaluator(name, self._device, number=1, **how)(*arguments).results)


def _narrowest(dtypes: list[str]) -> str:
    floats = [dtype for dtype in dtypes if "float" in dtype]
    return min(floats, key=lambda dtype: tvm.DataType(dtype).bits, default="float32")


def _rows(array: Array) -> Array:
    if array.size <= _COMPARED or array.ndim < 2:
        return array
    rows = array.reshape(-1, array.shape[-1])
    return rows[:: -(-array.size // _COMPARED) | 1]
