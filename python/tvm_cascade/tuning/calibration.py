"""The numbers of a card by measurement: kernels of known counts are timed, and the rates fitted to their times.

    log(launch + seconds(counts, rates)) ≈ log(measured)        of every kernel in every geometry

Gauss and Newton's method over relative changes of all rates, damped (Levenberg, 1944). What no kernel tells of stays:
each change is weighed as a measurement that says there is none, a few times as uncertain as a time.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_cascade.devices.device import Gpu
from tvm_cascade.devices.rates import Rates
from tvm_cascade.driver.space import Design
from tvm_cascade.tile.cost import Counts, seconds
from tvm_cascade.tile.skeleton import Kernel, Setting
from tvm_cascade.tuning.building import Built
from tvm_cascade.tuning.running import Runner
from tvm_cascade.tuning.task import Task, space_for
from tvm_cascade.tuning.worker import TrialError

_UNCERTAIN = 0.05
"""Of the logarithm of a time, over that of a rate before anything is measured."""

_TIMES = 4.0
"""Of the least estimate, up to which geometries are timed: of others nobody asks."""

_ROUNDS, _STEP, _MOST = 60, 1e-3, 0.5
"""Of the fit; the change by which slopes are found, and the largest of a round, both of logarithms."""

_SETTLED = 1e-9
"""By which the least squares fall in the last round."""

_FITTED = tuple(field.name for field in dataclasses.fields(Rates))


@dataclass(frozen=True)
class Measured:
    """A kernel in a geometry.

    Attributes
    ----------
    name : of the program and its geometry.
    family : the skeleton's name.
    counts : see `Counts`.
    seconds : that it took, with its launch.
    """

    name: str
    family: str
    counts: Counts
    seconds: float


@dataclass(frozen=True)
class Calibration:
    """Fitted rates of a card.

    Attributes
    ----------
    before, gpu : the card with the rates that it had, and as fitted.
    measured : what they were fitted to.
    """

    before: Gpu
    gpu: Gpu
    measured: tuple[Measured, ...]

    def errors(self, gpu: Gpu) -> NDArray[np.float64]:
        """The logarithms of estimated over measured times with the rates of a card."""
        return _errors(self.measured, gpu)

    def to_json(self) -> dict[str, Any]:
        """The card, its rates, and each kernel's times in microseconds."""
        rows = [
            {"name": one.name, "family": one.family, "measured_us": one.seconds * 1e6, "estimated_us": time * 1e6}
            for one, time in zip(self.measured, (_estimated(one, self.gpu) for one in self.measured), strict=True)
        ]
        return {"card": self.gpu.name, "rates": dataclasses.asdict(self.gpu.rates), "kernels": rows}


def geometries(task: Task, most: int) -> Iterator[tuple[Design, Kernel]]:
    """The designs of a task that are one kernel, spread over the order of their estimates, the default first."""
    space = space_for(task)
    most_seconds = _TIMES * space.seconds(space.default)
    designs = [one for one in space.designs() if one[:1] in ((), (0,)) and space.seconds(one) <= most_seconds]
    chosen = sorted({round(place) for place in np.linspace(0, len(designs) - 1, most)}) if designs else []
    for place in chosen:
        kernel = space.lower(designs[place])[1].chosen
        if isinstance(kernel, Kernel):
            yield designs[place], kernel


def measured(
    name: str,
    task: Task,
    made: Sequence[tuple[Design, Kernel]],
    built: Sequence[Built | TrialError],
    runner: Runner,
) -> list[Measured]:
    """A function's kernels in some geometries, timed; those that fail are left out, and all where the default does.

    Parameters
    ----------
    made, built : as `geometries` and a builder give them.
    """
    gpu, found = task.goal.device, list[Measured]()
    if not built or isinstance(default := built[0], TrialError) or not isinstance(gpu, Gpu):
        return []
    runner.prepare(task, None)
    setting = Setting(gpu, task.goal.options)
    for (design, kernel), library in zip(made, built, strict=True):
        if isinstance(library, TrialError):
            continue
        try:
            time = runner.run(task, design, library, default)
        except TrialError:
            continue
        counts = kernel.skeleton.counts(kernel.program, kernel.config, kernel.work, setting)
        found.append(Measured(f"{name} {kernel.config}", kernel.skeleton.name, counts, time))
    return found


def fitted(gpu: Gpu, several: Sequence[Measured]) -> Calibration:
    """The card with rates whose estimates are nearest to what was measured, in the mean square of logarithms."""
    times = tuple(several)
    changes, damping = np.zeros(len(_FITTED)), 1e-3
    errors = _errors(times, gpu)
    weight = _UNCERTAIN**2
    loss = float(errors @ errors)
    for _ in range(_ROUNDS):
        slopes = np.stack([_slope(times, gpu, changes, k, errors) for k in range(len(_FITTED))], axis=1)
        left, right = slopes.T @ slopes + weight * np.eye(len(_FITTED)), slopes.T @ errors + weight * changes
        while damping < 1e9:
            step = np.clip(np.linalg.solve(left + damping * np.eye(len(_FITTED)), -right), -_MOST, _MOST)
            further = changes + step
            tried = _errors(times, _changed(gpu, further))
            reached = float(tried @ tried + weight * further @ further)
            if reached < loss:
                break
            damping *= 10.0
        else:
            break
        settled = loss - reached < _SETTLED
        changes, errors, loss, damping = further, tried, reached, damping / 10.0
        if settled:
            break
    return Calibration(gpu, _changed(gpu, changes), times)


def _slope(
    times: Sequence[Measured], gpu: Gpu, changes: NDArray[np.float64], place: int, errors: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How errors grow with the logarithm of one rate."""
    further = changes.copy()
    further[place] += _STEP
    return (_errors(times, _changed(gpu, further)) - errors) / _STEP


def _changed(gpu: Gpu, changes: NDArray[np.float64]) -> Gpu:
    pairs = zip(_FITTED, changes, strict=True)
    return replace(gpu, rates=Rates(**{name: getattr(gpu.rates, name) * math.exp(by) for name, by in pairs}))


def _estimated(one: Measured, gpu: Gpu) -> float:
    return gpu.launch_seconds + seconds(one.counts, gpu)


def _errors(times: Sequence[Measured], gpu: Gpu) -> NDArray[np.float64]:
    return np.array([math.log(_estimated(one, gpu) / one.seconds) for one in times])


def write(calibration: Calibration, path: Path) -> None:
    """Writes a calibration to a file, from which `devices.read` takes the rates of its card."""
    path.write_text(json.dumps(calibration.to_json(), indent=1), encoding="utf-8")


def by_family(several: Sequence[Measured], errors: NDArray[np.float64]) -> Mapping[str, tuple[int, float, float]]:
    """By family, how many kernels there are, the mean square and the largest of their errors."""
    found: dict[str, list[float]] = {}
    for one, error in zip(several, errors, strict=True):
        found.setdefault(one.family, []).append(float(error))
    return {
        name: (len(own), math.sqrt(sum(error * error for error in own) / len(own)), max(own, key=abs))
        for name, own in found.items()
    }
