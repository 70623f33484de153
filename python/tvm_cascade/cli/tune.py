"""`python -m tvm_cascade tune PROGRAM`: measures designs of a program, and keeps the best in a database."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import tvm

from tvm_cascade.cli.arguments import (
    add_option_arguments,
    add_program_arguments,
    add_seed_argument,
    new_file,
    options_given,
    target_of,
)
from tvm_cascade.cli.jobs import Job
from tvm_cascade.cli.programs import chosen_jobs, identifier_of, tuning_inputs
from tvm_cascade.errors import InputError
from tvm_cascade.tuning.building import Builder, LocalBuilder
from tvm_cascade.tuning.proposals import DEFAULT_TRIALS
from tvm_cascade.tuning.records import Records
from tvm_cascade.tuning.report import FunctionTuning
from tvm_cascade.tuning.running import LocalRunner, Runner, TrackerRunner, check_device
from tvm_cascade.tuning.tune import EVERY, check_budget, tune


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_program_arguments(parser, nargs="?")
    add_session_arguments(parser)
    told = "instead of tuning: write what these databases know to that of --work-dir"
    parser.add_argument("--merge", type=Path, nargs="+", default=[], metavar="FOLDER", help=told)


def add_session_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare how sessions tune, and the options of the pass."""
    parser.add_argument("--target", default="auto", help='"auto" (the CPU of this machine), cuda, or a target of TVM')
    told = f'designs to try, or "{EVERY}": without leaving out those of long estimates (default: %(default)s)'
    parser.add_argument("--trials", type=_trials, default=DEFAULT_TRIALS, metavar="N", help=told)
    parser.add_argument("--seconds", type=float, metavar="S", help="for each function (default: no limit)")
    told = "folder of the database; the same command goes on where it stopped (default: %(default)s)"
    parser.add_argument("--work-dir", type=Path, default=Path("tuned"), metavar="FOLDER", help=told)
    told = "measure on a server of TVM's RPC that a tracker knows, see docs/tuning.md (default: this machine)"
    parser.add_argument("--tracker", metavar="HOST:PORT", help=told)
    parser.add_argument("--key", metavar="KEY", help="of the servers at the tracker")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write every trial there")
    told = "designs that are built at a time (default: half the cores, up to 6)"
    parser.add_argument("--jobs", type=int, metavar="N", help=told)
    add_seed_argument(parser)
    add_option_arguments(parser)


def _trials(text: str) -> int | str:
    if text != EVERY and not text.lstrip("-").isdigit():
        raise argparse.ArgumentTypeError(f'expected a number of designs, or "{EVERY}": found {text!r}')
    return text if text == EVERY else int(text)


def run(args: argparse.Namespace) -> int:
    """Tune or merge; returns the exit code, 1 where nothing could be measured."""
    if (args.program is not None) == bool(args.merge):
        raise InputError("a PROGRAM, or --merge FOLDER…", "neither of them, or both", "tune")
    if missing := [str(folder) for folder in args.merge if not folder.is_dir()]:
        raise InputError("folders of databases", ", ".join(missing), "--merge")
    if args.merge:
        return _merge(args.merge, args.work_dir)
    check_budget(args.trials, args.seconds)  # before the program, whose folds take a while
    return 0 if all(one.best is not None for _, one in tuned(chosen_jobs([args.program], args), args)) else 1


def _merge(folders: Sequence[Path], into: Path) -> int:
    records = Records(into, write=True)
    added = sum(records.absorb(Records(folder)) for folder in folders)
    print(f"{added} records written to {into}")
    return 0


def tuned(jobs: Iterable[Job], args: argparse.Namespace) -> list[tuple[str, FunctionTuning]]:
    """The sessions of the functions of programs, under their labels; printed, and written where `--json` says."""
    target = target_of(args.target)
    if args.tracker is None:
        check_device(target)
    found = list[tuple[str, FunctionTuning]]()
    with contextlib.ExitStack() as stack:
        builder, runner = LocalBuilder(batch=args.jobs), _runner(args)
        stack.callback(builder.close)
        stack.callback(runner.close)
        for job in jobs:
            found += _sessions(job, target, builder, runner, args)
            if args.json is not None:  # what was found by then is not lost
                rows = [{"program": label, **one.to_json()} for label, one in found]
                args.json.write_text(json.dumps(rows, indent=1))
    return found


def _runner(args: argparse.Namespace) -> LocalRunner | TrackerRunner:
    """What runs designs: elsewhere, where a tracker is named."""
    if (args.tracker is None) != (args.key is None):
        raise InputError("--tracker HOST:PORT and --key KEY", "one of them", "tune")
    if args.tracker is None:
        return LocalRunner()
    host, _, port = args.tracker.rpartition(":")
    if not host or not port.isdecimal():
        raise InputError("HOST:PORT", args.tracker, "--tracker")
    return TrackerRunner(host, int(port), args.key)


def _sessions(
    job: Job, target: tvm.target.Target, builder: Builder, runner: Runner, args: argparse.Namespace
) -> list[tuple[str, FunctionTuning]]:
    """The sessions of a program's functions, under its label."""
    mod = tvm.IRModule({identifier_of(job): job.build()})
    inputs, options = tuning_inputs(job, args.seed), options_given(args)
    how = {"inputs": inputs, "builder": builder, "runner": runner, **options}
    report = tune(mod, target, args.trials, args.seconds, args.work_dir, **how)
    print(report)
    print(f"`tvm_cascade.compile(…, database={str(args.work_dir)!r})` builds the best", flush=True)
    return [(job.label, one) for one in report.functions]
