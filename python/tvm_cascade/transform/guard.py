"""Emits the guards of a fold and the second way: results that its certificate does not bear are decided upon by value.

    finish     d_fused = finish(state)
    guard      failed_d = d_fused may not be used, or a result that d reads has failed
               d = failed_d ? ⊕ of the program's own elements, at the results so far : d_fused

A value may not be used where it, what it is finished from, or a result that its elements read, is infinite or NaN;
where a sum that it is finished from is so small that its terms may have vanished; and where the terms of its finish
cancel all but a few of their digits. Of a result that is bounded, but of another class than the program's at infinities
(`obligations.ends`), the first is all that decides.
The second way has neither references nor merges: it is the reduction as it was written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import ml_dtypes
import sympy as sp
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.algebra.cascade import LENGTH
from tvm_cascade.algebra.reducer import PROD, SUM
from tvm_cascade.analysis.extract import Group, Member
from tvm_cascade.analysis.meaning import meaning_of
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.reducers import combiner_of, identity_of
from tvm_cascade.analysis.tir import dtype_of, loads_of, reads_buffer, substitute
from tvm_cascade.obligations.certificate import certificate
from tvm_cascade.obligations.ends import at_infinities
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.assemble import live_stages
from tvm_cascade.transform.layout import Plan, plan_loop
from tvm_cascade.transform.loop import as_number
from tvm_cascade.transform.nest import GUARD, NestBuilder, Values, load, sequence, store
from tvm_cascade.transform.scope import Scope, Slots, accumulator_dtype, cast_index, component_dtype, counting_dtype
from tvm_cascade.transform.tiling import TILE

CANCELLED = 16.0
"""How many times smaller than its terms a sum of them may be, beyond the digits that its result does not keep."""

VANISHED = {"float32": 2.0**-100, "float64": 2.0**-960}
"""Below this a sum may have lost terms: the products of two that large are normal numbers of the dtype."""


@dataclass(frozen=True)
class Guarding:
    """What is guarded of a group.

    Attributes
    ----------
    results : of the members whose fused values are decided upon.
    at_infinities : those of them that are decided upon by their class alone, and whether their own value tells it.
    asked : the results that the fused loop has to give: those asked for, and those that second ways read.
    """

    results: frozenset[sp.Symbol]
    asked: tuple[sp.Symbol, ...]
    at_infinities: Mapping[sp.Symbol, bool] = field(default_factory=dict)


def guarding(plan: Plan, asked: Sequence[sp.Symbol], guards: str, classes: bool = False) -> Guarding:
    """What is guarded: nothing where all is bounded, or where there is no second way.

    A second way reads what the group reads, and results that are stored: parts of tuples, slices of results, what is
    computed in the tile alone and buffers that are written over have none.

    Parameters
    ----------
    asked : the results that the rest of the program reads.
    guards : see `FuseOptions`.
    classes : whether what is of another class at infinities is guarded too, where results have a value a row.
    """
    fold, members = plan.group.fold, plan.group.members
    if guards == "off" or not _has_second_way(plan):
        return Guarding(frozenset(), tuple(asked))
    known = certificate(fold.restricted_to(asked))
    doubtful = {one.result for one in known.standings if not one.bounded or guards == "always"}
    found = _with_readers(members, asked, doubtful)
    faults = at_infinities(fold, meaning_of(plan.group.atoms)).faults if classes else {}
    if ends := faults.keys() & {one.result for one in known.standings} - doubtful:
        wider = _with_readers(members, asked, doubtful | ends)
        others = wider.results - found.results
        if all(_is_a_value_a_row(member, plan) for member in members if member.result in others):
            return replace(wider, at_infinities={one: one not in faults or faults[one].told for one in others})
    return found


def _with_readers(members: Sequence[Member], asked: Sequence[sp.Symbol], doubtful: set[sp.Symbol]) -> Guarding:
    """Guards of some results, and of all that read them; what their second ways read is given too."""
    if not doubtful:
        return Guarding(frozenset(), tuple(asked))
    needed, guarded = {*asked, *doubtful}, set(doubtful)
    for member in reversed(members):
        if member.result in needed:
            needed |= {other.result for other in members if among(other.stage.buffer, _read(member))}
    for member in members:
        follows = any(other.result in guarded and among(other.stage.buffer, _read(member)) for other in members)
        if follows and member.result in needed:
            guarded.add(member.result)
    return Guarding(frozenset(guarded), tuple(member.result for member in members if member.result in needed))


def _is_a_value_a_row(member: Member, plan: Plan) -> bool:
    """Whether a result has no columns of its own, on which guards would be a pass of their own."""
    return len(member.dims) == min(len(other.dims) for other in plan.group.members)


def guarded_results(program: Program, group: Group, options: FuseOptions) -> frozenset[sp.Symbol]:
    """The results of a group that its rewritten loop guards: kernels without guards must not compute them."""
    outside = [stage for stage in program.stages if not any(stage is member.stage for member in group.members)]
    names = {stage.name for stage in live_stages(program, [group], [[]])}
    plan = plan_loop(program, group, names | {member.stage.name for member in group.members})
    asked = [
        member.result
        for member in group.members
        if not member.is_slice
        and (
            program.is_param(member.stage.buffer)
            or any(reads_buffer(stage.value, member.stage.buffer) for stage in outside)
        )
    ]
    return guarding(plan, asked, options.guards).results


def _has_second_way(plan: Plan) -> bool:
    """Whether the program's own reductions can be run again after the fused loop."""
    members = plan.group.members
    if plan.producers or any(member.stage.is_part or member.is_slice for member in members):
        return False
    buffers = [member.stage.buffer for member in members]
    known = all(dtype_of(buffer) in ("float16", "float32", "float64", "bool") for buffer in buffers)
    own = all(all(isinstance(dim, ir.Var) for dim in member.dims) for member in members)
    started = all(isinstance(member.stage.init, (type(None), tirx.FloatImm, tirx.IntImm)) for member in members)
    return known and own and started and not any(among(buffer, plan.reads) for buffer in buffers)


class GuardEmitter:
    """Emits a nest for each guarded result, after `FinishEmitter` has stored what was fused."""

    def __init__(self, slots: Slots, nests: NestBuilder, guarded: Guarding) -> None:
        self.slots, self.nests, self.guarded = slots, nests, guarded
        self.members = [member for member in slots.group.members if member.result in guarded.results]
        self.group, self.fold = slots.group, slots.group.fold
        self.failed: list[tuple[tirx.Var, Member]] = []

    def run(self) -> list[tirx.Stmt]:
        """The nests, in the members' order."""
        return [self._nest(member) for member in self.members]

    def _nest(self, member: Member) -> tirx.Stmt:
        dims = tuple(dim for dim in member.dims if isinstance(dim, ir.Var))
        dtype, name = dtype_of(member.stage.buffer), member.stage.buffer.name
        flag = self.slots.allocate(("failed", member.result), f"{name}_failed", dims, "int32", per_segment=False)
        again = tirx.decl_buffer([1], dtype, name=f"{name}_again", layout=None)
        earlier = [one for one in self.failed if among(one[1].stage.buffer, _read(member))]

        def body(at: Values) -> list[tirx.Stmt]:
            fused = self.slots.read(member.result, at)
            failed = self._fails(member, fused, {**at, TILE: tirx.const(0, self.nests.dtype)})
            for buffer, other in earlier:
                found = load(buffer, [self._placed(dim, at) for dim in other.dims] or [tirx.const(0, "int32")])
                failed = tirx.Or(failed, found != tirx.const(0, "int32"))
            where = self.slots.indices(flag, at)
            bound = tirx.Var(f"{name}_fails", "bool")
            place, zero = [self._placed(dim, at) for dim in member.dims], [tirx.const(0, "int32")]
            if not place:
                place = [tirx.const(0, "int32")] * len(member.stage.buffer.ty.shape)
            second = sequence(
                [*self._second_way(member, again, at), store(member.stage.buffer, load(again, zero), place)]
            )
            return [
                tirx.Bind(bound, failed),
                store(flag.buffer, tirx.Select(bound, tirx.const(1, "int32"), tirx.const(0, "int32")), where),
                tirx.IfThenElse(bound, second, store(member.stage.buffer, fused, place)),
            ]

        nest = self.nests.nest(f"{name}_guard", GUARD, self.slots.iters(dims), body, scratch=(again,))
        self.failed.append((flag.buffer, member))
        return nest

    def _placed(self, dim: ir.Expr, at: Values) -> ir.Expr:
        """A dimension of a result's buffer at a point of the nest."""
        return next(
            (v for key, v in at.items() if isinstance(key, ir.Var) and key.same_as(dim)), tirx.const(0, "int32")
        )

    def _second_way(self, member: Member, again: tirx.Var, at: Values) -> list[tirx.Stmt]:
        """The member's reduction as it was written, into a cell of its own."""
        stage, frame, zero = member.stage, self.group.frame, [tirx.const(0, "int32")]
        assert stage.reducer is not None
        loops = [tirx.Var(axis.name, self.nests.dtype) for axis in frame.axis]
        values = {v: cast_index(self._placed(v, at), v) for v in frame.extents}
        values |= {axis: cast_index(var, axis) for axis, var in zip(frame.axis, loops, strict=True)}
        element = substitute(member.element, values)
        statement: tirx.Stmt = store(again, combiner_of(stage.reducer)(load(again, zero), element), zero)
        for axis, var in reversed(list(zip(frame.axis, loops, strict=True))):
            statement = self.nests.loop(var, self.slots.extent(axis), statement)
        start = stage.init if stage.init is not None else identity_of(stage.reducer, dtype_of(stage.buffer))
        return [store(again, start, zero), statement]

    def _fails(self, member: Member, fused: ir.Expr, at: Values) -> ir.Expr:
        """Whether the fused value may not be used; see the table above."""
        expression, logical = self.fold.finish[member.result], dtype_of(member.stage.buffer) == "bool"
        dtype = "float32" if logical else accumulator_dtype(dtype_of(member.stage.buffer))
        own = [] if logical else [fused]  # a truth value is always in range
        known = {LENGTH: as_number(self.slots.tiling.length, counting_dtype(dtype))}
        scope = Scope(self.slots, at, known)
        parts = [c for c in self.fold.components if c.symbol in expression.free_symbols and c.reducer in (SUM, PROD)]
        read = [other for other in self.group.members if among(other.stage.buffer, _read(member))]
        results = [self.slots.read(one.result, at) for one in read if dtype_of(one.stage.buffer) != "bool"]
        if (told := self.guarded.at_infinities.get(member.result)) is not None:
            state = [] if told else [*(scope[part.symbol] for part in parts), *results]
            return _leaves_range(_size([*own, *state], dtype))
        failed: ir.Expr = tirx.const(False, "bool")
        for number, value in enumerate((*own, *results)):
            failed = tirx.Or(failed, _leaves_range(value)) if number else _leaves_range(value)
        for component in parts:
            value, kept = scope[component.symbol], component_dtype(self.group, component)
            failed = tirx.Or(failed, _leaves_range(value))
            if component.reducer is PROD or member.result in self.fold.deferred:
                failed = tirx.Or(failed, tirx.LT(tirx.abs(value), tirx.const(VANISHED[kept], kept)))
        if expression.has(sp.Add) and not logical:
            digits = float(ml_dtypes.finfo(dtype_of(fused)).eps) / float(ml_dtypes.finfo(dtype).eps)
            least = scope.printer(dtype)(size_of(expression)) * tirx.const(1.0 / (CANCELLED * digits), dtype)
            failed = tirx.Or(failed, tirx.LT(tirx.abs(fused).astype(dtype), least))
        return failed


def size_of(expression: sp.Expr) -> sp.Expr:
    """The sum of the magnitudes of the terms that an expression adds up, products and powers taken apart."""
    if isinstance(expression, (sp.Add, sp.Mul)):
        return expression.func(*map(size_of, expression.args))
    if isinstance(expression, sp.Pow) and expression.exp.is_integer and expression.exp.is_positive:
        return size_of(expression.base) ** expression.exp
    if isinstance(expression, sp.exp) or expression.is_nonnegative:
        return expression
    return sp.Abs(expression, evaluate=bool(expression.is_number))  # SymPy may take what is in it for complex


def _size(values: Sequence[ir.Expr], dtype: str) -> ir.Expr:
    """The sum of their magnitudes, which is finite where all are."""
    first, *others = (tirx.abs(value.astype(dtype)) for value in values)
    return reduce(prim.Add, others, first)


def _leaves_range(value: ir.Expr) -> ir.Expr:
    """Whether a value is NaN, infinite or extreme; TVM takes the negation of a < b for a ≥ b, which no NaN is."""
    return tirx.Or(tirx.isnan(value), tirx.GE(tirx.abs(value), tirx.max_value(dtype_of(value))))


def _read(member: Member) -> list[tirx.Var]:
    return [load.source for load in loads_of(member.element)]
