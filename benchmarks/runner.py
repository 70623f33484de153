"""A suite, checked, then timed next to its peers, slower rows included."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tvm.target import Target

from benchmarks import environment, goals, suites, table
from benchmarks import model_suite as models
from benchmarks.gpu import models as gpu_models
from benchmarks.gpu import runner as gpu_runner
from benchmarks.gpu import suites as gpu_suites
from benchmarks.peers import PEERS
from benchmarks.record import Decided, Report, TimedRow, check_files, write_json
from tvm_cascade.cli.timing import IdleGate, Plan, measure
from tvm_cascade.corpus.case import Case, Job
from tvm_cascade.corpus.check import check, told
from tvm_cascade.corpus.forms import TVM_DEFAULT, Form
from tvm_cascade.devices.host import host_target
from tvm_cascade.driver.progress import waiting
from tvm_cascade.errors import OptionError
from tvm_cascade.options import FuseOptions

DEFAULT = "cpu"
"""The suite where none is named."""

JSON_FORMAT = 2
"""Version of what `--json` writes; a field that changes its meaning raises it."""


_OTHER_RUNNERS = {
    **dict.fromkeys(gpu_suites.SUITES, gpu_runner.run),
    models.SUITE: models.run,
    gpu_models.SUITE: gpu_models.run,
}
"""Suites that are no programs for a CPU."""


@dataclass(frozen=True)
class Settings:
    """How a suite is run.

    Attributes
    ----------
    options : how to fuse.
    plan : how much to time.
    idle_gate : whether to wait for an idle machine.
    seed : of the inputs.
    """

    options: FuseOptions
    plan: Plan = field(default_factory=Plan)
    idle_gate: bool = True
    seed: int = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a suite."""
    plan = Plan()
    known = (*suites.SUITES, models.SUITE, *gpu_suites.SUITES, gpu_models.SUITE)
    parser.add_argument("--suite", choices=known, metavar="SUITE", help=f"of {', '.join(known)} (default: {DEFAULT})")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="workloads, labels or functions to keep")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write everything to this file")
    parser.add_argument("--repeats", type=int, default=plan.repeats, help="samples of a row (default: %(default)s)")
    parser.add_argument(
        "--max-seconds",
        type=float,
        default=plan.max_seconds,
        help="time for the samples of a row (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the inputs (default: %(default)s)")
    parser.add_argument("--no-idle-gate", action="store_true", help="do not wait until the machine is idle")
    parser.add_argument(
        "--skip-default", action="store_true", help=f"leave out the rows `{TVM_DEFAULT}`, which are slow"
    )
    gpu_runner.add_arguments(parser)


def run(
    args: argparse.Namespace,
    peers: Mapping[str, Form] = PEERS,
    options: FuseOptions | None = None,
    entries: Sequence[Job] = (),
) -> int:
    """Measure a suite, print its tables and goals, and write them where `--json` says.

    Parameters
    ----------
    args : what the parser of `add_arguments` gives.
    peers : the rows of a suite for the CPU.
    options : how to fuse; those of the environment by default.
    entries : what to measure in place of a suite.

    Returns
    -------
    exit_code : 1 when a row was wrong or failed, or a program could not be measured at all, which is told with the
        reason and does not stop the others; else 0. Goals that are not met do not count.

    Raises
    ------
    WorkloadError
        When `--only` names something that is not in the suite.
    OptionError
        When a number is not positive, the file of `--json` cannot be written, or an option is not one of the suite.
    """
    if args.suite in _OTHER_RUNNERS:
        return _OTHER_RUNNERS[args.suite](args)
    suite = "given" if entries else args.suite or DEFAULT
    gpu_runner.refuse_options(args)
    settings = _settings(args, options or FuseOptions.from_environment())
    chosen = entries or suites.entries(suite, args.only)
    threads, target, console = environment.set_threads(), host_target(), table.console()
    where = environment.describe(target, threads)
    table.print_environment(console, where, gated=settings.idle_gate)
    rows = {name: peer for name, peer in peers.items() if not (args.skip_default and name == TVM_DEFAULT)}
    reports, failed = list[Report](), dict[str, str]()
    for entry in chosen:
        found = _measured(entry, target, settings, rows)
        if isinstance(found, Report):
            reports.append(found)
            table.print_report(console, found)
        else:
            failed[entry.label] = found
            console.print(f"{entry.label}: {found}", style="red", highlight=False, markup=False)
        outcomes = goals.evaluate(suites.goals(suite), reports)
        write_json(  # after every workload, so that a run that is stopped leaves the rest
            args.json,
            format=JSON_FORMAT,
            suite=suite,
            environment=dataclasses.asdict(where),
            settings=dataclasses.asdict(settings),
            workloads=[{**dataclasses.asdict(report), "delivered": report.delivered} for report in reports],
            failed=failed,
            goals=[dataclasses.asdict(outcome) for outcome in outcomes],
        )
    if outcomes:
        table.print_goals(console, outcomes)
    return 0 if not failed and all(report.sound for report in reports) else 1


def _measured(entry: Job, target: Target, settings: Settings, peers: Mapping[str, Form]) -> Report | str:
    """The tables of a workload, or why there are none."""
    try:
        return measure_entry(entry, target, settings, peers)
    except Exception as error:  # one program that cannot be built or evaluated must not hide the others
        return told(error)


def measure_entry(entry: Job, target: Target, settings: Settings, peers: Mapping[str, Form] = PEERS) -> Report:
    """Check every row of a workload, then time those that passed."""
    with waiting(f"{entry.label}: deriving, compiling and checking"):
        case = Case(entry, settings.options, target, settings.seed)
        checked = check(case, peers)
    calls = {name: program.call for name, program in checked.runnable.items()}
    gate = IdleGate(enabled=settings.idle_gate)
    with waiting(lambda: f"{entry.label}: timing{gate.told}"):
        timings = measure(calls, settings.plan, gate)
    return Report(
        label=entry.label,
        source=entry.source,
        shape=dict(entry.shape),
        dtype=entry.dtype,
        flops=entry.flops(),
        bytes=entry.bytes(),
        decisions=tuple(
            Decided(str(one.reason.verdict), one.reason.code, one.reason.detail, str(one.estimate or "") or None)
            for one in case.outcome.decisions
        ),
        fuse_seconds=case.fuse_seconds,
        baseline=checked.baseline,
        blind_to=checked.blind_to,
        rows=tuple(TimedRow(**vars(row), timing=timings.get(row.name)) for row in checked.rows),
    )


def _settings(args: argparse.Namespace, options: FuseOptions) -> Settings:
    for option in ("repeats", "max_seconds"):
        if not getattr(args, option) > 0:
            raise OptionError("a positive number", str(getattr(args, option)), f"--{option.replace('_', '-')}")
    check_files(json=args.json)
    plan = Plan(args.repeats, args.max_seconds)
    return Settings(options, plan, not args.no_idle_gate, args.seed)
