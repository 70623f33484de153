"""The suites that need a GPU: each measured, printed, and written as JSON and Markdown."""

from __future__ import annotations

import argparse
import dataclasses
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from benchmarks.gpu import device, goals, markdown, peers, suites, table
from benchmarks.gpu.ahead import compiled_ahead
from benchmarks.gpu.memory import measured
from benchmarks.gpu.record import GpuEnvironment, GpuReport
from benchmarks.gpu.rows import Bench
from benchmarks.gpu.summary import means
from benchmarks.gpu.timing import DeviceClock, GpuPlan
from benchmarks.record import check_files, write_json
from benchmarks.table import console, print_goals
from tvm_cascade.errors import OptionError

JSON_FORMAT = 1
"""Version of what `--json` writes; a field that changes its meaning raises it."""

_LEAST_ROUNDS = 4
_OPTIONS = ("peers", "rounds", "markdown", "commit", "jobs")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that only suites for a GPU have."""
    group = parser.add_argument_group(f"suites for a GPU ({', '.join(suites.SUITES)})")
    told = f"rows beside ours, of {'; '.join(_peers_told())} (default: all)"
    group.add_argument("--peers", nargs="+", metavar="NAME", help=told)
    group.add_argument("--rounds", type=int, metavar="N", help=f"turns of every row (default: {GpuPlan().rounds})")
    told = "processes that compile ahead (default: none)"
    group.add_argument("--jobs", type=int, metavar="J", help=told)
    group.add_argument("--markdown", type=Path, metavar="PATH", help="write the suite's section of this file")
    group.add_argument("--commit", metavar="HASH", help="what is measured, where that is a copy without its repository")


def _peers_told() -> list[str]:
    """The peers of the suites, those that have the same ones together."""
    by_names: dict[str, list[str]] = {}
    for suite in suites.SUITES:
        by_names.setdefault(", ".join(peers.of_suite(suite)), []).append(suite)
    return [f"{names} for {', '.join(several)}" for names, several in by_names.items()]


def refuse_options(args: argparse.Namespace) -> None:
    """Raise where a suite for the CPU was given options of the others.

    Raises
    ------
    OptionError
        When one was given.
    """
    for name in _OPTIONS:
        if getattr(args, name) is not None:
            hint = f"pass --suite {' or '.join(suites.SUITES)}, or leave it out"
            raise OptionError("a suite for a GPU, with this option", f"the suite `{args.suite}`", f"--{name}", hint)


def run(args: argparse.Namespace) -> int:
    """Measure a suite, print its tables, and write them where `--json` and `--markdown` say.

    Returns
    -------
    exit_code : 1 when a row of ours was wrong or failed, else 0; a peer that fails is a row with its reason.

    Raises
    ------
    WorkloadError, OptionError
        When `--only` or `--peers` names what there is not, a number is too small, a folder does not exist, or torch
        is not installed.
    InputError
        When torch sees no GPU.
    """
    plan = _plan(args)
    if args.jobs is not None and args.jobs < 1:
        raise OptionError("a number of processes", str(args.jobs), "--jobs", "pass 1 or more")
    rows = peers.chosen(args.peers, peers.of_suite(args.suite))
    entries = suites.entries(args.suite, args.only)
    check_files(json=args.json, markdown=args.markdown)
    torch = device.torch_on_gpu(f"--suite {args.suite}")
    clock, shown = DeviceClock(torch), console()
    memory = measured(torch, clock, device.DEVICE) if args.suite in suites.MOVING else None
    torch.cuda.empty_cache()
    where = replace(device.describe(torch, args.commit), memory=memory)
    table.print_environment(shown, where)
    reports: list[GpuReport] = []
    with compiled_ahead(rows, args.suite, entries, args.jobs) if args.jobs else nullcontext(rows) as prepared:
        bench = Bench(torch, device.DEVICE, prepared, clock, plan, args.seed, memory)
        for entry in entries:
            reports.append(bench.report(entry))
            with suppress(Exception):  # which tells of a kernel that broke the device, as every later row will
                torch.cuda.empty_cache()
            table.print_report(shown, reports[-1])
            write(args, where, plan, reports)  # after every workload, so that a broken run leaves the rest
    table.print_means(shown, means(reports))
    print_goals(shown, goals.evaluate(args.suite, reports))
    return 0 if all(report.sound for report in reports) else 1


def write(args: argparse.Namespace, where: GpuEnvironment, plan: GpuPlan, reports: list[GpuReport]) -> None:
    """Write what was found so far to the files of `--json` and `--markdown`."""
    write_json(
        args.json,
        format=JSON_FORMAT,
        suite=args.suite,
        environment=dataclasses.asdict(where),
        plan=dataclasses.asdict(plan),
        workloads=[{**dataclasses.asdict(one), "best_peer": one.best_peer} for one in reports],
        means=[dataclasses.asdict(mean) for mean in means(reports)],
        goals=[dataclasses.asdict(outcome) for outcome in goals.evaluate(args.suite, reports)],
    )
    if args.markdown is not None:
        before = args.markdown.read_text() if args.markdown.exists() else ""
        written = markdown.section(args.suite, where, plan, reports)
        args.markdown.write_text(markdown.updated(before, args.suite, written))


def _plan(args: argparse.Namespace) -> GpuPlan:
    plan = GpuPlan() if args.rounds is None else GpuPlan(rounds=args.rounds)
    if plan.rounds < _LEAST_ROUNDS:
        hint = "the card lowers its clocks under load, so that few rounds favour who comes first"
        raise OptionError(f"at least {_LEAST_ROUNDS} rounds", str(plan.rounds), "--rounds", hint)
    return plan
