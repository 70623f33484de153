"""The pipeline on one function: read, find, decide, rewrite, annotate; it never raises on a PrimFunc."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from tvm import tirx

from tvm_cascade.algebra.verdict import Reason, Verdict
from tvm_cascade.analysis.canonical import canonical
from tvm_cascade.analysis.extract import Candidate, Group, Reductions
from tvm_cascade.analysis.order import access_of, among, sources_of
from tvm_cascade.analysis.program import Program, Stage, is_static
from tvm_cascade.analysis.reading import read_program
from tvm_cascade.analysis.statements import block_names, with_nests
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.devices.device import Cpu, Device, Gpu
from tvm_cascade.devices.read import ANY_CPU
from tvm_cascade.errors import CascadeError
from tvm_cascade.options import FuseOptions
from tvm_cascade.steps.program import program_of
from tvm_cascade.steps.verify import verify
from tvm_cascade.transform.assemble import (
    Piece,
    Use,
    absorbed,
    in_dependency_order,
    index_dtype,
    opaque_piece,
    stage_piece,
    well_formed,
)
from tvm_cascade.transform.cost import Estimate, estimate
from tvm_cascade.transform.finish import FinishEmitter
from tvm_cascade.transform.guard import GuardEmitter
from tvm_cascade.transform.handoff import FUSED, carried_form, hand_to_tuner, is_fused
from tvm_cascade.transform.loop import LoopEmitter
from tvm_cascade.transform.merge import MergeEmitter
from tvm_cascade.transform.nest import NestBuilder
from tvm_cascade.transform.planning import Loop, asked_for, loop_of, loops_of
from tvm_cascade.transform.scope import Slot, Slots, accumulator_dtype


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
    reason, static = candidate.reason, is_static(program)
    if candidate.group is None or not (static or isinstance(device, Gpu)):
        return Decision(candidate, reason)
    loop = loop_of(program, candidate.group, options, device)
    if isinstance(device, Gpu) and (why := loop.guarding.unguarded):
        return Decision(candidate, Reason("unguarded", why))
    numbers = estimate(program, loop, options, device) if static else None
    if numbers is None or not isinstance(device, Cpu):
        return Decision(candidate, reason, numbers)
    if numbers.slower and not options.force:
        reason = Reason("cost", f"{', '.join(candidate.names)}: {numbers}")
    return Decision(candidate, reason, numbers, (numbers.ns_before * 1e-9, numbers.ns_after * 1e-9))


# The rewrite: program and groups in, fused function out.


def rewrite(program: Program, groups: list[Group], options: FuseOptions, device: Device) -> tirx.PrimFunc:
    """The function with each group as one loop, cut for a device.

    rewrite: for l: d₁ ⊕= F₁(x[l]);  for l: d₂ ⊕= F₂(x[l], d₁)
          →  for tile: for l in tile: state = merge(state, lift(x[l]));  d = finish(state)

    Raises
    ------
    RewriteError
        When the result is not well formed: a defect of this package.
    """
    asked = asked_for(program, groups)
    loops = loops_of(asked, options, device)
    inlined = absorbed(program, asked.stages, [buffer for plan in asked.plans for buffer in plan.reads])
    kept = [stage for stage in asked.stages if stage not in inlined]
    whole = [stage for stage in kept if stage is program.together(stage)[0]]
    pieces = [stage_piece(program, stage, inlined, program.position(stage)) for stage in whole]
    pieces += [opaque_piece(program, one, one.position) for one in program.opaque]
    taken = {stage.name for stage in kept} | {name for one in program.opaque for name in block_names(one.nest)}
    nests = NestBuilder(index_dtype(program), taken)
    fused = [_loop_piece(program, loop, nests) for loop in loops]
    pieces = in_dependency_order([*pieces, *(piece for piece, _ in fused)])
    buffers = dict.fromkeys(b for piece in pieces for b in piece.allocates if not program.is_param(b))
    func = with_nests(program.func, [s for piece in pieces for s in piece.statements], [*buffers])
    return well_formed(func, ", ".join(groups[0].names)).with_attr(FUSED, [fold for _, fold in fused])


def _loop_piece(program: Program, loop: Loop, nests: NestBuilder) -> tuple[Piece, dict[str, Any]]:
    """A group's loop with what follows it, and its fold as the function carries it."""
    plan, guarded, layout = loop.plan, loop.guarding, loop.layout
    group, elements, dims = layout.group, layout.elements, layout.dims
    slots = Slots(group, layout.tiling, dims, nests.dtype)
    slots.homes.update({} if guarded.results else _homes(program, slots))
    steps = program_of(group.fold, elements.temporaries, elements.lifts)
    verify(steps, {atom.symbol for atom in group.atoms.atoms.values()})
    dims.define_scales(steps)
    statements: list[tirx.Stmt] = []
    if group.fold.units:  # results that are numbers carry nothing
        statements.append(LoopEmitter(slots, nests, layout, steps, plan.producers).run())
        if slots.tiling.segmented:
            statements += MergeEmitter(slots, nests, steps).run()
    finish = FinishEmitter(slots, nests, set(guarded.asked), guarded.results)
    statements += finish.run()
    guards = GuardEmitter(slots, nests, guarded, plan.producers)
    statements += guards.run()
    stages = [member.stage for member in plan.group.members]
    results = tuple((stage.buffer, program.position(stage)) for stage in stages)
    own = [slot.buffer for slot in slots.homes.values()]
    piece = Piece(
        tuple(statements),
        _read_at(program, stages, plan.reads),
        results,
        (*slots.buffers, *own, *finish.written, *(member.stage.buffer for member in guards.members)),
        order=min(position for _, position in results),
    )
    return piece, carried_form(group)


def _read_at(program: Program, members: list[Stage], buffers: list[tirx.Var]) -> tuple[Use, ...]:
    """Buffers that a loop loads, with the places at which the stages that it is made of read them."""
    sources = [(program.position(stage), access_of((stage,)).reads) for stage in sources_of(program, members)]
    return tuple((buffer, position) for buffer in buffers for position, reads in sources if among(buffer, reads))


def _homes(program: Program, slots: Slots) -> dict[object, Slot]:
    """Results of the program's own that are components as they stand: the component lives in their buffer.

    One that is another result as it stands (max of what is never above it) has none: finish copies it.
    """
    homes: dict[object, Slot] = {}
    components = {component.symbol for component in slots.group.fold.components}
    for member in slots.group.members:
        component = slots.group.fold.finish.get(member.result)
        if component not in components or member.is_slice:
            continue
        dims, buffer = slots.dims.of(component), member.stage.buffer
        plain = len(dims) == len(member.dims) and all(d.same_as(v) for d, v in zip(member.dims, dims, strict=True))
        same_dtype = accumulator_dtype(dtype_of(buffer)) == dtype_of(buffer)
        whole = not slots.tiling.segmented and slots.tiling.none is None
        if plain and same_dtype and whole and not program.is_param(buffer):
            homes.setdefault(component, Slot(buffer, dims))
    return homes
