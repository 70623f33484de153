"""Is a workload fused and right, or refused for a reason that holds? All of it in one row, each claim checked.

A row is sound when

* every reduction is in one fused loop over the axis, or the refusal carries numbers on which its law fails;
* on every input each output passes the rule of `evaluate.tolerance` against the float64 oracle of the unfused program,
  compiled fused and unfused by our CPU schedules;
* on normal data that rule rejects zeros, a constant, a shuffle and a result that leaves out a segment of the axis.

What is refused for a rounding that does not commute is checked a second time under the contract that lists its dtype.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tvm import tirx

from tvm_cascade.accuracy.comparison import Compared
from tvm_cascade.accuracy.numerics import Subject
from tvm_cascade.algebra.verdict import Reason, Verdict
from tvm_cascade.analysis.domain import loads_of
from tvm_cascade.analysis.passes import along_axis
from tvm_cascade.bench import workloads as registry
from tvm_cascade.bench.one_core import on_one_core
from tvm_cascade.bench.workload import Workload
from tvm_cascade.evaluate import oracle
from tvm_cascade.options import FuseOptions

Array = NDArray[Any]

NORMAL = "normal"
_DROPPED = 4  # one part in so many of the cascade axis is left out
_FLOAT8 = ("float8_e4m3fn", "float8_e5m2")

_LIMITS: Mapping[str, int] = {
    "batch": 1,
    "heads": 2,
    "kv_heads": 1,
    "queries": 256,
    "tokens": 32,
    "columns": 64,
    "rows": 4,
}
_LENGTHS = {"PF_WINDOWED": 8192}  # Neptune's lengths are 2^8 to 2^15, and a window of 4096 masks nothing at 4096


@dataclass(frozen=True)
class Worst:
    """The comparison that came nearest to failing: the largest error for what is allowed."""

    input: str
    output: str
    unfused_error: float
    fused_error: float
    allowed: float


@dataclass(frozen=True)
class Audit:
    """What was found of one workload under one contract.

    Attributes
    ----------
    name, source, shape : of the workload.
    published : the published extents where the check ran at others.
    rescaled : dtypes listed in `rescalable_casts` besides the default ones.
    verdict, code : of the fused group, or of the reason why there is none.
    components : of the fold, references included; 0 without one.
    passes_before, loops_after : loops over the cascade axis, unfused and fused; counted in the fused function.
    worst : over all inputs and outputs.
    seconds : reading, deriving, proving and rewriting, of one core.
    counterexample : what shows that a refusal is right.
    problems : why the row is not sound.
    """

    name: str
    source: str
    shape: Mapping[str, int]
    published: Mapping[str, int]
    rescaled: tuple[str, ...]
    verdict: str
    code: str
    components: int
    passes_before: int | None
    loops_after: int | None
    worst: Worst
    seconds: float
    counterexample: str
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the row is sound."""
        return not self.problems


def checkable(workload: Workload) -> Workload:
    """The workload at published extents, but for those that only repeat the cascade: batch, heads, rows and columns."""
    length = _LENGTHS.get(workload.name)
    return (workload.with_length(length) if length else workload).within(_LIMITS)


Rows: TypeAlias = list[Audit]


def audits(
    workloads: Iterable[Workload], small: bool = False, kinds: Sequence[str] = (NORMAL,), seed: int = 0, jobs: int = 1
) -> Iterator[Audit]:
    """A row for each workload, and another where only a rounding stands against fusing it.

    Workloads that come out as the same program at the same size are checked once.

    Parameters
    ----------
    workloads : at their published shapes.
    small : check their small twins; else the shapes of `checkable`.
    kinds : of inputs; normal ones come first whether named or not.
    seed : of the inputs.
    jobs : processes that check, each on one core; with one it is this process, on all cores.
    """
    listed = list(workloads)
    firsts = {_program(workload, small): workload.name for workload in reversed(listed)}
    order = dict.fromkeys(firsts[_program(workload, small)] for workload in listed)
    with _checking(jobs) as check:
        found = {name: check(partial(_rows, name, small, kinds, seed)) for name in order}
        for workload in listed:
            size = _sized(workload, small).shape
            changed = {extent: n for extent, n in workload.shape.items() if size[extent] != n}
            for row in found[firsts[_program(workload, small)]]():
                yield replace(row, name=workload.name, source=workload.source, published=changed)


@contextmanager
def _checking(jobs: int) -> Iterator[Callable[[Callable[[], Rows]], Callable[[], Rows]]]:
    """What starts a check, or puts it off until its rows are asked for."""
    if jobs == 1:
        yield cache
        return
    context = multiprocessing.get_context("spawn")  # TVM's threads and compilers do not survive a fork
    pool = ProcessPoolExecutor(jobs, context, initializer=on_one_core)
    try:
        yield lambda rows: pool.submit(rows).result
    finally:
        pool.shutdown(cancel_futures=True)


def _rows(name: str, small: bool, kinds: Sequence[str], seed: int) -> Rows:
    sized = _sized(registry.get(name), small)
    rows = [audit(sized, kinds, seed)]
    return [*rows, audit(sized, kinds, seed, _FLOAT8)] if rows[0].code == "rounding" else rows


def _sized(workload: Workload, small: bool) -> Workload:
    return workload.cpu if small else checkable(workload)


def _program(workload: Workload, small: bool) -> object:
    """What makes two workloads the same program at the same size."""
    sized = _sized(workload, small)
    return sized.builder, *sized.shape.items(), sized.dtype


def audit(sized: Workload, kinds: Sequence[str], seed: int = 0, rescaled: tuple[str, ...] = ()) -> Audit:
    """The row of a workload at the size that it has, the cost model left aside."""
    options = FuseOptions(force=True, rescalable_casts=(*FuseOptions().rescalable_casts, *rescaled))
    subject = Subject(sized.build(), options, "auto")
    problems = list(_unsound_reasons(subject))
    compared: list[tuple[str, Compared]] = []
    for kind in dict.fromkeys((NORMAL, *kinds)):
        arrays = sized.inputs(np.random.default_rng(seed), kind)
        outputs = subject.compared(arrays)[1]
        compared += [(kind, one) for one in outputs]
        problems += [f"{kind}: {one.output.name}: {one.judged.message}" for one in outputs if not one.judged.ok]
        if kind == NORMAL:
            problems += _blind(sized, arrays, outputs)
    reason = _told(subject)
    loops = loops_along(subject)
    if loops not in (None, 1):
        problems.append(f"{loops} loops over the axis")
    return Audit(
        name=sized.name,
        source=sized.source,
        shape=dict(sized.shape),
        published={},
        rescaled=rescaled,
        verdict=str(reason.verdict),
        code=reason.code,
        components=sum(len(group.fold.steps) for group in subject.groups),
        passes_before=sum(one.estimate.passes_before for one in subject.outcome.decisions if one.estimate) or None,
        loops_after=loops,
        worst=_worst(compared),
        seconds=subject.fuse_seconds,
        counterexample=str(reason.counterexample or ""),
        problems=tuple(problems),
    )


def loops_along(subject: Subject) -> int | None:
    """Nests of the fused function that read an input along its group's axis; None where nothing was fused."""
    if not subject.groups:
        return None
    read = [pair for group in subject.groups for pair in along_axis(subject.program, group)]
    inputs = [buffer for buffer, _ in read if subject.program.writer(buffer) is None]
    body = subject.outcome.func.body.block.body
    nests = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
    return sum(any(load.source.same_as(buffer) for load in loads_of(nest) for buffer in inputs) for nest in nests)


def _told(subject: Subject) -> Reason:
    """The reason to tell: the first that is no fusion, else that of the fused group."""
    reasons = [decision.reason for decision in subject.outcome.decisions]
    return next((reason for reason in reasons if reason.verdict is not Verdict.FUSED), reasons[0])


def _unsound_reasons(subject: Subject) -> Iterator[str]:
    fused = [d for d in subject.outcome.decisions if d.reason.verdict is Verdict.FUSED]
    for decision in subject.outcome.decisions:
        if decision.reason.verdict is Verdict.REFUSED and decision.reason.counterexample is None:
            yield f"refused without a counterexample: {decision.reason}"
        elif decision.reason.verdict not in (Verdict.REFUSED, Verdict.FUSED):
            yield f"{decision.reason.verdict}: {decision.reason}"
    if len(fused) > 1:
        yield f"{len(fused)} fused loops"


def _worst(compared: Sequence[tuple[str, Compared]]) -> Worst:
    def nearness(pair: tuple[str, Compared]) -> tuple[float, float]:
        judged = pair[1].judged
        return (judged.max_error / judged.allowed if judged.allowed else judged.max_error, judged.max_error)

    kind, one = max(compared, key=nearness)
    return Worst(kind, one.output.name, one.judged.baseline_error, one.judged.max_error, one.judged.allowed)


def _blind(sized: Workload, arrays: Sequence[Array], outputs: Sequence[Compared]) -> list[str]:
    """Wrong answers that would have passed."""
    without = _without_a_segment(sized, arrays)
    return [
        f"the check of {one.output.name} cannot tell {mutant}"
        for one, dropped in zip(outputs, without, strict=True)
        for mutant in one.blind_to([dropped])
    ]


def _without_a_segment(sized: Workload, arrays: Sequence[Array]) -> list[Array]:
    """The exact outputs of the workload on all but the last part of the cascade axis."""
    axis = sized.length_extents[-1]
    length = sized.shape[axis]
    kept = length - max(1, length // _DROPPED)
    shorter = sized.with_shape(**{axis: kept}).build()
    shapes = [tuple(int(extent) for extent in param.ty.shape) for param in oracle.signature(shorter).inputs]
    cut = [array[tuple(map(slice, shape))] for array, shape in zip(arrays, shapes, strict=True)]
    return list(oracle.evaluate(shorter, cut).values())
