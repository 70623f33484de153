"""The pipeline on one function: read, find, decide, rewrite, annotate; it never raises on a PrimFunc."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from tvm import tirx

from tvm_cascade.algebra.verdict import Reason, Verdict
from tvm_cascade.analysis.canonical import canonical
from tvm_cascade.analysis.extract import Candidate, Group, Reductions
from tvm_cascade.analysis.program import Program, is_static
from tvm_cascade.analysis.reading import read_program
from tvm_cascade.devices.device import Cpu, Device, Gpu
from tvm_cascade.devices.read import ANY_CPU
from tvm_cascade.errors import CascadeError
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.cost import Estimate, estimate
from tvm_cascade.transform.guarding import group_guarding
from tvm_cascade.transform.handoff import hand_to_tuner, is_fused
from tvm_cascade.transform.rewrite import rewrite


@dataclass(frozen=True)
class Decision:
    """A candidate with the cost model's estimate.

    Attributes
    ----------
    candidate : the reductions looked at, and the group where they form one.
    reason : why it was fused, refused, declined, or is unknown.
    estimate : bytes and time before and after; None where there is no group, or an extent is symbolic.
    seconds : unfused and fused, as the target's own model has them: of a CPU the estimate's, of a GPU the plan's; None
        where the verdict compares no times.
    """

    candidate: Candidate
    reason: Reason
    estimate: Estimate | None = None
    seconds: tuple[float, float] | None = None


def fused_groups(decisions: Iterable[Decision]) -> list[Group]:
    """The groups that were decided to be fused, in order."""
    return [d.candidate.group for d in decisions if d.reason.verdict is Verdict.FUSED and d.candidate.group is not None]


@dataclass(frozen=True)
class Outcome:
    """The outcome of one function.

    Attributes
    ----------
    given : the function that came in.
    found : a decision for each candidate group, before any loop is written; kernels of skeletons need none.
    program : the function as it was read, in canonical form; None where it could not be.
    reductions : of the program; None where they were not looked at.
    rewriting : writes the fused function; None where nothing is fused.
    """

    given: tirx.PrimFunc
    found: tuple[Decision, ...]
    program: Program | None
    reductions: Reductions | None = None
    rewriting: Callable[[], tirx.PrimFunc] | None = None

    @cached_property
    def _written(self) -> tirx.PrimFunc | Reason:
        """The fused function, or the defect that stands against it."""
        try:
            return self.given if self.rewriting is None else hand_to_tuner(self.rewriting())
        except Exception as defect:  # a compiler pass must not stop a build, whatever computer algebra runs into
            return _defect(defect)

    @property
    def func(self) -> tirx.PrimFunc:
        """The fused function; the very one that came in where nothing was fused."""
        return self.given if isinstance(self._written, Reason) else self._written

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """One for each candidate group; where its loops cannot be written, the defect."""
        failed = self._written
        return (Decision(Candidate((), failed), failed),) if isinstance(failed, Reason) else self.found

    @property
    def fused(self) -> bool:
        """Whether anything was fused."""
        return any(d.reason.verdict is Verdict.FUSED for d in self.decisions)

    @property
    def read(self) -> tirx.PrimFunc:
        """The function before fusing: in canonical form where it could be read."""
        return self.given if self.program is None else self.program.func

    @property
    def readable(self) -> tirx.PrimFunc:
        """The function to schedule: in canonical form where nothing was fused."""
        return self.func if self.fused else self.read


@dataclass(frozen=True)
class AsItIs:
    """A function that runs as written, since no schedule of ours applies, and the reason."""

    why: str

    def __str__(self) -> str:
        return f"the function as it is: {self.why}"

    @classmethod
    def after(cls, step: str, raised: Exception) -> AsItIs:
        """The outcome after a step raised: the message of our error, or the last line of another."""
        if isinstance(raised, CascadeError):
            return cls(f"{step}: expected {raised.expected}, found {raised.found}: {raised.where}"[:300])
        lines = [line.strip() for line in str(raised).splitlines() if line.strip()]
        return cls(f"{step}: {type(raised).__name__}: {lines[-1] if lines else 'no message'}"[:300])


@dataclass(frozen=True)
class Unfused(AsItIs):
    """A function that is scheduled in its unfused form, and the reason."""

    def __str__(self) -> str:
        return f"the function before fusing: {self.why}"


def fuse_function(
    func: tirx.PrimFunc, options: FuseOptions, device: Device = ANY_CPU, only: Sequence[str] | None = None
) -> Outcome:
    """The function with its cascades fused, and a decision for every candidate.

    Parameters
    ----------
    func : an unscheduled S-TIR function.
    options : see `FuseOptions`.
    device : that loops are cut for, and whose time decides whether to fuse.
    only : names of blocks to consider; all by default.
    """
    return Outcome(func, (), None) if is_fused(func) else fuse_read(func, read_function(func), options, device, only)


def fuse_read(
    func: tirx.PrimFunc,
    program: Program | Reason,
    options: FuseOptions,
    device: Device = ANY_CPU,
    only: Sequence[str] | None = None,
) -> Outcome:
    """`fuse_function` of what was read already, which nothing was fused in.

    Parameters
    ----------
    program : what `read_function` gives of the function.
    """
    if isinstance(program, Reason):
        return Outcome(func, (Decision(Candidate((), program), program),), None)
    try:
        reductions = Reductions(program, options.rescalable_casts, options.reference)
        candidates = reductions.cascades(only)
        decisions = [_decide(candidate, program, options, device) for candidate in candidates]
        groups = fused_groups(decisions)
        unread = [Decision(Candidate((), one.reason), one.reason) for one in program.opaque]
        if not groups:
            told = [d for d in decisions if not unread or d.reason.verdict is not Verdict.NOTHING]
            return Outcome(func, (*told, *unread), None if unread else program, reductions)
    except Exception as defect:  # a compiler pass must not stop a build, whatever computer algebra runs into
        reason = _defect(defect)
        return Outcome(func, (Decision(Candidate((), reason), reason),), program)
    rewriting = partial(rewrite, program, groups, options, device)
    return Outcome(func, (*decisions, *unread), program, reductions, rewriting)


def read_function(func: tirx.PrimFunc, is_canonical: bool = False) -> Program | Reason:
    """The function in canonical form, or the reason why it cannot be read; never raises on a PrimFunc.

    Parameters
    ----------
    is_canonical : it is of nests of a function that was read, which are in that form.
    """
    try:
        return read_program(func if is_canonical else canonical(func))
    except Exception as defect:  # nor what anybody may write
        return _defect(defect)


def _defect(raised: Exception) -> Reason:
    return Reason("defect", f"{type(raised).__name__}: {raised}")


def _decide(candidate: Candidate, program: Program, options: FuseOptions, device: Device) -> Decision:
    if candidate.group is None:
        return Decision(candidate, candidate.reason)
    if isinstance(device, Gpu) and (why := group_guarding(program, candidate.group, options, loops=True).unguarded):
        return Decision(candidate, Reason("unguarded", why))
    if not is_static(program):
        return Decision(candidate, candidate.reason)
    numbers = estimate(program, candidate.group, options, device)
    if not isinstance(device, Cpu):
        return Decision(candidate, candidate.reason, numbers)
    seconds = (numbers.ns_before * 1e-9, numbers.ns_after * 1e-9)
    if numbers.slower and not options.force:
        return Decision(candidate, Reason("cost", f"{', '.join(candidate.names)}: {numbers}"), numbers, seconds)
    return Decision(candidate, candidate.reason, numbers, seconds)
