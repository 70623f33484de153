"""`python -m benchmarks.check --designs N`: designs drawn at random, each right, or discarded with its reason."""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.table import Table
from tvm import tirx

from benchmarks.check.audit import checkable
from corpus.workload import Workload
from tvm_cascade.cli.arguments import console, target_of
from tvm_cascade.cli.jobs import Job
from tvm_cascade.cli.programs import identifier_of, tuning_inputs
from tvm_cascade.driver.backend import Goal
from tvm_cascade.driver.backends import backend_of
from tvm_cascade.driver.gpu_space import keeps_what_overlaps, space_of, told_of, ways_of
from tvm_cascade.driver.space import Design, Space
from tvm_cascade.errors import InputError
from tvm_cascade.options import FuseOptions
from tvm_cascade.plan.plan import Plan, Step
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.skeleton import Kernel, Setting, reconfigured
from tvm_cascade.tuning.building import Builder, Built, LocalBuilder, written
from tvm_cascade.tuning.running import LocalRunner, Runner
from tvm_cascade.tuning.task import Task, space_for, takes_seconds, task_of
from tvm_cascade.tuning.worker import TrialError

JSON_FORMAT = 1
"""Version of what `--json` writes; a field that changes its meaning raises it."""

_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?")
_WIDTH = 100
"""Of a reason in the table, and of the design that it is shown by."""


def run(args: argparse.Namespace, jobs: Sequence[Job]) -> int:
    """Check designs of programs; returns the exit code, 1 where one is wrong."""
    if args.designs < 1:
        raise InputError("1 design or more", str(args.designs), "--designs")
    target = target_of(args.target)
    builder = MixedBuilder(batch=args.jobs if args.jobs > 1 else None)
    runner = LocalRunner() if backend_of(target).first_device.exist else None
    found: list[Sample] = []
    try:
        for name, several in _drawn(jobs, args, target, builder, runner):
            found += several
            counts = Counter(one.outcome for one in several)
            told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
            print(f"{name}: {told}", file=sys.stderr, flush=True)
    finally:  # stopped or not, what was found is told
        builder.close()
        if runner is not None:
            runner.close()
        _tell(found, args.json)
    return 1 if any(one.outcome == WRONG for one in found) else 0


def _drawn(
    jobs: Sequence[Job], args: argparse.Namespace, target: tvm.target.Target, builder: Builder, runner: Runner | None
) -> Iterator[tuple[str, list[Sample]]]:
    """Programs in random order, each with its share of the designs that are still to be drawn."""
    rng, options = random.Random(args.seed), FuseOptions.from_environment()
    sized = _different(jobs, args.small)
    rng.shuffle(sized)
    left = args.designs
    with tempfile.TemporaryDirectory(prefix="tvm_cascade_designs_") as folder:
        for number, job in enumerate(sized):
            share = -(-left // (len(sized) - number))
            if share == 0:
                return
            name = identifier_of(job)
            task = task_of(name, job.build(), target, options, Path(folder) / str(number))
            task = MixedTask(**vars(task), seed=args.seed)
            several = list(samples(task, share, rng, builder, runner, tuning_inputs(job, args.seed)))
            left -= len(several)
            yield job.name, several


def _different(jobs: Sequence[Job], small: bool) -> list[Job]:
    """Each program once, at a size that float64 in NumPy computes in seconds where it is a workload."""
    found: dict[int, Job] = {}
    for job in jobs:
        sized = _sized(job, small) if isinstance(job, Workload) else job
        found.setdefault(tvm_ffi.structural_hash(sized.build()), sized)
    return list(found.values())


def _sized(job: Workload, small: bool) -> Workload:
    """With few repetitions of its cascade, or its small twin."""
    sized = checkable(job)
    return job.cpu if small or not takes_seconds(sized.build()) else sized


def _tell(found: Sequence[Sample], path: Path | None) -> None:
    """Print the table by reasons, and write every design where it is asked for."""
    if not found:
        return
    out = console()
    out.print(_table(found))
    for one in found:
        if one.outcome == WRONG:
            out.print(f"{one.program}: {_design(one)}: {one.stage}: {one.reason}", markup=False)
    out.print(summary(found), markup=False)
    if path is not None:
        rows = [dataclasses.asdict(one) for one in found]
        path.write_text(json.dumps({"format": JSON_FORMAT, "designs": rows}, indent=1) + "\n")


def summary(found: Sequence[Sample]) -> str:
    """How many designs there are of what outcome, in one sentence."""
    counts = Counter(one.outcome for one in found)
    told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    programs, different = len({one.program for one in found}), sum(not one.same for one in found)
    text = f"{len(found)} designs of {programs} functions, {different} different kernels: {told}"
    return f"{text}; there is no such device here to run them on" if BUILT in counts else text


def _table(found: Sequence[Sample]) -> Table:
    """A row for each reason; numbers in it are of its first design."""
    groups: dict[tuple[str, str, str], list[Sample]] = {}
    for one in found:
        groups.setdefault((one.outcome, one.stage, _NUMBER.sub("#", one.reason)), []).append(one)
    table = Table(box=SIMPLE_HEAD)
    for column in ("designs", "functions", "outcome", "reason", "such as"):
        table.add_column(column, justify="right" if column in ("designs", "functions") else "left")
    for (outcome, stage, _), several in sorted(groups.items(), key=lambda group: -len(group[1])):
        functions = len({one.program for one in several})
        reason = f"{stage}: {several[0].reason}"[:_WIDTH] if stage else ""
        example = f"{several[0].program}: {_design(several[0])}"[:_WIDTH]
        table.add_row(str(len(several)), str(functions), outcome, reason, example)
    return table


def _design(one: Sample) -> str:
    return "; ".join(f"{knob}: {value}" for knob, value in one.words.items()) or "its only design"


# Designs drawn at random from a function's space, each checked against float64: right, discarded, or wrong.


Array = NDArray[Any]

RIGHT, BUILT, DISCARDED, WRONG = "right", "built", "discarded", "wrong"
"""What may become of a design; one that is built alone has no device here to run on."""

_ATTEMPTS = 20
"""Draws for each design that is asked for, of which most may be there already in a small space."""


@dataclass(frozen=True)
class Sample:
    """One design that was drawn.

    Attributes
    ----------
    program : the name of its function.
    words : the values of its knobs.
    outcome : one of those above: wrong where it runs and its result, or its end, is not that of the function.
    stage, reason : where and why it was discarded or is wrong; see `Trial`.
    same : it gives the program of a design before it, whose outcome it has.
    """

    program: str
    words: dict[str, str]
    outcome: str
    stage: str = ""
    reason: str = ""
    same: bool = False


def samples(
    task: Task,
    count: int,
    rng: random.Random,
    builder: Builder,
    runner: Runner | None,
    inputs: Sequence[Array] | None = None,
) -> Iterator[Sample]:
    """Different designs of a task, at most so many, each built and checked.

    Parameters
    ----------
    runner : what runs them; None where there is no device, and building is all.
    inputs : of the function; as `tune` draws them by default.

    Raises
    ------
    InputError
        Where the function is too large for float64 in NumPy, so that nothing says what is right.
    """
    space = _space(task)
    designs = _designs_of(space, count, rng)
    if runner is not None:
        runner.prepare(task, inputs)
        if not (task.folder / "exact").exists():
            hint = "a smaller shape"
            raise InputError("a function that float64 in NumPy computes in seconds", "a larger one", task.name, hint)
    known: dict[int, Sample] = {}
    for start in range(0, len(designs), builder.batch):
        batch = designs[start : start + builder.batch]
        for design, built in zip(batch, builder.build(task, batch, known), strict=True):
            words = space.words(design)
            if isinstance(built, TrialError):
                yield Sample(task.name, words, DISCARDED, built.stage, built.reason)
            elif built.mark in known:
                yield replace(known[built.mark], words=words, same=True)
            else:
                known[built.mark] = _run(task, design, built, runner, words)
                yield known[built.mark]


def _designs_of(space: Space, count: int, rng: random.Random) -> list[Design]:
    found: dict[Design, None] = {}
    for _ in range(_ATTEMPTS * count):
        if len(found) < count:
            found[drawn(space, rng)] = None
    return list(found)


def drawn(space: Space, rng: random.Random) -> Design:
    """A design at random: each knob that is in use takes any of its values."""
    places: list[int] = []
    for knob in space.knobs:
        places.append(rng.randrange(len(knob.values)) if knob.is_used(places) else 0)
    return tuple(places)


def _run(task: Task, design: Design, built: Built, runner: Runner | None, words: dict[str, str]) -> Sample:
    if runner is None:
        return Sample(task.name, words, BUILT)
    try:
        runner.run(task, design, built, built)
    except TrialError as error:
        return Sample(task.name, words, WRONG, error.stage, error.reason)
    return Sample(task.name, words, RIGHT)


# Configurations that no skeleton lists.


_FOR_EACH = 16
"""Mixed configurations of a kernel, of which those are taken that fit."""


@dataclass(frozen=True)
class MixedTask(Task):
    """A task whose space has mixed configurations too.

    Attributes
    ----------
    seed : of the mixtures.
    """

    seed: int = 0


class MixedBuilder(LocalBuilder):
    """Builds designs of mixed tasks, of others too."""

    builds = f"{__name__}:build"


def build(task: Task, design: Design, path: Path, known: frozenset[int]) -> int:
    """As of the package, in a worker."""
    return written(_space(task), task, design, path, known)


@lru_cache(maxsize=4)
def _space(task: Task) -> Space:
    if not isinstance(task, MixedTask):
        return space_for(task)
    return mixed_space(task.function, task.name, task.goal, task.seed)


def mixed_space(func: tirx.PrimFunc, name: str, goal: Goal, seed: int) -> Space:
    """The space of a function, on a GPU also of kernels in configurations of fields that listed ones have."""

    def ways(plan: Plan, position: int, setting: Setting) -> dict[str, Step]:
        found, step = ways_of(plan, position, setting), plan.steps[position]
        kernels = [way.chosen for way in found.values() if isinstance(way.chosen, Kernel)]
        for kernel in _mixed(kernels, random.Random(seed), setting):
            found.setdefault(told_of(kernel), replace(step, chosen=kernel))
        return found

    return space_of(func, name, goal, ways=ways)


def _mixed(listed: list[Kernel], rng: random.Random, setting: Setting) -> Iterator[Kernel]:
    """Kernels of each skeleton in mixed configurations that fit."""
    for skeleton in dict.fromkeys(kernel.skeleton for kernel in listed):
        alike = [kernel for kernel in listed if kernel.skeleton is skeleton]
        for config in _mixtures([kernel.config for kernel in alike], rng):
            if keeps_what_overlaps(alike[0], config):
                with suppress(Unfit):
                    yield reconfigured(alike[0], config, setting)


def _mixtures(configs: Sequence[Any], rng: random.Random) -> Iterator[Any]:
    for _ in range(_FOR_EACH):
        first = rng.choice(configs)
        names = _names(first)
        alike = [one for one in configs if _names(one) == names]
        yield replace(first, **{name: getattr(rng.choice(alike), name) for name in names})


def _names(config: Any) -> list[str]:
    return [one.name for one in dataclasses.fields(config) if one.init]
