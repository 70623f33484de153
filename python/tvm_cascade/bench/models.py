"""The suite `models`: whole PyTorch models by ours, by PyTorch eager and compiled, and by plain TVM, on this CPU."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm.target import Target

from tvm_cascade.bench import environment, table
from tvm_cascade.bench.gpu import runner as gpu_runner
from tvm_cascade.bench.progress import waiting
from tvm_cascade.bench.record import (
    OURS_FUSED,
    TORCH,
    TVM_DEFAULT,
    Decided,
    Report,
    Row,
    Status,
    check_files,
    judged,
    told,
    write_json,
)
from tvm_cascade.bench.timing import IdleGate, Plan, measure
from tvm_cascade.devices.host import host_target
from tvm_cascade.errors import WorkloadError
from tvm_cascade.evaluate import tolerance

SUITE = "models"
TORCH_COMPILE = "torch.compile"

JSON_FORMAT = 1
"""Version of what `--json` writes; a field that changes its meaning raises it."""

Call = Callable[[], Any]


def run(args: argparse.Namespace) -> int:
    """Measure the models, print their tables, and write them where `--json` says; 1 where a row is wrong or failed."""
    importlib.import_module("tvm_cascade.torch")  # where torch is missing, this says how to install it
    gpu_runner.refuse_options(args)
    check_files(json=args.json)
    threads, target, console = environment.set_threads(), host_target(), table.console()
    where = environment.describe(target, threads)
    table.print_environment(console, where, gated=not args.no_idle_gate)
    plan, reports = Plan(args.repeats, args.max_seconds), list[Report]()
    for name in _chosen(args.only):
        report = _measured(name, target, plan, IdleGate(enabled=not args.no_idle_gate), args)
        reports.append(report)
        table.print_report(console, report)
        write_json(
            args.json,
            format=JSON_FORMAT,
            suite=SUITE,
            environment=dataclasses.asdict(where),
            models=[dataclasses.asdict(one) for one in reports],
        )
    return 0 if all(report.sound for report in reports) else 1


def _chosen(only: Sequence[str]) -> list[str]:
    from tvm_cascade.testing.models.table import MODELS

    if unknown := [name for name in only if name not in MODELS]:
        raise WorkloadError(f"models among {', '.join(MODELS)}", ", ".join(unknown), f"suite `{SUITE}`")
    return [name for name in MODELS if not only or name in only]


def _measured(name: str, target: Target, plan: Plan, gate: IdleGate, args: argparse.Namespace) -> Report:
    """The table of a model."""
    import torch

    from tvm_cascade.testing.models.sizes import BENCHMARK
    from tvm_cascade.testing.models.table import model

    sizes = BENCHMARK
    module, inputs = model(name, sizes, args.seed)
    wide = [one.double() if one.is_floating_point() else one for one in inputs]
    with torch.no_grad():
        eager, exact = module(*inputs), model(name, sizes, args.seed)[0].double()(*wide)
        calls, decisions, seconds = dict[str, Call](), tuple[Decided, ...](), 0.0
        rows = [Row(row, Status.FAILED) for row in ROWS if not (args.skip_default and row == TVM_DEFAULT)]
        with waiting(f"{name}: compiling and checking"):
            for k, row in enumerate(rows):
                start = time.perf_counter()
                try:
                    call, decided = ROWS[row.name](module, inputs, target)
                    found = call()
                except Exception as error:  # a peer that does not take the model must not hide the others
                    rows[k] = dataclasses.replace(row, status=_failure(row.name), note=told(error))
                    continue
                if decided:
                    decisions, seconds = decided, time.perf_counter() - start
                results = (np.asarray(one.double()) for one in (found, exact, eager))
                rows[k] = judged(row, tolerance.check(*results, length=4 * sizes.width, dtype="float32"))
                if rows[k].status is Status.TIMED:
                    calls[row.name] = call
        with waiting(lambda: f"{name}: timing{gate.told}"):
            timings = measure(calls, plan, gate)
    timed = tuple(dataclasses.replace(row, timing=timings.get(row.name)) for row in rows)
    parameters = sum(one.numel() * one.element_size() for one in (*module.parameters(), *inputs))
    shape = dataclasses.asdict(sizes)
    return Report(name, SUITE, shape, "float32", None, parameters, decisions, seconds, TORCH, (), timed)


def _failure(row: str) -> Status:
    """What it means that a row has no program: of ours, a failure; of a peer, that it is not available."""
    return Status.FAILED if row == OURS_FUSED else Status.ABSENT


_Prepared = tuple[Call, tuple[Decided, ...]]


def _ours(module: Any, inputs: Sequence[Any], target: Target) -> _Prepared:
    from tvm_cascade.torch.optimization import optimize

    optimized = optimize(module, tuple(inputs), target)
    found = tuple(
        Decided(str(group.verdict), group.reason.code, f"{group.function}: {', '.join(group.buffers)}", None)
        for group in optimized.report.groups
    )
    return lambda: optimized(*inputs), found


def _eager(module: Any, inputs: Sequence[Any], _target: Target) -> _Prepared:
    return lambda: module(*inputs), ()


def _torch_compile(module: Any, inputs: Sequence[Any], _target: Target) -> _Prepared:
    import torch

    compiled = torch.compile(module)
    return lambda: compiled(*inputs), ()


def _plain_tvm(module: Any, inputs: Sequence[Any], target: Target) -> _Prepared:
    import torch
    import tvm
    from tvm import relax
    from tvm.relax.frontend.torch import from_exported_program

    imported = from_exported_program(torch.export.export(module, tuple(inputs)))
    executable = relax.build(relax.get_pipeline("zero")(imported), target)
    main = relax.VirtualMachine(executable, tvm.cpu())["main"]
    return lambda: torch.from_dlpack(main(*inputs)[0]), ()


ROWS: Mapping[str, Callable[[Any, Sequence[Any], Target], _Prepared]] = {
    TORCH: _eager,
    TORCH_COMPILE: _torch_compile,
    TVM_DEFAULT: _plain_tvm,
    OURS_FUSED: _ours,
}
"""Every row in the order of the table."""
