"""From suites to what is stored of them: each workload is prepared, checked, timed beside its peers, and told."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import device, goals, peers, suites, table
from benchmarks.ahead import compiled_ahead
from benchmarks.device import CPU, CUDA, Call, Device
from benchmarks.gpu.rows import Bench
from benchmarks.judge.case import Case, bytes_of
from benchmarks.judge.check import Status, check, told
from benchmarks.judge.forms import TVM_DEFAULT, Form
from benchmarks.model_suite import MODEL_PEERS, ModelBench
from benchmarks.record import RESULTS, SLOWER, Decided, Report, Result, TimedRow, load, slower
from benchmarks.suites.entry import Entry
from benchmarks.timing import Plan, Timing
from corpus.workload import Workload
from tvm_cascade.cli.jobs import Job
from tvm_cascade.driver.progress import waiting
from tvm_cascade.errors import OptionError
from tvm_cascade.options import FuseOptions

DEFAULT, GIVEN = "cpu", "given"
"""The suite where none is named, and what programs of the user's own are called."""

AHEAD = 0.5
"""The part of `--seconds` that programs are compiled ahead in, at most."""

FAILING = 3.0
"""By which factor an estimate is off that counts as a failure."""

_OF_A_GPU = ("rounds", "jobs", "skip_twins")
_OF_A_CPU = {"repeats": Plan().repeats, "max_seconds": Plan().max_seconds, "no_idle_gate": False}

Checker = Callable[[Any], tuple[Report, dict[str, Call]]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of suites."""
    known = f"of {', '.join(suites.SUITES)} (default: {DEFAULT})"
    parser.add_argument("--suite", nargs="+", choices=suites.SUITES, metavar="SUITE", help=known)
    parser.add_argument("--device", choices=(CPU, CUDA), help="where (default: where the first suite is measured)")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="workloads, labels or groups to keep")
    parser.add_argument("--peers", nargs="+", metavar="NAME", help="rows besides ours (default: all)")
    parser.add_argument("--results", type=Path, metavar="FOLDER", help=f"written to, for whole suites {RESULTS.name}/")
    parser.add_argument("--seconds", type=float, default=math.inf, help="for everything, shared among the workloads")
    parser.add_argument("--commit", metavar="HASH", help="what is measured, in a copy without its repository")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs (default: %(default)s)")
    parser.add_argument("--skip-default", action="store_true", help=f"leave out the rows `{TVM_DEFAULT}`, as slow")
    group = parser.add_argument_group("on a CPU")
    default = "(default: %(default)s)"
    group.add_argument("--repeats", type=int, default=_OF_A_CPU["repeats"], help=f"samples of a row {default}")
    group.add_argument("--max-seconds", type=float, default=_OF_A_CPU["max_seconds"], help=f"for these {default}")
    group.add_argument("--no-idle-gate", action="store_true", help="do not wait until the machine is idle")
    group = parser.add_argument_group("on a GPU")
    rounds = device.GpuPlan().rounds
    group.add_argument("--rounds", type=int, metavar="N", help=f"turns of every row (default: {rounds})")
    group.add_argument("--jobs", type=int, metavar="J", help="processes that compile ahead (default: none)")
    group.add_argument("--skip-twins", action="store_true", help="do not compare small shapes of ours with the oracle")


@dataclass(frozen=True)
class Chosen:
    """A suite, as it is asked for: its entries and its rows."""

    name: str
    entries: Sequence[Any]
    rows: Mapping[str, Any]


def run(args: argparse.Namespace, options: FuseOptions | None = None, jobs: Sequence[Job] = ()) -> int:
    """Measure suites, print their tables and goals, and write what is found.

    Parameters
    ----------
    args : what the parser of `add_arguments` gives.
    options : how to fuse on a CPU; those of the environment by default.
    jobs : what to measure in place of a suite.

    Returns
    -------
    exit_code : 1 when a row of ours was wrong or failed, or an estimate is off by more than `FAILING`; else 0. A peer
        that fails is a row with its reason, and goals that are not met do not count.

    Raises
    ------
    WorkloadError, OptionError
        When `--only` or `--peers` names what there is not, a number is too small, an option is not one of the device,
        a folder cannot be written, or torch is needed and missing.
    InputError
        When torch sees no GPU, and a suite needs one.
    """
    deadline = time.monotonic() + args.seconds
    names = [GIVEN] if jobs else [*dict.fromkeys(args.suite or [DEFAULT])]
    where = args.device or (CPU if jobs or names[0] in suites.ON_CPU else CUDA)
    _refuse(args, names, where)
    fusing = options or FuseOptions.from_environment()
    chosen = [_chosen(name, where, args, jobs) for name in names]
    peers.known(args.peers, {row for one in chosen for row in one.rows})
    moving = bool(set(names) & {*suites.MOVING})
    place = device.cpu(args) if where == CPU else device.cuda(args, moving)
    table.print_environment(table.console(), place)
    chosen = [replace(one, rows=peers.chosen(args.peers, one.rows)) for one in chosen]
    ahead = {one.name: (suites.spread(one.entries), one.rows) for one in chosen if one.name in suites.KERNELS}
    sound = True
    with compiled_ahead(ahead, args.jobs or 0, AHEAD * args.seconds, twins=not args.skip_twins) as ready:
        for k, one in enumerate(chosen):
            rows = ready.get(one.name, one.rows)
            left = sum(len(other.entries) for other in chosen[k:])
            until = time.monotonic() + (deadline - time.monotonic()) * len(one.entries) / max(1, left)
            sound &= _measured(replace(one, rows=rows), place, fusing, args, until)
    return 0 if sound else 1


def _refuse(args: argparse.Namespace, names: Sequence[str], where: str) -> None:
    """Raise where options do not fit the suites or the device, before anything is measured."""
    known = (GIVEN, *suites.ON_CPU) if where == CPU else suites.ON_GPU
    if unknown := [name for name in names if name not in known]:
        raise OptionError(f"suites for `{where}` among {', '.join(known)}", ", ".join(unknown), "--suite")
    given = [name for name in _OF_A_GPU if getattr(args, name) not in (None, False)] if where == CPU else []
    given += [name for name, value in _OF_A_CPU.items() if getattr(args, name) != value] if where == CUDA else []
    if given:
        option = f"--{given[0].replace('_', '-')}"
        other = CUDA if where == CPU else CPU
        raise OptionError(f"a suite for `{other}`, with this option", f"`{where}`", option, "leave it out")
    if args.jobs is not None and args.jobs < 1:
        raise OptionError("a number of processes", str(args.jobs), "--jobs", "pass 1 or more")
    if not args.seconds > 0:
        raise OptionError("a positive number", str(args.seconds), "--seconds")
    if args.results is not None and not args.results.is_dir():
        raise OptionError("a folder that exists", str(args.results), "--results")


def _chosen(name: str, where: str, args: argparse.Namespace, jobs: Sequence[Job]) -> Chosen:
    entries: Sequence[Any] = jobs
    rows: Mapping[str, Any] = peers.CPU_PEERS
    if name == suites.MODELS:
        importlib.import_module("tvm_cascade.torch")  # where torch is missing, this says how to install it
        entries, rows = suites.models(where == CUDA, args.only), MODEL_PEERS
    elif not jobs:
        entries = suites.entries(name, args.only)
        rows = peers.CPU_PEERS if where == CPU else peers.of_suite(name)
    rows = {row: peer for row, peer in rows.items() if not (args.skip_default and row == TVM_DEFAULT)}
    return Chosen(name, entries, rows)


def _measured(one: Chosen, place: Device, options: FuseOptions, args: argparse.Namespace, until: float) -> bool:
    """Measure, print and write a suite; whether it is sound."""
    bench: Checker = Bench(place, one.rows, args.seed, twins=not args.skip_twins)
    if one.name == suites.MODELS:
        bench = ModelBench(place, one.rows, args.seed)
    elif place.name == CPU and one.name not in suites.KERNELS:
        bench = CpuBench(place, one.rows, options, args.seed)
    shown = table.console()
    whole = not (args.only or args.peers or one.name == GIVEN)
    folder = args.results or (RESULTS if whole else None)
    settings = {**place.settings, "seed": args.seed, "options": dataclasses.asdict(options)}
    found = Result(one.name, _command(one.name, place, args), place.environment, settings, ())
    before = load(path) if (path := found.path(RESULTS)).exists() else None
    order, reports = [entry.label for entry in one.entries], dict[str, Report]()
    for entry in suites.spread(one.entries) if math.isfinite(until) else one.entries:
        if time.monotonic() <= until:
            reports[entry.label] = report_of(entry, bench, place, one.rows)
            table.print_report(shown, reports[entry.label])
        left = tuple(label for label in order if label not in reports)
        found = replace(found, reports=tuple(reports[label] for label in order if label in reports), left_out=left)
        if folder is not None:  # after every workload, so that a run that is stopped leaves the rest
            found.save(folder)
    table.print_means(shown, goals.means(found.reports))
    table.print_goals(shown, goals.outcomes(one.name, found.reports))
    if found.left_out:
        shown.print(f"out of time: {', '.join(found.left_out)}", style="yellow", highlight=False, markup=False)
    for label, share in slower(before, found) if before is not None else ():
        shown.print(f"{one.name}: {label} takes {share:.3f} of the stored time (over {SLOWER:g})", style="yellow")
    off = [(report.misjudged or 0.0, report.label) for report in found.reports]
    failing = sorted((one for one in off if one[0] > FAILING), reverse=True)
    for factor, label in failing:
        shown.print(f"{one.name}: FAILED: the estimate of {label} is off by {factor:.1f} times", style="bold red")
    return not failing and all(report.sound for report in found.reports)


def _command(suite: str, place: Device, args: argparse.Namespace) -> str:
    """What measures a suite as it was measured here."""
    words = ["python -m benchmarks --suite", suite, "--device", place.name]
    words += ["--peers", *args.peers] if args.peers else []
    words += ["--skip-twins"] if args.skip_twins else []
    for name in ("rounds", "jobs"):
        words += [f"--{name}", str(value)] if (value := getattr(args, name)) is not None else []
    return " ".join(words)


def report_of(entry: Any, bench: Checker, place: Device, rows: Mapping[str, Any]) -> Report:
    """The table of a workload: checked, then timed; what fails is a row with its reason."""
    try:
        with waiting(f"{entry.label}: compiling and checking"):
            report, calls = bench(entry)
    except Exception as error:  # one program that cannot be built must not hide the others
        note = f"no program: {told(error)}"
        return Report(entry.label, tuple(TimedRow(name, Status.FAILED, note) for name in rows))
    timings = place.time(entry.label, calls)
    del calls
    place.free()
    return replace(report, rows=tuple(_timed(row, timings.get(row.name)) for row in report.rows))


def _timed(row: TimedRow, found: Timing | Exception | None) -> TimedRow:
    if isinstance(found, Exception):
        return replace(row, status=Status.FAILED, note=f"while timed: {told(found)}")
    return replace(row, timing=found)


@dataclass(frozen=True)
class CpuBench:
    """What the tables of programs on a CPU share.

    Attributes
    ----------
    device, peers, seed : where, which rows, and of which inputs.
    options : how to fuse.
    """

    device: Device
    peers: Mapping[str, Form]
    options: FuseOptions
    seed: int = 0

    def __call__(self, entry: Entry | Job) -> tuple[Report, dict[str, Call]]:
        """The table of a program without times, and the calls of the rows that passed."""
        job: Job = entry.workload if isinstance(entry, Entry) else entry
        case = Case(job, self.options, self.device.target, self.seed)
        checked = check(case, self.peers)
        report = Report(
            label=entry.label,
            rows=tuple(TimedRow(**vars(row)) for row in checked.rows),
            groups=entry.groups if isinstance(entry, Entry) else (),
            source=job.source,
            shape=dict(job.shape),
            dtype=job.dtype,
            flops=job.flops() if isinstance(job, Workload) else None,
            bytes=bytes_of(job),
            decisions=tuple(
                Decided(str(one.reason.verdict), one.reason.code, one.reason.detail, str(one.estimate or "") or None)
                for one in case.outcome.decisions
            ),
            fuse_seconds=case.fuse_seconds,
            baseline=checked.baseline,
            blind_to=checked.blind_to,
        )
        return report, {name: program.call for name, program in checked.runnable.items()}
