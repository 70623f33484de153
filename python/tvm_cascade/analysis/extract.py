"""Groups of reductions that form cascades: found by dependence and iteration domain, each with a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.algebra.cascade import Cascade, Reduction
from tvm_cascade.algebra.derive import RESCALABLE_CASTS, derive
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.verdict import Reason, Refusal
from tvm_cascade.analysis.axis import matching_axis
from tvm_cascade.analysis.domain import Program, Stage, loads_of, substitute, uses
from tvm_cascade.analysis.expression import AtomTable, ElementReader, NotExpressible
from tvm_cascade.analysis.frame import Frame, FrameBuilder
from tvm_cascade.analysis.inline import Inliner, plain_indices


@dataclass(frozen=True)
class Member:
    """One reduction of a group.

    Attributes
    ----------
    stage : the block as it was written.
    element : its element with every elementwise stage inlined, over the frame's variables.
    result : the symbol of its value.
    dims : the frame's expressions that index its result buffer.
    """

    stage: Stage
    element: ir.Expr
    result: sp.Symbol
    dims: tuple[ir.Expr, ...]


@dataclass(frozen=True)
class Group:
    """A cascade found in a program, with its fold."""

    members: tuple[Member, ...]
    frame: Frame
    atoms: AtomTable
    fold: Fold

    @property
    def names(self) -> tuple[str, ...]:
        """The result buffers' names, in order."""
        return tuple(member.stage.buffer.name for member in self.members)

    def member_of(self, result: sp.Symbol) -> Member:
        """The member whose value a result symbol stands for."""
        return next(member for member in self.members if member.result == result)


@dataclass(frozen=True)
class Candidate:
    """A set of reductions that was looked at: a group where it is one, and the reason either way."""

    names: tuple[str, ...]
    reason: Reason
    group: Group | None = None


@dataclass(frozen=True)
class _Reduction:
    stage: Stage
    element: ir.Expr  # inlined, over the stage's own variables


def find_cascades(
    program: Program, rescalable_casts: Sequence[str] = RESCALABLE_CASTS, only: Sequence[str] | None = None
) -> list[Candidate]:
    """Every cascade of a program, and every refusal with its reason.

    Parameters
    ----------
    program : the function's stages.
    rescalable_casts : see `FuseOptions`.
    only : names of blocks to consider; all by default.
    """
    return _Search(program, rescalable_casts, only).run()


class _Search:
    def __init__(self, program: Program, rescalable_casts: Sequence[str], only: Sequence[str] | None) -> None:
        self.program, self.rescalable_casts = program, rescalable_casts
        inline = Inliner(program)
        self.reductions = [
            _Reduction(stage, inline(stage.value, stage.extents)) for stage in program.stages if stage.reducer is not None
        ]
        self.considered = [only is None or r.stage.name in only for r in self.reductions]
        self.reads = [self._reads(r) for r in self.reductions]
        self.group_of: dict[int, tuple[int, ...]] = {k: (k,) for k in range(len(self.reductions))}
        self.groups: dict[tuple[int, ...], Group] = {}
        self.refusals: list[Candidate] = []

    def run(self) -> list[Candidate]:
        """Lets each reduction, in order, join the groups of those that it reads."""
        for later in range(len(self.reductions)):
            earlier = [k for k in self._chained(later) if self.considered[k] and self.considered[later]]
            if earlier:
                self._try_join(later, earlier)
        found = [Candidate(group.names, Reason("fold"), group) for group in self.groups.values()]
        lone = [k for k in range(len(self.reductions)) if self.considered[k]]
        if not found and not self.refusals and lone:
            names = tuple(self.reductions[k].stage.buffer.name for k in lone)
            return [Candidate(names, Reason("single_reduction", ", ".join(names)))]
        return found + self.refusals

    def _reads(self, reduction: _Reduction) -> dict[int, list[ir.TensorLoad]]:
        """Reductions whose results an element loads, with the loads."""
        found: dict[int, list[ir.TensorLoad]] = {}
        for load in loads_of(reduction.element):
            for k, other in enumerate(self.reductions):
                if other.stage.buffer.same_as(load.source):
                    found.setdefault(k, []).append(load)
        return found

    def _chained(self, later: int) -> list[int]:
        """Earlier reductions whose results the element reads at indices off the axis: links of a chain, not producers."""
        axis = self.reductions[later].stage.reduce
        return [
            k for k, loads in self.reads[later].items() if not any(uses(index, axis) for load in loads for index in load.indices)
        ]

    def _try_join(self, later: int, earlier: list[int]) -> None:
        same_axis = [k for k in earlier if self._axis_order(k, later) is not None]
        name = self.reductions[later].stage.buffer.name
        if not same_axis:
            names = (*(self.reductions[k].stage.buffer.name for k in earlier), name)
            self.refusals.append(Candidate(names, Reason("axis_mismatch", f"{name} reads {', '.join(names[:-1])}")))
            return
        indices = tuple(sorted({k for e in same_axis for k in self.group_of[e]} | {later}))
        names = tuple(self.reductions[k].stage.buffer.name for k in indices)
        outcome = self._cycle(indices) or self._group(indices)
        if isinstance(outcome, Reason):
            self.refusals.append(Candidate(names, outcome))
            return
        for k in indices:
            self.groups.pop(self.group_of[k], None)
            self.group_of[k] = indices
        self.groups[indices] = outcome

    def _axis_order(self, earlier: int, later: int) -> tuple[int, ...] | None:
        a, b = self.reductions[earlier], self.reductions[later]
        return matching_axis(a.stage, a.element, b.stage, b.element)

    def _cycle(self, indices: tuple[int, ...]) -> Reason | None:
        """A value that a member needs whole before the loop starts must not need a member itself."""
        members = set(indices)
        for k in indices:
            for other in self.reads[k]:
                if other not in members and self._closure(other) & members:
                    outside = self.reductions[other].stage.buffer.name
                    return Reason("dependence_cycle", f"{self.reductions[k].stage.buffer.name} reads {outside}")
                if other in members and other not in self._chained(k):
                    return Reason("dependence_cycle", f"{self.reductions[k].stage.buffer.name} reads all of {self.reductions[other].stage.buffer.name}")
        return None

    def _closure(self, reduction: int) -> set[int]:
        found, pending = set(), [reduction]
        while pending:
            k = pending.pop()
            if k not in found:
                found.add(k)
                pending += self.reads[k]
        return found

    def _group(self, indices: tuple[int, ...]) -> Group | Reason:
        stages = [self.reductions[k].stage for k in indices]
        for stage in stages:
            if not plain_indices(stage):
                return Reason("unsupported_shape", f"{stage.buffer.name} is not written at its own plain indices")
        frame = self._frame(indices, stages)
        if isinstance(frame, Reason):
            return frame
        atoms = AtomTable(frame.axis)
        symbols = _symbols(stages)
        members: list[Member] = []
        reductions: list[Reduction] = []
        for position, k in enumerate(indices):
            element = substitute(self.reductions[k].element, dict(frame.variables[position]))
            member = Member(stages[position], element, symbols[position], frame.dims(position, stages[position]))
            known = {m.stage.buffer: m.result for m in members}
            try:
                form = ElementReader(atoms, lambda load, known=known: _result_symbol(load, known))(element)
            except NotExpressible as refused:
                return Reason(refused.reason.code, f"{member.stage.buffer.name}: {refused.reason.detail}")
            reducer = stages[position].reducer
            assert reducer is not None
            reductions.append(Reduction(symbols[position], reducer, form))
            members.append(member)
        varying = [atom.symbol for atom in atoms.atoms.values() if atom.varies]
        fold = derive(Cascade(reductions, varying), self.rescalable_casts)
        if isinstance(fold, Refusal):
            return Reason(fold.reason.code, f"{fold.reduction}: {fold.reason.detail}")
        return Group(tuple(members), frame, atoms, fold)

    def _frame(self, indices: tuple[int, ...], stages: list[Stage]) -> Frame | Reason:
        builder = FrameBuilder(stages)
        orders: list[tuple[int, ...]] = []
        for position, k in enumerate(indices):
            order = tuple(range(len(stages[position].reduce)))
            for earlier in (e for e in self._chained(k) if e in indices):
                at = indices.index(earlier)
                matched = self._axis_order(earlier, k)
                if matched is None:
                    return Reason("axis_mismatch", f"{stages[position].buffer.name} reads {stages[at].buffer.name}")
                order = tuple(orders[at][m] for m in matched)
                for load in self.reads[k][earlier]:
                    if reason := builder.unify(at, position, load):
                        return reason
            if len(stages[position].reduce) != len(stages[0].reduce):
                return Reason("axis_mismatch", stages[position].buffer.name)
            orders.append(order)
        return builder.build(orders)


def _symbols(stages: list[Stage]) -> list[sp.Symbol]:
    """A distinct real symbol for each result, called after its buffer."""
    names: list[str] = []
    for stage in stages:
        base = stage.buffer.name
        names.append(next(n for k in range(len(stages)) if (n := base + (f"_{k}" if k else "")) not in names))
    return [sp.Symbol(name, real=True) for name in names]


def _result_symbol(load: ir.TensorLoad, known: dict[tirx.Var, sp.Symbol]) -> sp.Symbol | None:
    return next((symbol for buffer, symbol in known.items() if buffer.same_as(load.source)), None)
