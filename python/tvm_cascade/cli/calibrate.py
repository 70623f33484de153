"""`python -m tvm_cascade calibrate`: measures the rates of this machine's GPU, which estimates of kernels rest on."""

from __future__ import annotations

import argparse
import contextlib
import math
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import tvm
from rich.table import Table

from tvm_cascade.cli.arguments import check_writable, console, target_of
from tvm_cascade.corpus import workloads
from tvm_cascade.devices.device import Gpu
from tvm_cascade.devices.rates import VARIABLE
from tvm_cascade.devices.read import device_of
from tvm_cascade.driver.space import Design
from tvm_cascade.errors import InputError
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.skeleton import Kernel
from tvm_cascade.tuning.building import Built, LocalBuilder
from tvm_cascade.tuning.calibration import Calibration, Measured, by_family, fitted, geometries, measured, write
from tvm_cascade.tuning.running import LocalRunner, check_device
from tvm_cascade.tuning.task import Task, task_of
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
    parser.add_argument("--json", type=Path, default=Path("rates.json"), metavar="FILE", help=told)
    told = "geometries of each kernel (default: %(default)s)"
    parser.add_argument("--geometries", type=int, default=3, metavar="N", help=told)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="workloads to keep")
    parser.add_argument("--seconds", type=float, metavar="S", help="after which no further kernel is timed")
    parser.add_argument("--jobs", type=int, metavar="N", help="kernels that are built at a time")


def run(args: argparse.Namespace) -> int:
    """Measure, fit and write; returns the exit code, 1 where nothing could be measured."""
    check_writable(args.json, "--json")
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
