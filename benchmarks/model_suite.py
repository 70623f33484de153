"""The suite `models`: whole PyTorch models by ours, by PyTorch eager and compiled, and by plain TVM, on this CPU.

`gpu.models` runs the same table on a GPU.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import functools
import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm.target import Target

from benchmarks import environment, table
from benchmarks.gpu import runner as gpu_runner
from benchmarks.peers import TORCH
from benchmarks.record import Decided, Report, TimedRow, check_files, write_json
from tvm_cascade.cli.timing import IdleGate, Plan, Timing, measure
from tvm_cascade.corpus.check import Status, judged, told
from tvm_cascade.corpus.forms import OURS_FUSED, TVM_DEFAULT
from tvm_cascade.devices.host import host_target
from tvm_cascade.driver.progress import waiting
from tvm_cascade.errors import WorkloadError
from tvm_cascade.evaluate import tolerance

SUITE = "models"
TORCH_COMPILE = "torch.compile"

JSON_FORMAT = 1
"""Version of what `--json` writes; a field that changes its meaning raises it."""

MOST_COMPARED = 1 << 22
"""Elements of one result that are compared with the exact ones."""

Call = Callable[[], Any]
Prepared = tuple[Call, tuple[Decided, ...]]
Prepare = Callable[[Any, Sequence[Any], Target], Prepared]


@dataclass(frozen=True)
class Entry:
    """A model that is measured.

    Attributes
    ----------
    label, shape : what it is called, and its extents.
    build : the module, in float32 on the CPU, and its inputs; equal ones for equal seeds.
    """

    label: str
    shape: Mapping[str, int]
    build: Callable[[int], tuple[Any, tuple[Any, ...]]]


@dataclass(frozen=True)
class Place:
    """Where models are measured.

    Attributes
    ----------
    suite : its name.
    target : of TVM's code.
    dtype : of parameters and data, as torch calls it.
    device : of torch.
    rows : how each row is prepared, by name, in the order of the table.
    ready : what is timed of a call of a model.
    timed : the times of calls that take turns.
    """

    suite: str
    target: Target
    dtype: str
    device: str
    rows: Mapping[str, Prepare]
    ready: Callable[[Call], Call]
    timed: Callable[[str, Mapping[str, Call]], Mapping[str, Timing | Exception]]


def run(args: argparse.Namespace) -> int:
    """Measure the models, print their tables, and write them where `--json` says; 1 where a row is wrong or failed."""
    importlib.import_module("tvm_cascade.torch")  # where torch is missing, this says how to install it
    gpu_runner.refuse_options(args)
    check_files(json=args.json)
    threads, target, console = environment.set_threads(), host_target(), table.console()
    where = environment.describe(target, threads)
    table.print_environment(console, where, gated=not args.no_idle_gate)
    plan = Plan(args.repeats, args.max_seconds)

    def timed(label: str, calls: Mapping[str, Call]) -> Mapping[str, Timing]:
        gate = IdleGate(enabled=not args.no_idle_gate)
        with waiting(lambda: f"{label}: timing{gate.told}"):
            return measure(calls, plan, gate)

    rows = {name: row for name, row in ROWS.items() if not (args.skip_default and name == TVM_DEFAULT)}
    place = Place(SUITE, target, "float32", "cpu", rows, lambda call: call, timed)
    return measured(_entries(), args, place, dataclasses.asdict(where))


def measured(entries: Sequence[Entry], args: argparse.Namespace, place: Place, where: Mapping[str, Any]) -> int:
    """The tables of those entries that were asked for, printed and written; 1 where a row is wrong or failed.

    Raises
    ------
    WorkloadError
        When `--only` names what there is not.
    """
    console, reports = table.console(), list[Report]()
    labels = [entry.label for entry in entries]
    if unknown := [name for name in args.only if name not in labels]:
        raise WorkloadError(f"models among {', '.join(labels)}", ", ".join(unknown), f"suite `{args.suite}`")
    for entry in entries:
        if args.only and entry.label not in args.only:
            continue
        reports.append(_measured(entry, args.seed, place))
        table.print_report(console, reports[-1])
        write_json(
            args.json,
            format=JSON_FORMAT,
            suite=args.suite,
            environment=where,
            models=[dataclasses.asdict(one) for one in reports],
        )
    return 0 if all(report.sound for report in reports) else 1


def _entries() -> list[Entry]:
    """The models at sizes for CPUs."""
    from benchmarks.torch_models.sizes import BENCHMARK
    from benchmarks.torch_models.table import MODELS, model

    shape = dataclasses.asdict(BENCHMARK)
    return [Entry(name, shape, functools.partial(model, name, BENCHMARK)) for name in MODELS]


def _measured(entry: Entry, seed: int, place: Place) -> Report:
    """The table of a model."""
    import torch

    kind = getattr(torch, place.dtype)
    module, inputs = entry.build(seed)
    module, inputs = module.to(place.device, kind), _on(inputs, place.device, kind)
    rows = [TimedRow(row, Status.FAILED) for row in place.rows]
    with torch.no_grad():
        eager, exact = module(*inputs), exactly(module, inputs)
        calls, decisions, seconds = dict[str, Call](), tuple[Decided, ...](), 0.0
        with waiting(f"{entry.label}: compiling and checking"):
            for k, row in enumerate(rows):
                start = time.perf_counter()
                try:
                    call, decided = place.rows[row.name](module, inputs, place.target)
                    found = call()
                except Exception as error:  # a peer that does not take the model must not hide the others
                    rows[k] = dataclasses.replace(row, status=_failure(row.name), note=told(error))
                    continue
                if decided:
                    decisions, seconds = decided, time.perf_counter() - start
                results = (_together(one) for one in (found, exact, eager))
                length = 4 * entry.shape["width"]
                rows[k] = judged(row, tolerance.check(*results, length=length, dtype=place.dtype))
                if rows[k].status is Status.TIMED:
                    calls[row.name] = place.ready(call)
        timings = place.timed(entry.label, calls)
    timed = tuple(_with_timing(row, timings.get(row.name)) for row in rows)
    parameters = sum(one.numel() * one.element_size() for one in (*module.parameters(), *inputs))
    return Report(
        entry.label, place.suite, entry.shape, place.dtype, None, parameters, decisions, seconds, TORCH, (), timed
    )


def exactly(module: Any, inputs: Sequence[Any]) -> Any:
    """What a module gives in float64, of its own parameters, one of the batch at a time."""
    import torch

    wide = copy.deepcopy(module).double()
    found = []
    for k in range(len(inputs[0])):
        one = wide(*_on([x[k : k + 1] for x in inputs], inputs[0].device, torch.float64))
        found.append(one if isinstance(one, tuple) else (one,))
    return tuple(torch.cat(parts) for parts in zip(*found, strict=True))


def _together(results: Any) -> NDArray[np.float64]:
    """All results of a model in one row: of large ones evenly spread elements."""
    parts = [one.flatten() for one in (results if isinstance(results, (tuple, list)) else [results])]
    return np.concatenate([np.asarray(one[:: -(-len(one) // MOST_COMPARED)].double().cpu()) for one in parts])


def _on(inputs: Sequence[Any], device: Any, kind: Any) -> tuple[Any, ...]:
    """Inputs on a device, those of them that are no whole numbers in a dtype."""
    return tuple(one.to(device, kind) if one.is_floating_point() else one.to(device) for one in inputs)


def _with_timing(row: TimedRow, found: Timing | Exception | None) -> TimedRow:
    if isinstance(found, Exception):
        return dataclasses.replace(row, status=_failure(row.name), note=told(found))
    return dataclasses.replace(row, timing=found)


def _failure(row: str) -> Status:
    """What it means that a row has no program: of ours, a failure; of a peer, that it is not available."""
    return Status.FAILED if row == OURS_FUSED else Status.ABSENT


def _ours(module: Any, inputs: Sequence[Any], target: Target) -> Prepared:
    from tvm_cascade.torch.optimization import optimize

    optimized = optimize(module, tuple(inputs), target)
    found = tuple(
        Decided(str(group.verdict), group.reason.code, f"{group.function}: {', '.join(group.buffers)}", None)
        for group in optimized.report.groups
    )
    return lambda: optimized(*inputs), found


def _eager(module: Any, inputs: Sequence[Any], _target: Target) -> Prepared:
    return lambda: module(*inputs), ()


def _torch_compile(module: Any, inputs: Sequence[Any], _target: Target) -> Prepared:
    import torch

    compiled = torch.compile(module)
    return lambda: compiled(*inputs), ()


def _plain_tvm(module: Any, inputs: Sequence[Any], target: Target) -> Prepared:
    import torch
    import tvm
    from tvm import relax
    from tvm.relax.frontend.torch import from_exported_program

    imported = from_exported_program(torch.export.export(module, tuple(inputs)))
    executable = relax.build(relax.get_pipeline("zero")(imported), target)
    main = relax.VirtualMachine(executable, tvm.cpu())["main"]
    return lambda: torch.from_dlpack(main(*inputs)[0]), ()


ROWS: Mapping[str, Prepare] = {
    TORCH: _eager,
    TORCH_COMPILE: _torch_compile,
    TVM_DEFAULT: _plain_tvm,
    OURS_FUSED: _ours,
}
"""Every row in the order of the table."""
