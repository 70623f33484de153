"""`python -m benchmarks.calibrate`: measures the rates of this machine's GPU, which estimates of kernels rest on."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from rich.table import Table

from benchmarks.commands import command
from corpus import workloads
from tvm_cascade.cli.arguments import console, new_file, target_of
from tvm_cascade.devices.device import Gpu
from tvm_cascade.devices.rates import VARIABLE, Rates
from tvm_cascade.devices.read import device_of
from tvm_cascade.driver.space import Design
from tvm_cascade.errors import InputError
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.cost import Counts, seconds
from tvm_cascade.tile.skeleton import Kernel, Setting
from tvm_cascade.tuning.building import Built, LocalBuilder
from tvm_cascade.tuning.running import LocalRunner, Runner, check_device
from tvm_cascade.tuning.task import Task, space_for, task_of
from tvm_cascade.tuning.worker import TrialError

POPULATION: dict[str, tuple[dict[str, int], ...]] = {
    "product": ({}, {"m": 64}, {"m": 16, "k": 14336}, {"m": 512, "n": 1024, "k": 1024}, {"m": 2048}),
    "product_nt": ({"m": 1000, "n": 1000, "k": 1003},),
    "product_float32": ({"m": 512, "n": 512, "k": 512}, {"m": 2048, "n": 2048, "k": 1024}),
    "normed_rms_plain": ({"tokens": 256}, {"tokens": 4096, "columns": 512}),
    "R1": ({}, {"tokens": 64}),
    "R4": ({}, {"tokens": 16}),
    "R8": ({},),
    "head_log_sum_exp": ({"tokens": 64}, {"tokens": 1024, "classes": 32000}),
    "H1": ({},),
    "H4": ({},),
    "PF_CAUSAL": ({"queries": 1024, "keys": 1024}, {"queries": 2048, "keys": 2048}),
    "PF_GQA": ({"queries": 512, "keys": 512},),
    "DC_GQA": ({"keys": 1024}, {"keys": 8192}),
    "decode": ({}, {"batch": 1}, {"batch": 64, "keys": 1024}),
    "decode_draft": ({"batch": 4},),
    "L1": ({},),
    "L5": ({},),
    "V1": ({},),
    "V6": ({},),
    "softmax": ({}, {"rows": 65536, "length": 128}, {"rows": 16}),
    "entropy": ({"rows": 4096},),
}
"""The kernels that are timed: workloads by name, each with extents in place of its own."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--target", default="cuda", help="the GPU of this machine, as a target of TVM (default: cuda)")
    told = "file for the rates and all residuals (default: %(default)s)"
    parser.add_argument("--json", type=new_file, default=Path("rates.json"), metavar="FILE", help=told)
    told = "geometries of each kernel (default: %(default)s)"
    parser.add_argument("--geometries", type=int, default=3, metavar="N", help=told)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="workloads to keep")
    parser.add_argument("--seconds", type=float, metavar="S", help="after which no further kernel is timed")
    parser.add_argument("--jobs", type=int, metavar="N", help="kernels that are built at a time")


def run(args: argparse.Namespace) -> int:
    """Measure, fit and write; returns the exit code, 1 where nothing could be measured."""
    if unknown := [name for name in args.only if name not in POPULATION]:
        raise InputError(f"names among {', '.join(POPULATION)}", ", ".join(unknown), "--only")
    if args.geometries < 1:
        raise InputError("1 or more", str(args.geometries), "--geometries")
    target = target_of(args.target)
    check_device(target)
    gpu, found = _timed(target, args)
    if not found:
        print("nothing: no kernel could be measured")
        return 1
    calibration = fitted(gpu, found)
    _tell(calibration)
    write(calibration, args.json)
    print(f"{VARIABLE}={args.json.resolve()} makes estimates of {gpu.name} by these rates")
    return 0


def _timed(target: tvm.target.Target, args: argparse.Namespace) -> tuple[Gpu, list[Measured]]:
    """The GPU of a target, and the population's kernels as measured on it; all are built while others are timed."""
    options, found, start = FuseOptions.from_environment(narrow_sums=True), list[Measured](), time.monotonic()
    device = device_of(target)
    if not isinstance(device, Gpu):
        raise InputError("a GPU", str(target), "--target")
    with contextlib.ExitStack() as stack:
        builder, runner = LocalBuilder(batch=args.jobs), LocalRunner()
        stack.callback(runner.close)
        pool = stack.enter_context(ThreadPoolExecutor(builder.batch))
        stack.callback(pool.shutdown, cancel_futures=True)
        stack.callback(builder.close)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tvm_cascade_calibrate_")))
        coming: list[tuple[str, Task, list[tuple[Design, Kernel]], Future[list[Built | TrialError]]]] = []
        for name, shape in ((n, one) for n, shapes in POPULATION.items() for one in shapes):
            if not args.only or name in args.only:
                func = workloads.get(name).with_shape(**shape).build()
                task = task_of("main", func, target, options, folder / str(len(coming)))
                made = list(geometries(task, args.geometries))
                label = f"{name} {' '.join(f'{extent}={size}' for extent, size in shape.items())}".rstrip()
                coming.append((label, task, made, pool.submit(builder.build, task, [design for design, _ in made])))
        for label, task, made, building in coming:
            if args.seconds is not None and time.monotonic() - start > args.seconds:
                print(f"stopped before {label}: {args.seconds:.0f} s are over")
                break
            found += measured(label, task, made, building.result(), runner)
            print(f"{label}: {len(found)} kernels by now", flush=True)
    return device, found


def _tell(calibration: Calibration) -> None:
    """Prints errors by family before and after, rates that changed, and what is worst predicted."""
    before, after = (calibration.errors(gpu) for gpu in (calibration.before, calibration.gpu))
    table = Table("family", "kernels", "error before", "after", "largest", box=None)
    earlier = by_family(calibration.measured, before)
    for family, (count, mean, largest) in by_family(calibration.measured, after).items():
        table.add_row(family, str(count), f"{earlier[family][1]:.1%}", f"{mean:.1%}", f"{math.exp(largest):.2f}x")
    console().print(table)
    rates = Table("rate", "before", "after", box=None)
    for name in vars(calibration.gpu.rates):
        old, new = (getattr(gpu.rates, name) for gpu in (calibration.before, calibration.gpu))
        if abs(math.log(new / old)) > 0.01:
            rates.add_row(name, f"{old:.3g}", f"{new:.3g}")
    console().print(rates)
    worst = Table("worst predicted", "measured", "estimated", box=None)
    for place in np.argsort(-np.abs(after))[:8]:
        one = calibration.measured[place]
        worst.add_row(one.name, f"{one.seconds * 1e6:.1f} us", f"{one.seconds * 1e6 * math.exp(after[place]):.1f} us")
    console().print(worst)


# The numbers of a card by measurement: kernels of known counts are timed, and the rates fitted to their times.
#
#     log(launch + seconds(counts, rates)) ≈ log(measured)        of every kernel in every geometry
#
# Gauss and Newton's method over relative changes of all rates, damped (Levenberg, 1944). What no kernel tells of stays:
# each change is weighed as a measurement that says there is none, a few times as uncertain as a time.


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    told = "measure the rates of this machine's GPU that estimates rest on, and write them"
    return command("benchmarks.calibrate", told, add_arguments, run, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
