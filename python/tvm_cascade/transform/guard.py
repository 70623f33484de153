"""Emits the guards of a fused loop: what may not be used is reduced a second time.

finish     d_fused = finish(state)
guard      failed_d = d_fused may not be used, or a result that d reads has failed
           d = failed_d ? ⊕ of the program's own elements, at the results so far : d_fused
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import ml_dtypes
import sympy as sp
import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.algebra.cascade import LENGTH
from tvm_cascade.algebra.fold import Component
from tvm_cascade.algebra.reducer import PROD, SUM
from tvm_cascade.analysis.extract import Group, Member
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.program import Stage
from tvm_cascade.analysis.reducers import combiner_of, identity_of
from tvm_cascade.analysis.statements import in_loops, sequence
from tvm_cascade.analysis.tir import dtype_of, substitute
from tvm_cascade.transform.layout import Producer
from tvm_cascade.transform.loop import as_number
from tvm_cascade.transform.nest import GUARD, NestBuilder, Values, load, store
from tvm_cascade.transform.planning import Guarding, cancelled_in, loaded_by, read_by
from tvm_cascade.transform.printer import cast
from tvm_cascade.transform.scope import (
    Cell,
    Scope,
    Slot,
    Slots,
    accumulator_dtype,
    combined,
    counting_dtype,
    kept_dtype,
    placed,
    value_at,
)
from tvm_cascade.transform.tiling import TILE
from tvm_cascade.tvm_faults.bfloat16 import binding

_NO, _YES = tirx.const(0, "int32"), tirx.const(1, "int32")


class GuardEmitter:
    """Emits a nest for each guarded result, after `FinishEmitter` has stored what was fused."""

    def __init__(self, slots: Slots, nests: NestBuilder, guarded: Guarding, producers: Sequence[Producer] = ()) -> None:
        self.slots, self.nests, self.guarded, self.producers = slots, nests, guarded, producers
        self.members = [member for member in slots.group.members if member.result in guarded.results]
        self.group = slots.group
        self.failed: list[tuple[Slot, Member]] = []

    def run(self) -> list[tirx.Stmt]:
        """The nests, in the members' order; the parts of a tuple are decided upon together."""
        units = [[m for m in self.members if m.stage.block.same_as(first.stage.block)] for first in self.members]
        return [self._nest(unit) for first, unit in zip(self.members, units, strict=True) if first is unit[0]]

    def told(self) -> list[tuple[tirx.Var, tirx.Stmt]]:
        """For each guarded result a buffer of its own extents, and the nest that stores there which may not be used."""
        found = []
        for member in self.members:
            dims = tuple(dim for dim in member.dims if isinstance(dim, ir.Var))
            slot = self._kept(member, dims)

            def body(at: Values, member: Member = member, slot: Slot = slot) -> list[tirx.Stmt]:
                told = tirx.Select(self._failed(member, at), _YES, _NO)
                return [store(slot.buffer, told, self.slots.indices(slot, at))]

            found.append((slot.buffer, self.nests.nest(slot.buffer.name, GUARD, self.slots.iters(dims), body)))
        return found

    def _nest(self, unit: Sequence[Member]) -> tirx.Stmt:
        dims = tuple(dim for dim in unit[0].dims if isinstance(dim, ir.Var))
        name, block = unit[0].stage.buffer.name, unit[0].stage.block
        parts = [member for member in self.group.members if member.stage.block.same_as(block)]
        way = Fallback(parts, self.producers, self.slots, self.nests)
        flags = [flag for member in unit if (flag := self._flag(member, dims)) is not None]

        def body(at: Values) -> list[tirx.Stmt]:
            bound = tirx.Var(f"{name}_fails", "bool")
            again = [self._stored(member, way.result(member), at) for member in unit]
            fused = [self._stored(member, self._fused(member, at), at) for member in unit]
            noted = tirx.Select(bound, _YES, _NO)
            decided = tirx.IfThenElse(bound, sequence([*way.statements(at), *again]), sequence(fused))
            flagged = [store(flag.buffer, noted, self.slots.indices(flag, at)) for flag in flags]
            failed = reduce(tirx.Or, [self._failed(member, at) for member in unit])
            return binding([(bound, failed)], [*flagged, decided])

        return self.nests.nest(f"{name}_guard", GUARD, self.slots.iters(dims), body, scratch=way.cells)

    def _failed(self, member: Member, at: Values) -> ir.Expr:
        """Whether a result may not be used at a point, by itself or by what it reads."""
        dtype = dtype_of(member.stage.buffer)
        known = {LENGTH: as_number(self.slots.tiling.length, counting_dtype(dtype))}
        scope = Scope(self.slots, {**at, TILE: tirx.const(0, self.nests.dtype)}, known)
        failed = fails(self.guarded, self.group, member, scope, scope.printer)
        for flag, other in self.failed:
            if among(other.stage.buffer, loaded_by(member)):
                failed = tirx.Or(failed, load(flag.buffer, self.slots.indices(flag, at)) != _NO)
        return failed

    def _flag(self, member: Member, dims: tuple[tirx.Var, ...]) -> Slot | None:
        """Where it is kept which values have failed, for those that read them."""
        if not any(among(member.stage.buffer, loaded_by(other)) for other in self.members):
            return None
        flag = self._kept(member, dims)
        self.failed.append((flag, member))
        return flag

    def _kept(self, member: Member, dims: tuple[tirx.Var, ...]) -> Slot:
        return self.slots.allocate(("failed", member.result), f"{member.stage.buffer.name}_failed", dims, "int32")

    def _fused(self, member: Member, at: Values) -> ir.Expr:
        return cast(self.slots.read(member.result, at), dtype_of(member.stage.buffer))

    def _stored(self, member: Member, value: ir.Expr, at: Values) -> tirx.Stmt:
        """A result in its own buffer."""
        return store(member.stage.buffer, value, placed(member.dims, at))


# The fallback of a fused result: the program's own reduction, where what was fused may not be used.
#
#     own = start;  for l: { p = ⊕ of a producer's elements at l;  own ⊕= the program's element, at the results so far }
#
# There are neither references nor merges in it. Inner reductions that are elements are reduced again at each position;
# the parts of a tuple are reduced together, by the tuple's own ∘.


_ZERO = [tirx.const(0, "int32")]


@dataclass(frozen=True)
class Fallback:
    """The fallback of one result, or of the parts of one tuple.

    Attributes
    ----------
    members : the result, or all parts.
    producers : of the group; those that the elements read are reduced again.
    """

    members: Sequence[Member]
    producers: Sequence[Producer]
    slots: Slots
    nests: NestBuilder

    @cached_property
    def own(self) -> dict[sp.Symbol, tirx.Var]:
        """The cells that the results are reduced into."""
        return {m.result: _cell(f"{m.stage.buffer.name}_again", dtype_of(m.stage.buffer)) for m in self.members}

    @cached_property
    def inner(self) -> list[tuple[Producer, tirx.Var]]:
        """The producers that the elements read, with the cells for their values at a position."""
        found = [p for p in self.producers if among(p.stage.buffer, self._loaded)]
        name = self.members[0].stage.buffer.name
        return [(p, _cell(f"{p.stage.buffer.name}_of_{name}", dtype_of(p.stage.buffer))) for p in found]

    @property
    def cells(self) -> list[tirx.Var]:
        return [*self.own.values(), *(cell for _, cell in self.inner)]

    def result(self, member: Member) -> ir.Expr:
        """What it has found, as the result is stored."""
        return cast(load(self.own[member.result], _ZERO), dtype_of(member.stage.buffer))

    def statements(self, at: Values) -> list[tirx.Stmt]:
        """The reduction at a point of the result's domain."""
        frame, nests = self.slots.group.frame, self.nests
        loops = [tirx.Var(axis.name, nests.dtype) for axis in frame.axis]
        values = {v: cast(value_at(at, v), dtype_of(v)) for v in frame.extents}
        values |= {axis: cast(var, dtype_of(axis)) for axis, var in zip(frame.axis, loops, strict=True)}
        elements = {m.result: self._from_cells(substitute(m.element, values)) for m in self.members}
        body = [s for producer, cell in self.inner for s in self._produced(producer, cell, values)]
        extents = {var: self.slots.extent(axis) for axis, var in zip(frame.axis, loops, strict=True)}
        statement = in_loops(extents, sequence([*body, *self._added(elements)]))
        return [*(_started(m.stage, self.own[m.result]) for m in self.members), statement]

    def _added(self, elements: dict[sp.Symbol, ir.Expr]) -> list[tirx.Stmt]:
        reducers = {m.result: m.stage.reducer for m in self.members if m.stage.reducer is not None}
        cells = {result: Cell(self.own[result], _ZERO) for result in reducers}
        values = {result: cast(element, cells[result].dtype) for result, element in elements.items()}
        result, reducer = next(iter(reducers.items()))
        if reducer.whole is not None:
            return combined(reducers, cells, values, {}, lambda new, _old: new)
        return [store(self.own[result], combiner_of(reducer)(cells[result].read(), values[result]), _ZERO)]

    def _produced(self, producer: Producer, cell: tirx.Var, values: dict[tirx.Var, ir.Expr]) -> list[tirx.Stmt]:
        """A producer's value at a position, into its cell."""
        stage = producer.stage
        assert stage.reducer is not None
        loops = {v: tirx.Var(v.name, self.nests.dtype) for v in stage.reduce}
        places = {own: cast(substitute(var, values), dtype_of(own)) for own, var in producer.variables.items()}
        element = substitute(producer.element, places | {v: cast(loop, dtype_of(v)) for v, loop in loops.items()})
        added = combiner_of(stage.reducer)(load(cell, _ZERO), cast(element, dtype_of(cell)))
        extents = {loop: stage.extents[var] for var, loop in loops.items()}
        return [_started(stage, cell), in_loops(extents, store(cell, added, _ZERO))]

    def _from_cells(self, element: ir.Expr) -> ir.Expr:
        """The element with producers read from their cells."""

        def placed(access: ir.TensorLoad) -> ir.Expr:
            cell = next((c for p, c in self.inner if p.stage.buffer.same_as(access.source)), None)
            return access if cell is None else cast(load(cell, _ZERO), dtype_of(access))

        return tvm_ffi.structural_map(element, (ir.TensorLoad, placed))

    @property
    def _loaded(self) -> list[tirx.Var]:
        return [buffer for member in self.members for buffer in loaded_by(member)]


def _started(stage: Stage, cell: tirx.Var) -> tirx.Stmt:
    """What a reduction starts from, in its cell."""
    assert stage.reducer is not None
    start = identity_of(stage.reducer, dtype_of(stage.buffer)) if stage.init is None else stage.init
    return store(cell, cast(start, dtype_of(cell)), _ZERO)


def _cell(name: str, dtype: str) -> tirx.Var:
    """A buffer of one value of a dtype, which each row has for itself: no thread of a GPU writes another's."""
    return tirx.decl_buffer([1], kept_dtype(dtype), name=name, scope="local", layout=None)


# When the fused value of a guarded result may not be used, as an expression over results and the state.
#
#     failed_d = d_fused may not be used, or a result that d reads has failed
#
# A value may not be used where it, what it is finished from, or a result that its elements read, is infinite or NaN;
# where a sum, or an extremum that moves, that it is finished from, a factor that is applied to it at the end, or itself
# where it ends a product, is so small that terms may have vanished; and where the terms of its finish cancel all but a
# few of their digits, or are exponentials of large exponents. Nor may it where a result that cancels in its element is
# zero or not finite. Of a result that is bounded, but of another class than the program's at infinities
# (`obligations.ends`), the first is all that decides.


CANCELLED = 16.0
"""How many times smaller than its terms a sum of them may be, beyond the digits that its result does not keep."""

VANISHED = {"float32": 2.0**-100, "float64": 2.0**-960}
"""Below this a sum may have lost terms, and a factor digits: products of two that large are normal numbers."""


def fails(
    guarded: Guarding,
    group: Group,
    member: Member,
    values: Mapping[sp.Symbol, ir.Expr],
    printer: Callable[[str], Callable[[sp.Expr], ir.Expr]],
) -> ir.Expr:
    """Whether the fused value of a member may not be used, by itself; see the table above.

    Parameters
    ----------
    group : with the fold that is computed.
    values : of its results, as they are stored, and of its components.
    printer : by dtype, what writes expressions of the fold's finish.
    """
    fold, fused, dtype = group.fold, values[member.result], _dtype_of(member)
    own = [fused] if _is_float(fused) else []  # a truth value and an integer are always in range
    expression, results = fold.finish[member.result], [values[result] for result in read_by(member, group.members)]
    results = [value for value in results if _is_float(value)]
    parts = [c for c in fold.components if c.symbol in expression.free_symbols and _may_vanish(c)]
    sums = [(one.reducer, value) for one in parts if _is_float(value := values[one.symbol])]
    divided = [value for result in cancelled_in(member, group) if _is_float(value := values[result])]
    zeros = [tirx.EQ(value, tirx.const(0, dtype_of(value))) for value in divided]
    if (told := guarded.at_infinities.get(member.result)) is not None:
        read = own if told and own else [*own, *(value for _, value in sums), *results]
        return reduce(tirx.Or, zeros, _leaves_range(_size(read, dtype)) if read else tirx.const(False, "bool"))
    failed = [_leaves_range(value) for value in (*own, *results)]
    for reducer, value in sums:
        vanishes = reducer is not SUM or member.result in fold.deferred
        failed += [_leaves_range(value), *([_vanishes(value)] if vanishes else [])]
    products = [value.astype(dtype) for value in own if any(reducer is PROD for reducer, _ in sums)]
    failed += map(_vanishes, (*map(printer(dtype), fold.deferred.get(member.result, ())), *products))
    if expression.has(sp.Add, sp.exp) and own:
        digits = float(ml_dtypes.finfo(dtype_of(fused)).eps) / float(ml_dtypes.finfo(dtype).eps)
        ends = {one.symbol: one.tracks for one in fold.references if one.tracks.as_coeff_Mul()[1].is_Symbol}
        least = printer(dtype)(size_of(expression, ends)) * tirx.const(1.0 / (CANCELLED * digits), dtype)
        failed.append(tirx.LT(tirx.abs(fused.astype(dtype)), least))
    return reduce(tirx.Or, [*(failed or [tirx.const(False, "bool")]), *zeros])


def _vanishes(value: ir.Expr) -> ir.Expr:
    return tirx.LT(tirx.abs(value), tirx.const(VANISHED[dtype_of(value)], dtype_of(value)))


def _may_vanish(component: Component) -> bool:
    return component.reducer in (SUM, PROD) or (component.reducer.ordered and component.moves)


def size_of(expression: sp.Expr, ends: Mapping[sp.Symbol, sp.Expr] = {}) -> sp.Expr:
    """The sum of the magnitudes of the terms that an expression adds up, products and powers taken apart.

    A rounding of a in exp(a) is one of a·exp(a): an exponential counts as often.

    Parameters
    ----------
    ends : what each reference stands in for, where that is a result or a multiple of one. Their difference is a step,
        and not two terms: the program's own elements read the quantity as it is.
    """

    def size(part: sp.Expr) -> sp.Expr:
        return size_of(part, ends)

    if isinstance(expression, sp.Add) and ends and expression.xreplace(dict(ends)) == 0:
        return sp.Abs(expression, evaluate=False)
    if isinstance(expression, (sp.Add, sp.Mul)):
        return expression.func(*map(size, expression.args))
    if isinstance(expression, sp.Piecewise):
        return sp.Piecewise(*((size(value), condition) for value, condition in expression.args), evaluate=False)
    if isinstance(expression, sp.Pow) and expression.exp.is_integer and expression.exp.is_positive:
        return size(expression.base) ** expression.exp
    if isinstance(expression, sp.exp):
        return expression * (1 + sp.Abs(expression.args[0], evaluate=False))
    if isinstance(expression, sp.Pow):
        return sp.Abs(expression.base, evaluate=bool(expression.base.is_number)) ** expression.exp
    if expression.is_nonnegative:
        return expression
    return sp.Abs(expression, evaluate=bool(expression.is_number))  # SymPy may take what is in it for complex


def _dtype_of(member: Member) -> str:
    """The dtype in which the size of what a guard reads is computed."""
    dtype = dtype_of(member.stage.buffer)
    return accumulator_dtype(dtype) if "float" in dtype else "float32"


def _is_float(value: ir.Expr) -> bool:
    return "float" in dtype_of(value)


def _size(values: Sequence[ir.Expr], dtype: str) -> ir.Expr:
    """The sum of their magnitudes, which is finite where all are."""
    return reduce(prim.Add, (tirx.abs(value.astype(dtype)) for value in values))


def _leaves_range(value: ir.Expr) -> ir.Expr:
    """Whether a value is NaN, infinite or extreme; TVM takes the negation of a < b for a ≥ b, which no NaN is."""
    dtype = dtype_of(value)
    wide = accumulator_dtype(dtype)
    most = tirx.max_value(dtype) if wide == dtype else tirx.const(float(ml_dtypes.finfo(dtype).max), wide)
    value = value.astype(wide)
    return tirx.Or(tirx.isnan(value), tirx.GE(tirx.abs(value), most))
