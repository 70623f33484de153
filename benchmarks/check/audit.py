"""Audits a program: fused and right, or refused for a reason that is checked; one row each.

A row is sound when

* every reduction is in one fused loop over the axis, or the refusal carries numbers on which its law fails; what is
  written element by element from its results has a loop of its own. Of other programs, and of those that hold nothing
  to fuse, that is told, and not asked;
* on every input each output passes the rule of `evaluate.tolerance` against the float64 oracle of the unfused program,
  compiled fused and unfused by our CPU schedules;
* on normal data that rule rejects zeros, a constant, a shuffle and a result that leaves out a segment of the axis.

Where the unfused program keeps so few digits of an input that the rule lets such wrong answers pass, the row says so,
and that input stands for nothing. What is refused for a rounding that does not commute is checked a second time under
the contract that lists its dtype. A row whose check raises is not sound, and those after it are checked all the same.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np
import tvm_ffi
from numpy.typing import NDArray
from tvm import ir, s_tir, tirx

from benchmarks.check.definition import Definition
from benchmarks.judge.power import blind_to, hidden_by_the_unfused
from corpus import workloads as registry
from corpus.workload import Workload
from tvm_cascade.accuracy.comparison import Compared
from tvm_cascade.accuracy.numerics import Subject
from tvm_cascade.algebra.verdict import Reason, Verdict
from tvm_cascade.analysis.passes import along_axis
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.statements import ROLE
from tvm_cascade.analysis.tir import loads_of
from tvm_cascade.cli.jobs import Job
from tvm_cascade.evaluate import oracle
from tvm_cascade.options import Cast, FuseOptions
from tvm_cascade.transform.nest import GUARD

Array = NDArray[Any]

NORMAL = "normal"
_PARTS = 4  # of the cascade axis, of which one is left out
_FLOAT8: tuple[Cast, ...] = ("float8_e4m3fn", "float8_e5m2")

_LIMITS: Mapping[str, int] = {
    "batch": 1,
    "heads": 2,
    "kv_heads": 1,
    "queries": 256,
    "tokens": 32,
    "columns": 64,
    "rows": 4,
}
_LENGTHS = {
    "PF_WINDOWED": 8192,  # Neptune's lengths are 2^8 to 2^15, and a window of 4096 masks nothing at 4096
    "moe_routing": 512,  # the oracle takes what is chosen among position by position
}


@dataclass(frozen=True)
class Worst:
    """The comparison nearest to failing: the largest ratio of error to tolerance."""

    input: str
    output: str
    unfused_error: float
    fused_error: float
    allowed: float


@dataclass(frozen=True)
class Audit:
    """The findings on one workload under one rounding contract.

    Attributes
    ----------
    name, source, shape : of the workload.
    published : the published extents where the check ran at others.
    rescaled : dtypes listed in `rescalable_casts` besides the default ones.
    verdict, code : of the fused group, or of the reason why there is none.
    components : of the fold, references included; 0 without one.
    passes_before, loops_after : loops over the cascade axis, unfused and fused; counted in the fused function.
    worst : over all inputs and outputs on which the check can tell; None where nothing was compared.
    blind : inputs on which it cannot, since the unfused program keeps too few digits: (input, output, its error).
    seconds : reading, deriving, checking and rewriting, of one core.
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
    worst: Worst | None
    blind: tuple[tuple[str, str, float], ...]
    seconds: float
    counterexample: str
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the row is sound."""
        return not self.problems


def checkable(workload: Workload) -> Workload:
    """The workload at published extents, except those that only repeat the cascade: batch, heads, rows, columns."""
    length = _LENGTHS.get(workload.name)
    return (workload.with_length(length) if length else workload).within(_LIMITS)


Rows: TypeAlias = list[Audit]
Checkable: TypeAlias = Job | Definition


def audits(
    jobs: Iterable[Checkable], small: bool = False, kinds: Sequence[str] = (NORMAL,), seed: int = 0, processes: int = 1
) -> Iterator[Audit]:
    """One row per program, and a second one where only a rounding prevents fusing it.

    Workloads that come out as the same program at the same size are checked once.

    Parameters
    ----------
    jobs : workloads at their published shapes, and functions of the user's own, which keep theirs.
    small : check the workloads' small twins; else the shapes of `checkable`.
    kinds : of inputs; normal ones come first whether named or not.
    seed : of the inputs.
    processes : that check, each on one core; with one it is this process, on all cores.
    """
    listed = [(job, _sized(job, small)) for job in jobs]
    firsts = {_program(sized): job for job, sized in reversed(listed)}
    order = dict.fromkeys(_program(sized) for _, sized in listed)
    with _checking(processes) as check:
        handed = {key: _handed(firsts[key], processes) for key in order}
        found = {key: check(partial(_rows, job, small, kinds, seed)) for key, job in handed.items()}
        for job, sized in listed:
            changed = {extent: n for extent, n in job.shape.items() if sized.shape[extent] != n}
            for row in found[_program(sized)]():
                yield replace(row, name=job.name, source=job.source, published=changed)


@contextmanager
def _checking(processes: int) -> Iterator[Callable[[Callable[[], Rows]], Callable[[], Rows]]]:
    """What starts a check, or puts it off until its rows are asked for."""
    if processes == 1:
        yield cache
        return
    context = multiprocessing.get_context("spawn")  # TVM's threads and compilers do not survive a fork
    pool = ProcessPoolExecutor(processes, context, initializer=_as_a_checker)
    try:
        yield lambda rows: pool.submit(rows).result
    finally:
        pool.shutdown(cancel_futures=True)


def _as_a_checker() -> None:
    """Initialises a checking process; an interrupt ends it silently, since the command reports it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    on_one_core()


def _handed(job: Checkable, processes: int) -> Checkable | str:
    """The argument of a check; workloads go to other processes by name, since builders cannot be pickled."""
    return job.name if processes > 1 and isinstance(job, Workload) else job


def _rows(job: Checkable | str, small: bool, kinds: Sequence[str], seed: int) -> Rows:
    sized = _sized(registry.get(job) if isinstance(job, str) else job, small)
    rows = [_row(sized, kinds, seed)]
    return [*rows, _row(sized, kinds, seed, _FLOAT8)] if rows[0].code == "rounding" else rows


def _row(sized: Checkable, kinds: Sequence[str], seed: int, rescaled: tuple[Cast, ...] = ()) -> Audit:
    """The row of a job, and where its check raises, a row that says what was raised."""
    try:
        return audit(sized, kinds, seed, rescaled)
    except Exception as error:  # one program that cannot be checked must not hide what was found of the others
        told = f"{type(error).__name__}: {' '.join(str(error).split())}"
        shape = dict(sized.shape)
        return Audit(sized.name, sized.source, shape, {}, rescaled, "-", "", 0, None, None, None, (), 0.0, "", (told,))


def _sized(job: Checkable, small: bool) -> Checkable:
    if not isinstance(job, Workload):
        return job
    return job.cpu if small else checkable(job)


def _program(sized: Checkable) -> object:
    """What makes two jobs the same program at the same size."""
    if not isinstance(sized, Workload):
        return sized.source, sized.name
    return sized.builder, *sized.shape.items(), sized.dtype


def audit(sized: Checkable, kinds: Sequence[str], seed: int = 0, rescaled: tuple[Cast, ...] = ()) -> Audit:
    """The row of a job at its own size, without the cost model."""
    options = FuseOptions(force=True, rescalable_casts=(*FuseOptions().rescalable_casts, *rescaled))
    subject = Subject(sized.build(), options, "auto")
    problems = list(_unsound_reasons(subject)) if isinstance(sized, Workload) else []
    found: list[tuple[str, Compared]] = []
    for kind in dict.fromkeys((NORMAL, *kinds)):
        arrays = sized.inputs(np.random.default_rng(seed), kind)
        outputs = subject.compared(arrays)[1]
        found += [(kind, one) for one in outputs]
        problems += [f"{kind}: {one.output.name}: {one.judged.message}" for one in outputs if not one.judged.ok]
        if kind == NORMAL:
            problems += _blind(subject, arrays, outputs)
    reason = _told(subject)
    blind = [(kind, one) for kind, one in found if hidden_by_the_unfused(one)]
    return Audit(
        name=sized.name,
        source=sized.source,
        shape=dict(sized.shape),
        published={},
        rescaled=rescaled,
        verdict=str(reason.verdict) if reason else "-",
        code=reason.code if reason else "",
        components=sum(len(group.fold.steps) for group in subject.groups),
        passes_before=sum(one.estimate.passes_before for one in subject.outcome.decisions if one.estimate) or None,
        loops_after=loops_along(subject),
        worst=_worst([pair for pair in found if pair not in blind]),
        blind=tuple((kind, one.output.name, one.judged.baseline_error) for kind, one in blind),
        seconds=subject.fuse_seconds,
        counterexample=str(reason.counterexample or "") if reason else "",
        problems=tuple(problems),
    )


def loops_along(subject: Subject) -> int | None:
    """Nests of the fused function that read an input along its group's axis; None where nothing was fused.

    Guards are left out: they read a row again only where its result may not be used.
    """
    return len(_nests_along(subject)) if subject.groups else None


def _nests_along(subject: Subject) -> list[tirx.Stmt]:
    read = [pair for group in subject.groups for pair in along_axis(subject.program, group.members)]
    inputs = [(buffer, dim) for buffer, dim in read if subject.program.writer(buffer) is None]

    def is_along(load: ir.TensorLoad) -> bool:
        """Whether the load runs along the axis; one at an index that is loaded itself picks a position."""
        return any(load.source.same_as(buffer) and not loads_of(load.indices[dim]) for buffer, dim in inputs)

    body = subject.outcome.func.body.block.body
    nests = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
    return [nest for nest in nests if any(map(is_along, loads_of(nest))) and not _is_guard(nest)]


def _is_guard(nest: tirx.Stmt) -> bool:
    roles: list[str] = []
    tvm_ffi.structural_walk(nest, (s_tir.SBlock, lambda block: roles.append(str(block.annotations.get(ROLE, "")))))
    return GUARD in roles


def _folds(nest: tirx.Stmt, program: Program) -> bool:
    """Whether a nest does more than write what the program computes element by element, as softmax's quotients."""
    elementwise = {stage.buffer for stage in program.stages if stage.reducer is None}
    written: set[ir.Var] = set()
    tvm_ffi.structural_walk(nest, (tirx.BufferStore, lambda store: written.add(store.buffer)))
    return not written <= elementwise


def _told(subject: Subject) -> Reason | None:
    """The reason to tell: the first that is no fusion, else that of the fused group; None without a reduction."""
    reasons = [decision.reason for decision in subject.outcome.decisions]
    return next((reason for reason in reasons if reason.verdict is not Verdict.FUSED), next(iter(reasons), None))


def _unsound_reasons(subject: Subject) -> Iterator[str]:
    if all(decision.reason.verdict is Verdict.NOTHING for decision in subject.outcome.decisions):
        return
    fused = [d for d in subject.outcome.decisions if d.reason.verdict is Verdict.FUSED]
    for decision in subject.outcome.decisions:
        if decision.reason.verdict is Verdict.REFUSED and decision.reason.counterexample is None:
            yield f"refused without a counterexample: {decision.reason}"
        elif decision.reason.verdict not in (Verdict.REFUSED, Verdict.FUSED):
            yield f"{decision.reason.verdict}: {decision.reason}"
    if not _cascade_axes(subject):
        yield "no reductions of which a segment could be left out"
    if len(fused) > 1:
        yield f"{len(fused)} fused loops"
    folding = sum(_folds(nest, subject.program) for nest in _nests_along(subject)) if subject.groups else 1
    if folding != 1:
        yield f"{folding} loops that fold the axis"


def _worst(compared: Sequence[tuple[str, Compared]]) -> Worst | None:
    def nearness(pair: tuple[str, Compared]) -> tuple[float, float]:
        judged = pair[1].judged
        return (judged.max_error / judged.allowed if judged.allowed else judged.max_error, judged.max_error)

    if not compared:
        return None
    kind, one = max(compared, key=nearness)
    return Worst(kind, one.output.name, one.judged.baseline_error, one.judged.max_error, one.judged.allowed)


def _blind(subject: Subject, arrays: Sequence[Array], outputs: Sequence[Compared]) -> Iterator[str]:
    """Wrong answers that would have passed."""
    for one in outputs:
        yield from (f"the check of {one.output.name} cannot tell {mutant}" for mutant in blind_to(one))
    axes, pending = _cascade_axes(subject), list(outputs)
    for part in reversed(range(_PARTS)):  # a maximum notices the loss of that part only in which it lies
        if not axes or not pending:
            return
        without = _without_a_segment(subject, arrays, axes, part)
        pending = [one for one in pending if "dropped" in blind_to(one, without[one.output.name])]
    yield from (f"the check of {one.output.name} cannot tell a segment that is left out" for one in pending)


def _without_a_segment(
    subject: Subject, arrays: Sequence[Array], axes: Mapping[ir.Var, int], part: int
) -> Mapping[str, Array]:
    """The exact outputs where every reduction of the cascade leaves out one part of its axis."""
    holes = {axis: range(extent * part // _PARTS, extent * (part + 1) // _PARTS) for axis, extent in axes.items()}
    return oracle.evaluate(subject.program.func, arrays, left_out=holes)


def _cascade_axes(subject: Subject) -> dict[ir.Var, int]:
    """The reductions' own variables along the cascade axis, with their extents; the outermost of several."""
    names = {name for one in subject.outcome.decisions for name in one.candidate.names if len(one.candidate.names) > 1}
    stages = [stage for stage in subject.program.stages if stage.reduce and stage.buffer.name in names]
    return {stage.reduce[0]: int(stage.extents[stage.reduce[0]]) for stage in stages}


# Limits every numerical library of a worker process to one core.


_LIBRARIES = ("TVM_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS")


def on_one_core() -> None:
    """Initialises a worker process."""
    os.environ.update(dict.fromkeys(_LIBRARIES, "1"))
