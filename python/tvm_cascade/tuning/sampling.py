"""Designs drawn at random from a function's space, each checked against float64: right, discarded, or wrong."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from tvm_cascade.driver.space import Design, Space
from tvm_cascade.errors import InputError
from tvm_cascade.tuning.building import Builder, Built, built_ahead
from tvm_cascade.tuning.running import Runner
from tvm_cascade.tuning.task import Task, has_exact, space_for
from tvm_cascade.tuning.worker import TrialError

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
    space = space_for(task)
    designs = _drawn(space, count, rng)
    if runner is not None:
        runner.prepare(task, inputs)
        if not has_exact(task):
            hint = "a smaller shape"
            raise InputError("a function that float64 in NumPy computes in seconds", "a larger one", task.name, hint)
    known: dict[int, Sample] = {}
    batches = (designs[start : start + builder.batch] for start in range(0, len(designs), builder.batch))
    for batch, several in built_ahead(builder, task, batches, known.keys()):
        for design, built in zip(batch, several, strict=True):
            words = space.words(design)
            if isinstance(built, TrialError):
                yield Sample(task.name, words, DISCARDED, built.stage, built.reason)
            elif built.mark in known:
                yield replace(known[built.mark], words=words, same=True)
            else:
                known[built.mark] = _run(task, design, built, runner, words)
                yield known[built.mark]


def _drawn(space: Space, count: int, rng: random.Random) -> list[Design]:
    found: dict[Design, None] = {}
    for _ in range(_ATTEMPTS * count):
        if len(found) < count:
            found[space.drawn(rng)] = None
    return list(found)


def _run(task: Task, design: Design, built: Built, runner: Runner | None, words: dict[str, str]) -> Sample:
    if runner is None:
        return Sample(task.name, words, BUILT)
    try:
        runner.run(task, design, built, built)
    except TrialError as error:
        return Sample(task.name, words, WRONG, error.stage, error.reason)
    return Sample(task.name, words, RIGHT)
