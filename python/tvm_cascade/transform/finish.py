"""Emits the finish: results that the rest of the program reads, from the final state."""

from __future__ import annotations

from collections.abc import Collection

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.algebra.cascade import LENGTH
from tvm_cascade.analysis.extract import Member
from tvm_cascade.analysis.reducers import combiner_of, extreme, identity_of
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.transform.loop import as_number
from tvm_cascade.transform.nest import NestBuilder, Values, store
from tvm_cascade.transform.printer import cast
from tvm_cascade.transform.scope import Scope, Slot, Slots, accumulator_dtype, counting_dtype, kept_dtype, placed
from tvm_cascade.transform.tiling import TILE


class FinishEmitter:
    """Emits a nest for each live result, into the result's own buffer; of a guarded one beside it."""

    def __init__(
        self, slots: Slots, nests: NestBuilder, asked_for: set[sp.Symbol], guarded: Collection[sp.Symbol] = ()
    ) -> None:
        self.slots, self.nests, self.asked_for, self.guarded = slots, nests, asked_for, guarded
        self.fold = slots.group.fold
        self.statements: list[tirx.Stmt] = []
        self.written: list[tirx.Var] = []

    def run(self) -> list[tirx.Stmt]:
        """The nests; a result that others read, and that is more than a component, is stored as well."""
        for member in self.slots.group.members:
            expression = self.fold.finish.get(member.result)
            if expression is None:
                continue
            if expression in self.slots.homes and self.slots.homes[expression].buffer.same_as(member.stage.buffer):
                self.slots.table[member.result] = self.slots.table[expression]
            elif member.result in self.asked_for or not expression.is_Symbol:
                self._finish(member, expression)
            else:
                self.slots.table[member.result] = self.slots.table[expression]
        return self.statements

    def _finish(self, member: Member, expression: sp.Expr) -> None:
        dims = tuple(d for d in member.dims if isinstance(d, ir.Var))
        dtype = dtype_of(member.stage.buffer)
        apart = member.is_slice or member.result in self.guarded
        if apart:
            kept, key = kept_dtype(dtype), ("result", member.result)
            slot = self.slots.allocate(key, str(member.result), dims, kept)
        else:
            slot = Slot(member.stage.buffer, dims)
            self.written.append(slot.buffer)

        def body(at: Values) -> list[tirx.Stmt]:
            where = self.slots.indices(slot, at) if apart else placed(member.dims, at)
            # N stays a factor of its own: (1/(c·m))**N must not become c**-N · m**-N, which overflow apart.
            length = {LENGTH: as_number(self.slots.tiling.length, counting_dtype(dtype))}
            scope = Scope(self.slots, {**at, TILE: tirx.const(0, self.nests.dtype)}, length)
            value = cast(scope.printer(accumulator_dtype(dtype))(expression), dtype)
            value = or_its_start(member, _from_its_start(member, expression, value), self.slots.tiling.none)
            return [store(slot.buffer, cast(value, dtype_of(slot.buffer)), where)]

        self.statements.append(self.nests.nest(_name(member), "finish", self.slots.iters(dims), body))
        self.slots.table[member.result] = slot


def _from_its_start(member: Member, expression: sp.Expr, value: ir.Expr) -> ir.Expr:
    """No result is beyond the start of its max, min or selection, even where a factor of it ends infinite.

    The start comes first: of max(a, NaN) TVM keeps the second.
    """
    reducer, dtype = member.stage.reducer, dtype_of(member.stage.buffer)
    if reducer is None or expression.is_Symbol:
        return value
    if reducer.ordered:
        return combiner_of(reducer)(identity_of(reducer, dtype), value)
    return key_from_its_start(member, value)


def or_its_start(member: Member, value: ir.Expr, none: ir.Expr | None) -> ir.Expr:
    """A result; what its reduction starts from, over no positions: no state is made there, and none has a finish.

    Parameters
    ----------
    none : whether there are no positions; None where there are.
    """
    if none is None or member.stage.init is None:
        return value
    return tirx.Select(none, cast(member.stage.init, dtype_of(value)), value)


def key_from_its_start(member: Member, value: ir.Expr) -> ir.Expr:
    """A selected key, none beyond the start of its selection; any other value as it is.

    A key may be stored in a narrower dtype than it is selected in, whose own lowest number is −∞ there.
    """
    reducer, dtype = member.stage.reducer, dtype_of(member.stage.buffer)
    selection = None if reducer is None or reducer.whole is None else reducer.whole.selection
    if reducer is None or selection is None or reducer.part % selection.per_rank or accumulator_dtype(dtype) == dtype:
        return value
    start = extreme(selection.absent[reducer.part], dtype)
    if start is None:
        return value
    start = cast(start, dtype_of(value))
    beyond = tirx.LT(value, start) if selection.largest else tirx.GT(value, start)  # which no NaN is
    return tirx.Select(beyond, start, value)


def _name(member: Member) -> str:
    """A result is called after its block; one of several of a block after itself."""
    return str(member.result) if member.stage.is_part else member.stage.name
