"""`python -m campaigns`: random cascades through the algebra and the pass, in a resumable campaign."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence

import tvm

from benchmarks.commands import command, uncached
from campaigns import ledger
from campaigns.campaign import Plan, State, run_campaign, run_trial
from campaigns.grammar import draw
from campaigns.summary import findings, summary
from tvm_cascade.cli.arguments import console, new_file
from tvm_cascade.devices.host import core_count
from tvm_cascade.driver.progress import waiting
from tvm_cascade.errors import InputError
from tvm_cascade.obligations.derive import derive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--algebra", type=int, default=0, metavar="N", help="folds to check against definitions")
    parser.add_argument("--programs", type=int, default=0, metavar="N", help="programs to fuse, compile, run and check")
    parser.add_argument("--gpu", type=int, default=0, metavar="N", help="programs to compile for this GPU and check")
    parser.add_argument("--jobs", type=int, default=core_count(), metavar="J", help="worker processes (all cores)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first seed; a case is one seed")
    parser.add_argument("--state", type=new_file, metavar="FILE", help="JSON lines, one a trial: where to go on from")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="start no further trial after this time")
    parser.add_argument("--replay", type=int, metavar="SEED", help="one case: what it is, its verdicts, its mismatch")
    parser.add_argument("--ledger", type=new_file, metavar="FILE", help="replay a file of verdicts: what differs")
    parser.add_argument("--record", metavar="SEEDS", help="enter seeds, as 0-9999,84019250, into the ledger instead")
    parser.add_argument("--sample", type=int, metavar="N", help="replay so many entries of the ledger, evenly spread")


def run(args: argparse.Namespace) -> int:
    """Run the campaign or the replay; returns the exit code: 1 where there are findings."""
    with uncached():  # of what is compiled now
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    for name in ("algebra", "programs", "gpu", "seed"):
        if getattr(args, name) < 0:
            raise InputError("0 or more", str(getattr(args, name)), f"--{name}")
    if args.jobs < 1:
        raise InputError("1 or more", str(args.jobs), "--jobs")
    if args.gpu and not tvm.cuda(0).exist:
        raise InputError("a GPU, for --gpu", "no CUDA device here", "campaigns", "leave --gpu out")
    if args.replay is not None:
        return _replay(args.replay)
    if args.ledger is not None:
        return _record(args) if args.record is not None else _replay_ledger(args)
    if args.record is not None or args.sample is not None:
        raise InputError("--ledger FILE with --record and --sample", "none", "campaigns")
    if not (args.algebra or args.programs or args.gpu) and args.state is None:
        raise InputError("a number of trials", "none", "campaigns", "pass --algebra 1000 --programs 100, say")
    state = State(args.state)
    try:
        plan = Plan(args.algebra, args.programs, args.jobs, args.seed, args.budget, args.gpu)
        progress = _Progress()
        with waiting(lambda: progress.told):
            run_campaign(plan, state, progress)
    finally:  # stopped or not, what was found is told
        state.close()
        console().print(summary(state.records.values()))
    return 1 if findings(state.records.values()) else 0


def _replay(seed: int) -> int:
    case = draw(seed)
    print(f"{case}\n\n{case.cascade()}\n")
    with contextlib.suppress(Exception):  # the trials below say what was raised
        print(f"{derive(case.cascade())}\n")
    kinds = ("algebra", "program", "gpu") if tvm.cuda(0).exist else ("algebra", "program")
    records = [run_trial((kind, seed)) for kind in kinds]
    for record in records:
        verdict = f"{record.verdict} {record.code}".strip()
        print(f"{record.kind}: {record.finding or 'ok'}; {verdict}" + (f"; {record.detail}" if record.detail else ""))
    return 1 if findings(records) else 0


def _record(args: argparse.Namespace) -> int:
    """Enter verdicts into a ledger; what it says of other seeds stays."""
    seeds = ledger.seeds_of(args.record)
    kept = ledger.read(args.ledger) if args.ledger.exists() else {}
    ledger.write(args.ledger, kept | _derived(seeds, args))
    print(f"{len(seeds)} entries written to {args.ledger}")
    return 0


def _replay_ledger(args: argparse.Namespace) -> int:
    """Tell which entries of a ledger differ; returns 1 where some do."""
    expected = ledger.read(args.ledger)
    if args.sample is not None:
        if args.sample < 1:
            raise InputError("1 or more", str(args.sample), "--sample")
        expected = ledger.sample(expected, args.sample)
    changes = ledger.changes(expected, _derived(list(expected), args))
    print("\n".join([*map(str, changes), f"{len(changes)} of {len(expected)} entries differ"]))
    return 1 if changes else 0


def _derived(seeds: list[int], args: argparse.Namespace) -> ledger.Ledger:
    state = State(args.state)
    try:
        progress = _Progress()
        with waiting(lambda: progress.told):
            return ledger.derived(seeds, args.jobs, state, progress)
    finally:
        state.close()


class _Progress:
    """How far a campaign is, in words."""

    def __init__(self) -> None:
        self.told = "workers start"

    def __call__(self, state: State, remaining: int) -> None:
        found = len(findings(state.records.values()))
        self.told = f"{len(state.records)} done, {remaining} to go, {found} findings"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code: 1 a case failed, 2 bad input."""
    return command("campaigns", "random cascades; resumes, and uses all cores", add_arguments, run, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
