"""Groups of reductions that form cascades: found by dependence and iteration domain, each with a verdict.

Reductions that read each other along an axis are one cascade. Of those that are left, such as the minimum, the maximum
and the sum of a row, those that read one tensor at the same places are one as well: none depends on another, so its
fold is the product of theirs, and it reads the tensor once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.algebra.cascade import LENGTH, Cascade, Reduction, unlike
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.reducer import MAX, MIN, PROD, SUM
from tvm_cascade.algebra.verdict import Reason, Refusal
from tvm_cascade.analysis.expression import AtomTable, ElementReader, NotExpressible
from tvm_cascade.analysis.frame import (
    Frame,
    FrameBuilder,
    InlinedReduction,
    Shared,
    matching_axis,
    reads_once,
    shared_tensor,
    variants_of,
)
from tvm_cascade.analysis.inline import inliner_of, plain_indices
from tvm_cascade.analysis.meaning import meaning_of
from tvm_cascade.analysis.order import crossed
from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.tir import (
    dtype_of,
    loads_of,
    more_than_one,
    reached,
    reads_buffer,
    same_extent,
    substitute,
    uses,
)
from tvm_cascade.obligations.derive import RESCALABLE_CASTS, remembered
from tvm_cascade.symbolic.masks import choice


@dataclass(frozen=True)
class Member:
    """One reduction of a group.

    Attributes
    ----------
    stage : the block as it was written.
    element : its element with every elementwise stage inlined, over the frame's variables.
    result : the symbol of its value.
    dims : the frame's expressions that index its result buffer.
    is_slice : it is one fixed part of a result that others read apart, not the result itself.
    """

    stage: Stage
    element: ir.Expr
    result: sp.Symbol
    dims: tuple[ir.Expr, ...]
    is_slice: bool = False


@dataclass(frozen=True, eq=False)
class Group:
    """A cascade found in a program, with its fold; `among` are all reductions of that program."""

    members: tuple[Member, ...]
    frame: Frame
    atoms: AtomTable
    fold: Fold
    among: Reductions

    @property
    def names(self) -> tuple[str, ...]:
        """The result buffers' names, in order."""
        return tuple(member.stage.buffer.name for member in self.members if not member.is_slice)

    def member_of(self, result: sp.Symbol) -> Member:
        return next(member for member in self.members if member.result == result)


@dataclass(frozen=True)
class Candidate:
    """A set of reductions that was considered: its group if it is one, and the reason either way."""

    names: tuple[str, ...]
    reason: Reason
    group: Group | None = None


class Reductions:
    """All reductions of a program, and what they are as cascades.

    Parameters
    ----------
    program : the function's stages.
    rescalable_casts, reference : see `FuseOptions`.
    """

    def __init__(
        self, program: Program, rescalable_casts: Sequence[str] = RESCALABLE_CASTS, reference: str = "exact"
    ) -> None:
        self.reference = reference
        self.program, self.rescalable_casts = program, rescalable_casts
        self.inline = inliner_of(program)
        self.reductions = [
            InlinedReduction(stage, self.inline.of(stage)) for stage in program.stages if stage.reducer is not None
        ]
        self.reads = [self._reads(r) for r in self.reductions]
        self.behind = [self._behind(r) for r in self.reductions]
        self._refused: list[tuple[list[object], Refusal]] = []

    def cascades(self, only: Sequence[str] | None = None, beside: bool = True) -> list[Candidate]:
        """Every cascade of the program, and every refusal with its reason.

        Parameters
        ----------
        only : names of blocks to consider; all by default.
        beside : those that merely read one tensor alike, or fold a product's rows, are cascades too.
        """
        return _Search(self, only).run(beside)

    @cached_property
    def lone(self) -> list[Group]:
        """Every reduction that reads no other along its axis, as a cascade of one: its fold is the reduction itself.

        Nothing is to be fused into such a fold's own axis, but kernels are generated from folds, whatever their length.
        """
        found = map(self.group, dict.fromkeys(map(self.parts, range(len(self.reductions)))))
        return [group for group in found if isinstance(group, Group)]

    @cached_property
    def inside(self) -> list[Stage]:
        """The reductions whose results others read along the axes that they reduce: loops may compute them inside."""
        search = _Search(self)
        found = set[int]().union(*(search.inside_of(k) for k in range(len(self.reductions))))
        return [self.reductions[k].stage for k in sorted(found)]

    def joint(self, but: Sequence[Stage] = ()) -> Group | None:
        """All reductions as one cascade, those that read each other and those that share their loops alone.

        None where they have no common axis, or no fold. A minimum beside a maximum is two passes as two reductions, and
        one as a joint cascade.

        Parameters
        ----------
        but : reductions that are left out.
        """
        indices = tuple(k for k, r in enumerate(self.reductions) if not any(r.stage is stage for stage in but))
        stages = [self.reductions[k].stage for k in indices]
        axes = [[stage.extents[var] for var in stage.reduce] for stage in stages]
        if len(indices) < 2 or _Search(self).cycle(indices):
            return None
        if not all(len(one) == len(axes[0]) and all(map(same_extent, one, axes[0])) for one in axes):
            return None
        found = self.group(indices, beside=True)
        return found if isinstance(found, Group) else None

    def parts(self, k: int) -> tuple[int, ...]:
        """The reductions of the same block: the components of a tuple, which stay together."""
        block = self.reductions[k].stage.block
        return tuple(j for j, other in enumerate(self.reductions) if other.stage.block.same_as(block))

    def _reads(self, reduction: InlinedReduction) -> dict[int, list[ir.TensorLoad]]:
        """Reductions whose results an element loads, with the loads."""
        found: dict[int, list[ir.TensorLoad]] = {}
        for load in loads_of(reduction.element):
            for k in self._of(load.source):
                found.setdefault(k, []).append(load)
        return found

    def _of(self, buffer: tirx.Var) -> list[int]:
        return [k for k, reduction in enumerate(self.reductions) if reduction.stage.buffer.same_as(buffer)]

    def _behind(self, reduction: InlinedReduction) -> set[int]:
        """Reductions that an element reads through unfused stages, which need their final values."""

        def read(buffer: tirx.Var) -> list[tirx.Var]:
            stage = self.program.writer(buffer)
            if stage is None or stage.reducer is not None:
                return []
            return [load.source for load in loads_of(self.inline.of(stage))]

        buffers = reached([load.source for load in loads_of(reduction.element)], read)
        return {k for buffer in buffers for source in read(buffer) for k in self._of(source)}

    def group(self, indices: tuple[int, ...], beside: bool = False) -> Group | Reason:
        """The cascade of some reductions, or the reason why there is none.

        Parameters
        ----------
        beside : those that read no other belong to it too, where their rows are as many.
        """
        variants = variants_of([self.reductions[k] for k in indices])
        for variant in variants:
            if not plain_indices(variant.stage):
                return Reason(
                    "unsupported_shape", f"{variant.stage.buffer.name} is not written at its own plain indices"
                )
            if variant.is_slice and variant.stage.is_part:
                return Reason("result_index", f"{variant.stage.buffer.name} is read at a fixed part, or at two rows")
        frame = self._frame(variants, beside)
        if isinstance(frame, Reason):
            return frame
        symbols = _symbols(variants)
        atoms = AtomTable(frame.axis, frozenset(map(str, symbols)))
        members: list[Member] = []
        reductions: list[Reduction] = []
        for position, variant in enumerate(variants):
            element = substitute(variant.element, dict(frame.variables[position]))
            placed = [variant.over(dict(frame.variables[position])) for variant in variants[:position]]
            known = list(zip(placed, symbols, strict=False))
            try:
                powers = variant.stage.reducer is SUM
                form = _form(ElementReader(atoms, partial(_result_symbol, known), powers), element)
            except NotExpressible as refused:
                return Reason(refused.reason.code, f"{variant.stage.buffer.name}: {refused.reason.detail}")
            assert variant.stage.reducer is not None
            if variant.stage.reducer.plain in (MAX, MIN, PROD):  # taken apart by conditions: not both sides may hold
                form = atoms.exclusive(form)
            reductions.append(Reduction(symbols[position], variant.stage.reducer, form))
            dims = frame.dims(position, variant.stage)
            members.append(Member(variant.stage, element, symbols[position], dims, variant.is_slice))
        varying = [atom.symbol for atom in atoms.atoms.values() if atom.varies]
        meaning = tuple(_meaning(atoms, frame, reductions).items())
        fold = self._derived(Cascade(reductions, varying), meaning)
        if isinstance(fold, Refusal):
            return dataclasses.replace(fold.reason, detail=f"{fold.reduction}: {fold.reason.detail}")
        for variant in variants:
            floats = dtype_of(variant.stage.buffer).startswith(("float", "bfloat", "bool"))
            if not floats and any(self._inside(variant, variants)):
                return Reason("integer", variant.stage.buffer.name)
        return Group(tuple(members), frame, atoms, fold, self)

    def _derived(self, cascade: Cascade, meaning: tuple[tuple[sp.Symbol, sp.Expr], ...]) -> Fold | Refusal:
        """The fold; of what begins as another cascade up to what was refused there, that refusal."""
        ordered = cascade.blocks
        begins: list[object] = [dict(meaning).get(LENGTH), *ordered]
        known = (refusal for begun, refusal in self._refused if begins[: len(begun)] == begun)
        if (refusal := next(known, None)) is not None:
            return refusal
        found = remembered(cascade, tuple(self.rescalable_casts), self.reference, meaning)
        if isinstance(found, Refusal) and found.reason.code != "work_limit":  # which a shorter one may not reach
            last = next(k for k, block in enumerate(ordered) if any(str(r.result) == found.reduction for r in block))
            self._refused.append((begins[: last + 2], found))
        return found

    def _inside(self, variant: InlinedReduction, variants: list[InlinedReduction]) -> list[tuple[int, ir.TensorLoad]]:
        """Loads of the element that read another member's result, with that member's position."""
        found = [
            (at, load) for load in loads_of(variant.element) for at, other in enumerate(variants) if other.holds(load)
        ]
        return [(at, load) for at, load in found if variants[at] is not variant]

    def _frame(self, variants: list[InlinedReduction], beside: bool = False) -> Frame | Reason:
        builder = FrameBuilder([variant.stage for variant in variants])
        orders: list[tuple[int, ...]] = []
        reading: list[list[tuple[int, ir.TensorLoad]]] = []
        for position, variant in enumerate(variants):
            order = tuple(range(len(variant.stage.reduce)))
            for at, other in enumerate(variants[:position]):
                if other.stage.block.same_as(variant.stage.block) and not variant.is_slice and not other.is_slice:
                    builder.unify_pairs(at, position, zip(other.stage.spatial, variant.stage.spatial, strict=True))
                    order = orders[at]
            inside = self._inside(variant, variants)
            if beside:  # with the first that reads earlier results as well, or reads none either
                alike = [k for k, other in enumerate(reading) if bool(other) == bool(inside)]
                shared = next(((k, found) for k in alike if (found := _shared(variants[k], variant))), None)
                if shared is not None:
                    at, found = shared
                    builder.unify_pairs(at, position, found.rows)
                    order = tuple(orders[at][k] for k in found.order)
                else:
                    builder.unify_rows(next(iter(alike), position), position)
            reading.append(inside)
            for at, load in inside:
                earlier = variants[at]
                matched = matching_axis(earlier.stage, earlier.element, variant.stage, variant.element)
                if matched is None:
                    return Reason("axis_mismatch", f"{variant.stage.buffer.name} reads {earlier.stage.buffer.name}")
                order = tuple(orders[at][m] for m in matched)
                if reason := builder.unify(at, position, load):
                    return reason
            if len(variant.stage.reduce) != len(variants[0].stage.reduce):
                return Reason("axis_mismatch", variant.stage.buffer.name)
            orders.append(order)
        return builder.build(orders)


class _Search:
    """Which reductions are one cascade; each set of them is tried as one."""

    def __init__(self, among: Reductions, only: Sequence[str] | None = None) -> None:
        self.among, self.program, self.reductions = among, among.program, among.reductions
        self.inline, self.reads, self.behind = among.inline, among.reads, among.behind
        self.considered = [only is None or r.stage.name in only for r in self.reductions]
        self.group_of: dict[int, tuple[int, ...]] = {k: among.parts(k) for k in range(len(self.reductions))}
        self.groups: dict[tuple[int, ...], Group] = {}
        self.refusals: list[Candidate] = []

    def run(self, beside: bool) -> list[Candidate]:
        """Tries all linked reductions as one group; where that has no fold, each joins the groups of those it reads."""
        for indices in self._linked():
            outcome = self._outcome(indices)
            if isinstance(outcome, Group):
                self._join(indices, outcome)
        for later in range(len(self.reductions)):
            if earlier := self._considered_links(later):
                self._try_join(later, earlier)
        for indices in self._sharing() if beside else ():
            if isinstance(outcome := self._outcome(indices, beside=True), Group):
                self._join(indices, outcome)
        found = [Candidate(group.names, Reason("fold"), group) for group in self.groups.values()]
        lone = [k for k in range(len(self.reductions)) if self.considered[k]]
        if not found and not self.refusals and lone:
            names = tuple(self.reductions[k].stage.buffer.name for k in lone)
            return [Candidate(names, Reason("single_reduction", ", ".join(names)))]
        return found + self.refusals

    def _chained(self, later: int) -> list[int]:
        """Earlier reductions whose results the element reads off the axis: links of a chain, not producers."""
        axis = self.reductions[later].stage.reduce
        return [k for k, loads in self.reads[later].items() if not any(uses(load, axis) for load in loads)]

    def _considered_links(self, later: int) -> list[int]:
        return [k for k in self._chained(later) if self.considered[k] and self.considered[later]]

    def _linked(self) -> list[tuple[int, ...]]:
        """Sets of three reductions or more that are linked along one axis: deriving each prefix would take longer."""
        found = dict(self.group_of)
        for later in range(len(self.reductions)):
            same_axis = [k for k in self._considered_links(later) if self._axis_order(k, later) is not None]
            indices = tuple(sorted({k for e in (*same_axis, later) for k in found[e]}))
            found.update(dict.fromkeys(indices, indices))
        tuples = set(self.group_of.values())
        return [indices for indices in dict.fromkeys(found.values()) if len(indices) > 2 and indices not in tuples]

    def _sharing(self) -> list[tuple[int, ...]]:
        """Sets of reductions in no group that read one tensor at the same places, and do not depend on one another.

        One reduction is a set where it folds the rows of a product, which its loop can compute instead of reading. What
        the loop of a group computes inside is in none.
        """
        sets: list[tuple[int, ...]] = []
        inside = {k for indices in self.groups for member in indices for k in self.inside_of(member)}
        for parts in dict.fromkeys(self.group_of.values()):
            if parts in self.groups or not all(self.considered[k] and k not in inside for k in parts):
                continue
            joined = next((some for some in sets if self._shares(some, parts)), None)
            if joined is None:
                sets.append(parts)
            else:
                sets[sets.index(joined)] = (*joined, *parts)
        alone = set(self.group_of.values())
        return [indices for indices in sets if indices not in alone or self._folds_a_product(indices)]

    def inside_of(self, k: int) -> set[int]:
        """Reductions whose results an element reads along the axis, and those that these are computed from."""
        along = set(self.reads[k]) - set(self._chained(k))
        return along.union(*map(self.inside_of, along))

    def _folds_a_product(self, parts: tuple[int, ...]) -> bool:
        """Whether a reduction reads all of a product, each value once, and the function computes it for that alone."""
        if any(set(parts) & self.inside_of(k) for k in range(len(self.reductions))):
            return False
        return any(
            _is_product(self.reductions[other])
            and any(reads_once(load, self.reductions[k].stage) for load in loads)
            and not self._is_read_beside(other, parts)
            for k in parts
            for other, loads in self.reads[k].items()
        )

    def _is_read_beside(self, product: int, parts: tuple[int, ...]) -> bool:
        """Whether a result is an output, or read for anything but the elements of some reductions."""
        buffer = self.reductions[product].stage.buffer
        outputs = (s for s in self.program.stages if s.reducer is None and self.program.is_param(s.buffer))
        return (
            self.program.is_param(buffer)
            or any(product in reads for k, reads in enumerate(self.reads) if k not in parts)
            or any(reads_buffer(self.inline.of(stage), buffer) for stage in outputs)
        )

    def _shares(self, some: tuple[int, ...], parts: tuple[int, ...]) -> bool:
        depend = any(self._closure(one) & set(others) for a, others in ((some, parts), (parts, some)) for one in a)
        pairs = ((self.reductions[one], self.reductions[other]) for one in some for other in parts)
        return not depend and any(_shared(*pair) for pair in pairs)

    def _outcome(self, indices: tuple[int, ...], beside: bool = False) -> Group | Reason:
        return self.cycle(indices) or self._beside_opaque(indices) or self.among.group(indices, beside)

    def _join(self, indices: tuple[int, ...], group: Group) -> None:
        for k in indices:
            self.groups.pop(self.group_of[k], None)
            self.group_of[k] = indices
        self.groups[indices] = group

    def _try_join(self, later: int, earlier: list[int]) -> None:
        same_axis = [k for k in earlier if self._axis_order(k, later) is not None]
        name = self.reductions[later].stage.buffer.name
        if not same_axis:
            names = (*(self.reductions[k].stage.buffer.name for k in earlier), name)
            self.refusals.append(Candidate(names, Reason("axis_mismatch", f"{name} reads {', '.join(names[:-1])}")))
            return
        indices = tuple(sorted({k for e in (*same_axis, later) for k in self.group_of[e]}))
        if indices in self.groups:
            return
        outcome = self._outcome(indices)
        if isinstance(outcome, Reason):
            names = tuple(self.reductions[k].stage.buffer.name for k in indices)
            self.refusals.append(Candidate(names, outcome))
        else:
            self._join(indices, outcome)

    def _axis_order(self, earlier: int, later: int) -> tuple[int, ...] | None:
        a, b = self.reductions[earlier], self.reductions[later]
        return matching_axis(a.stage, a.element, b.stage, b.element)

    def cycle(self, indices: tuple[int, ...]) -> Reason | None:
        """Checks for cycles: a value that a member needs before the loop must not depend on a member."""
        members = set(indices)
        for k in indices:
            name = self.reductions[k].stage.buffer.name
            for other in (*self.reads[k], *self.behind[k]):
                needed = self.reductions[other].stage.buffer.name
                if other not in members and self._closure(other) & members:
                    return Reason("dependence_cycle", f"{name} reads {needed}")
                if other in members and (other in self.behind[k] or other not in self._chained(k)):
                    return Reason("dependence_cycle", f"{name} reads all of {needed}")
        return None

    def _beside_opaque(self, indices: tuple[int, ...]) -> Reason | None:
        """No nest that cannot be read may have to come between what the group is computed from."""
        members = [self.reductions[k].stage for k in indices]
        found = crossed(self.program, members) if self.program.opaque else None
        if found is None:
            return None
        one, buffer = found
        return Reason(one.reason.code, f"{members[-1].buffer.name} needs {buffer.name}: {one.reason.detail}")

    def _closure(self, reduction: int) -> set[int]:
        """Everything computed before a reduction: what it reads, transitively, with complete groups."""
        return {*reached([reduction], lambda k: (*self.reads[k], *self.behind[k], *self.group_of[k]))}


def _shared(earlier: InlinedReduction, later: InlinedReduction) -> Shared | None:
    return shared_tensor(earlier.stage, earlier.element, later.stage, later.element)


def _is_product(reduction: InlinedReduction) -> bool:
    """Whether every tensor that a sum reads is read again along one of its rows, as both matrices of a product are."""
    rows = [v for v in reduction.stage.spatial if more_than_one(reduction.stage.extents[v])]
    read = loads_of(reduction.element)
    return reduction.stage.reducer is SUM and all(any(not uses(load, [v]) for v in rows) for load in read)


def _form(reader: ElementReader, element: ir.Expr) -> sp.Expr:
    """An element in SymPy; a predicate on earlier results as 1 where it holds, 0 elsewhere."""
    if dtype_of(element) != "bool" or not reader.reads_result(element):
        return reader(element)
    return choice(reader.condition(element), sp.S.One, sp.S.Zero)


def _meaning(atoms: AtomTable, frame: Frame, reductions: Sequence[Reduction]) -> dict[sp.Symbol, sp.Expr]:
    """The definitions of atoms; and N where the axis has a static extent and it may matter.

    It does where positions are multiplied; where it is read, or a number that it may be; and where a count may be
    bounded by a number, as in max(1, n). What does not depend on a length is derived once for all of them.
    """
    known = meaning_of(atoms)
    read = [*(one.element for one in reductions), *known.values()]
    bounds = {bound for one in read for chosen in one.atoms(sp.Max, sp.Min) for bound in chosen.args if bound.is_number}
    counted = bool(bounds) or any(one.has(LENGTH) or one.atoms(sp.Number) - _NO_LENGTHS for one in read)
    counted = counted or any(one.reducer.plain is PROD for one in reductions)
    if isinstance(frame.length, int) and (counted or frame.length in _NO_LENGTHS):
        return {**known, LENGTH: sp.Integer(frame.length)}
    return known


_NO_LENGTHS = {sp.Rational(number, 2) for number in (-4, -2, -1, 0, 1, 2, 4)}
"""Numbers of squares and halves, which are N only in an axis that is as short."""


def _symbols(variants: list[InlinedReduction]) -> list[sp.Symbol]:
    """A distinct real symbol for each result, called after its buffer."""
    names: list[str] = []
    for variant in variants:
        base = variant.name.replace(".", "_")  # the parts of a tuple are called name.v0, name.v1, …
        names.append(unlike(base, names))
    return [sp.Symbol(name, real=True) for name in names]


def _result_symbol(known: list[tuple[InlinedReduction, sp.Symbol]], load: ir.TensorLoad) -> sp.Symbol | None:
    return next((symbol for variant, symbol in known if variant.holds(load)), None)
