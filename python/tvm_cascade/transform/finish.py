"""Finishing: the results that the rest of the program reads, from the final state."""

from __future__ import annotations

from collections.abc import Callable

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.algebra.cascade import LENGTH
from tvm_cascade.analysis.domain import dtype_of
from tvm_cascade.analysis.extract import Member
from tvm_cascade.transform.nest import NestBuilder, Values, store
from tvm_cascade.transform.printer import cast
from tvm_cascade.transform.scope import Scope, Slot, Slots, accumulator_dtype
from tvm_cascade.transform.tiling import TILE


class FinishEmitter:
    """Emits a nest for each result that is asked for, into the result's own buffer."""

    def __init__(self, slots: Slots, nests: NestBuilder, asked_for: Callable[[tirx.Var], bool]) -> None:
        self.slots, self.nests, self.asked_for = slots, nests, asked_for
        self.fold = slots.group.fold
        self.statements: list[tirx.Stmt] = []
        self.written: list[tirx.Var] = []

    def run(self) -> list[tirx.Stmt]:
        """The nests. A result that others are finished from, and that is more than a component, is written as well."""
        for member in self.slots.group.members:
            expression = self.fold.finish[member.result]
            if expression in self.slots.homes and self.slots.homes[expression].buffer.same_as(member.stage.buffer):
                self.slots.table[member.result] = self.slots.table[expression]
                continue
            serves = any(f.has(member.result) for r, f in self.fold.finish.items() if r != member.result)
            if self.asked_for(member.stage.buffer) or (serves and not expression.is_Symbol):
                self._finish(member, expression)
            elif expression.is_Symbol:
                self.slots.table[member.result] = self.slots.table[expression]
        return self.statements

    def _finish(self, member: Member, expression: sp.Expr) -> None:
        target, dims = member.stage.buffer, tuple(d for d in member.dims if isinstance(d, ir.Var))
        dtype = dtype_of(target)

        def body(at: Values) -> list[tirx.Stmt]:
            where = [next((v for k, v in at.items() if isinstance(k, ir.Var) and isinstance(d, ir.Var) and k.same_as(d)), d) for d in member.dims]
            exact = expression.subs(LENGTH, sp.Integer(self.slots.tiling.length))
            value = Scope(self.slots, {**at, TILE: tirx.const(0, self.nests.dtype)}).printer(accumulator_dtype(dtype))(exact)
            return [store(target, cast(value, dtype), where)]

        self.statements.append(self.nests.nest(f"{member.stage.name}", "finish", self.slots.iters(dims), body))
        self.written.append(target)
        self.slots.table[member.result] = Slot(target, dims, per_segment=False)
