"""Outcomes as text and formulas: per group the verdict, the reason, the fold, and the passes it saves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from tvm import ir, tirx

from tvm_cascade.algebra.cascade import LENGTH, POSITION
from tvm_cascade.algebra.fold import Fold, Reference
from tvm_cascade.algebra.policy import Policy, Range
from tvm_cascade.algebra.verdict import Reason, Verdict
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.meaning import meaning_of
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.passes import passes_of
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.tir import without_casts
from tvm_cascade.errors import InputError
from tvm_cascade.obligations.certificate import certificate
from tvm_cascade.obligations.check import check
from tvm_cascade.obligations.ends import at_infinities
from tvm_cascade.plan.buckets import Buckets
from tvm_cascade.plan.chunked import Chunks
from tvm_cascade.plan.plan import Plan, Step, bytes_of
from tvm_cascade.report.explanation import Explanation
from tvm_cascade.report.group import Formula, FunctionReport, GroupReport, StepReport, bytes_text, dependences
from tvm_cascade.report.levels import levels_of
from tvm_cascade.schedule.nest_schedule import CpuSchedule
from tvm_cascade.symbolic.printing import Row, aligned, equation, formula, shortened
from tvm_cascade.tile.skeleton import Kernel, Setting
from tvm_cascade.transform.fuse_function import AsItIs, Decision, Outcome
from tvm_cascade.transform.handoff import CarriedFold, carried_folds, formulas_of

MODEL = "the model's estimates"
"""Where designs come from that nothing was measured for."""

_SKIPPED = "a {}, not a PrimFunc"

Lowering: TypeAlias = Buckets | Chunks | Plan | Kernel | CpuSchedule | AsItIs | str
"""What a function is lowered to: its plan, kernel or schedule, or several by lengths or chunks; or why it has none."""

_Told: TypeAlias = tuple[str, str, tuple[StepReport, ...], str]


def explain_outcomes(
    functions: Mapping[str, ir.BaseFunc],
    outcomes: Mapping[str, Outcome],
    kernels: Mapping[str, Lowering | None] | None = None,
    origins: Mapping[str, str] | None = None,
    setting: Setting | None = None,
) -> Explanation:
    """The explanation of the outcomes of `fuse_function`, for the functions that are PrimFuncs.

    Parameters
    ----------
    kernels : what each function is lowered to, where that is to be told.
    origins : where designs of functions come from, where that was looked up; kernels are the model's choice otherwise.
    setting : what kernels were generated for, to tell the time of each level of its memory.
    """
    groups: list[GroupReport] = []
    reports: list[FunctionReport] = []
    for name, func in functions.items():
        if name not in outcomes:
            reports.append(FunctionReport(name, "skipped", _SKIPPED.format(type(func).__name__)))
            continue
        outcome, kernel = outcomes[name], (kernels or {}).get(name)
        design = (origins or {}).get(name, MODEL if _by_model(kernel) else "")
        buckets = tuple(map(str, kernel.each)) if isinstance(kernel, Buckets) else ()
        lowered = (*_lowering(outcome, kernel, setting), design, buckets)
        try:
            carried = carried_folds(func) if isinstance(func, tirx.PrimFunc) else ()
        except InputError as unlike:
            reports.append(FunctionReport(name, "already fused", f"and changed since: {unlike}", *lowered))
            continue
        by_kernels = any(isinstance(one, (Plan, Kernel)) for one in _each(kernel))
        decisions = _as_planned(outcome.found if by_kernels else outcome.decisions, kernel)
        found = [_carried(name, fold) for fold in carried]
        found = found or [_group(name, one, outcome.program) for one in decisions]
        groups += found
        if any(one.verdict is Verdict.FUSED for one in found) and decisions:
            reports.append(FunctionReport(name, "fused", "by this pass", *lowered))
        elif found and not decisions:
            reports.append(FunctionReport(name, "already fused", "by an earlier pass", *lowered))
        else:
            why = ", ".join(dict.fromkeys(group.reason.code for group in found))
            reports.append(FunctionReport(name, "unchanged", why or "it holds no reduction", *lowered))
    return Explanation(tuple(groups), tuple(reports))


def _by_model(kernel: Lowering | None) -> bool:
    """Whether a lowering has a configuration, which the model chooses where nothing is on record."""
    return any(isinstance(one, (Plan, Kernel)) or (isinstance(one, CpuSchedule) and one.loops) for one in _each(kernel))


def _each(kernel: Lowering | None) -> Sequence[Lowering | None]:
    return [one.chosen for one in kernel.each] if isinstance(kernel, Chunks) else [kernel]


def _lowering(outcome: Outcome, kernel: Lowering | None, setting: Setting | None) -> _Told:
    """(what a function is lowered to, its tile program, the steps of its plan, why it is no one kernel)."""
    if kernel is None:
        return "", "", (), ""
    if isinstance(kernel, Plan):
        size = bytes_of(kernel.temporaries)
        between = "" if not size else f", {bytes_text(size)} of temporaries between them"
        between += f", and not in chunks ({kernel.at_once})" if kernel.at_once else ""
        told = f"a plan of {len(kernel.steps)} steps, estimated {kernel.seconds * 1e6:.1f} us{between}"
        return told, "", tuple(_step(step, setting) for step in kernel.steps), kernel.whole
    if isinstance(kernel, Chunks):
        return _in_chunks(kernel, setting)
    if isinstance(kernel, (CpuSchedule, AsItIs, Buckets)):
        return str(kernel), "", (), ""
    if isinstance(kernel, str):
        return f"an S-TIR schedule, without tensor cores: {kernel}", "", (), ""
    whole = Step(outcome.read, outcome, kernel, kernel.work, kernel.seconds + kernel.launch_seconds)
    return str(kernel), str(kernel.program), (_step(whole, setting),), ""


def _in_chunks(chunks: Chunks, setting: Setting | None) -> _Told:
    """As of `_lowering`; the steps of a chunk say how often they are called."""
    steps, told = list[StepReport](), dict[str, None]()
    for call, one in zip(chunks.calls, chunks.each, strict=True):
        how, _, own, _ = _lowering(one.outcome, one.chosen, setting)
        times = f", {call.times} times" if call.length else ""
        steps += [dataclasses.replace(step, kernel=step.kernel + times) for step in own]
        told |= {f"; a chunk of {call.length} is {how}": None} if call.length else {}
    cost, whole = chunks.cost, chunks.whole
    sizes = " in place of ".join(bytes_text(one.bytes) for one in (cost, whole))
    times = " in place of ".join(f"{one.seconds * 1e6:.1f}" for one in (cost, whole)) if whole.seconds else ""
    estimated = f", estimated {times} us" if times else ""
    return f"{chunks}: {sizes} of temporaries{estimated}{''.join(told)}", "", tuple(steps), ""


def _as_planned(decisions: Sequence[Decision], lowered: Lowering | None) -> tuple[Decision, ...]:
    """The decisions, with those for cascades that the plan computes apart as declined."""
    declined = {one.names: one for one in lowered.declined} if isinstance(lowered, Plan) else {}
    found = [(decision, declined.get(decision.candidate.names)) for decision in decisions]
    return tuple(
        decision
        if apart is None
        else dataclasses.replace(decision, reason=Reason("cost", str(apart)), seconds=(apart.apart, apart.fused))
        for decision, apart in found
    )


def _step(step: Step, setting: Setting | None) -> StepReport:
    kernel, written = step.chosen, step.written
    reads = tuple(buffer.name for buffer in step.buffers if not among(buffer, written))
    writes = tuple(buffer.name for buffer in written)
    skeleton = kernel.skeleton.name if isinstance(kernel, Kernel) else ""
    told = str(kernel) if not isinstance(kernel, str) else f"an S-TIR schedule: {kernel}"
    if step.ahead is not None:
        told += f", fetching {step.ahead}"
    if step.early:
        told += ", side by side with the next"
    levels = levels_of(kernel, setting) if setting and isinstance(kernel, Kernel) else ()
    return StepReport(skeleton, told, reads, writes, step.work.bytes, step.work.flops, step.seconds * 1e6, levels)


def _carried(function: str, fold: CarriedFold) -> GroupReport:
    """A group of a function that was fused before."""
    formulas = tuple(Formula(*row) for row in fold.formulas)
    return GroupReport(function, Reason("fold"), fold.results, formulas, fold.latex)


def _group(function: str, decision: Decision, program: Program | None) -> GroupReport:
    group, numbers = decision.candidate.group, decision.estimate
    passes = dependences(program, decision.candidate) if program is not None else ()
    if group is None:
        return GroupReport(function, decision.reason, decision.candidate.names, passes=passes)
    rows = formulas_of(group)
    return GroupReport(
        function,
        decision.reason,
        group.names,
        _elements(group) + _told(rows) + _length(group, rows),
        aligned(rows, verbatim=True),
        _references(group.fold),
        _ranges(group.fold),
        str(certificate(group.fold, meaning_of(group.atoms))),
        str(at_infinities(group.fold, meaning_of(group.atoms))),
        numbers.passes_before if numbers else None,
        numbers.passes_after if numbers else None,
        numbers.bytes_before if numbers else None,
        numbers.bytes_after if numbers else None,
        decision.seconds[0] * 1e6 if decision.seconds else None,
        decision.seconds[1] * 1e6 if decision.seconds else None,
        check(group.fold),
        passes,
        _inside(program, group) if program is not None else (),
    )


def _inside(program: Program, group: Group) -> tuple[str, ...]:
    """The reductions that the group's elements are computed by."""
    inside = [stage for stage in passes_of(program, group).inside if stage.reducer is not None]
    return tuple(stage.buffer.name for stage in inside if not any(stage is one.stage for one in group.members))


def _told(rows: Sequence[Row]) -> tuple[Formula, ...]:
    return tuple(Formula(section, str(left), formula(right), equation(left, right)) for section, left, right in rows)


def _elements(group: Group) -> tuple[Formula, ...]:
    """What each element is, where it is more than the buffer of its name at one position."""
    read = set().union(*(right.free_symbols for _, _, right in group.fold.formulas()))
    atoms = [atom for atom in group.atoms.atoms.values() if atom.varies and atom.symbol in read]
    return tuple(
        Formula("element", str(atom.symbol), " ".join(str(atom.expression).split()))
        for atom in atoms
        if atom.symbol != POSITION and not _is_load_of(str(atom.symbol), atom.expression)
    )


def _is_load_of(name: str, expression: ir.Expr) -> bool:
    value = without_casts(expression)
    return isinstance(value, ir.TensorLoad) and value.source.name == name


def _length(group: Group, rows: Sequence[Row]) -> tuple[Formula, ...]:
    """The value of N, the number of all positions, where a formula reads it."""
    told = any(LENGTH in right.free_symbols for *_, right in rows)
    return (Formula("axis", str(LENGTH), f"{group.frame.length}, all positions"),) if told else ()


def _references(fold: Fold) -> dict[str, str]:
    return _by_quantity(fold, str(Policy.DEFERRED), lambda reference: str(reference.policy))


def _ranges(fold: Fold) -> dict[str, str]:
    return _by_quantity(fold, str(Range.DEFERRED), lambda reference: str(reference.range))


def _by_quantity(fold: Fold, deferred: str, told: Callable[[Reference], str]) -> dict[str, str]:
    """What is said of each quantity, in each reduction that reads it in another way."""
    said = [(reference.tracks, told(reference)) for reference in fold.references]
    said += [(quantity, deferred) for quantities in fold.deferred.values() for quantity in quantities]
    texts: dict[str, dict[str, None]] = {}
    for quantity, text in said:
        texts.setdefault(formula(shortened(quantity)), {})[text] = None
    return {quantity: "; ".join(several) for quantity, several in texts.items()}
