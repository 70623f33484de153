"""The rows and free axes that each symbol of a fold depends on."""

from __future__ import annotations

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.algebra.cascade import COUNT, LENGTH
from tvm_cascade.algebra.fold import Component
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.tir import uses, variables_of
from tvm_cascade.steps.program import Scale, StepProgram


class Dims:
    """Frame variables by symbol, in one common order: that in which the members' results are indexed."""

    def __init__(self, group: Group) -> None:
        self.order: list[tirx.Var] = []
        for member in group.members:
            for index in member.dims:
                if isinstance(index, ir.Var) and not any(index.same_as(v) for v in self.order):
                    self.order.append(index)
        self._known: dict[sp.Symbol, tuple[tirx.Var, ...]] = {COUNT: (), LENGTH: ()}
        self._varying: set[sp.Symbol] = set()
        for atom in group.atoms.atoms.values():
            read = [v for v in variables_of(atom.expression) if _in(v, group.frame.extents)]
            self.order += [v for v in read if not _in(v, self.order) and not _in(v, group.frame.axis)]
            self._known[atom.symbol] = tuple(v for v in self.order if _in(v, read))
            if uses(atom.expression, group.frame.axis):
                self._varying.add(atom.symbol)
        for member in group.members:
            self._known[member.result] = tuple(
                v for v in self.order if _in(v, [d for d in member.dims if isinstance(d, ir.Var)])
            )
        self._state(group)

    def _state(self, group: Group) -> None:
        for step in group.fold.steps:
            if isinstance(step, Component):
                others = [s for s in step.shift.free_symbols if s != step.symbol and s in self._known]
                tuple_ = [c.lift for c in group.fold.components if step.parts and c.parts == step.parts]
                self._known[step.symbol] = self._sorted([step.lift, *others, *tuple_])
            else:
                for symbol in (step.symbol, step.moved, step.step):
                    self._known[symbol] = self._sorted([step.value])

    def _sorted(self, expressions: list[sp.Expr]) -> tuple[tirx.Var, ...]:
        found = [v for e in expressions for s in e.free_symbols for v in self._known.get(s, ())]
        return tuple(v for v in self.order if _in(v, found))

    def define_scales(self, program: StepProgram) -> None:
        """Records the dims of factors of shifts."""
        for step in program.steps:
            if isinstance(step, Scale):
                self.define(step.symbol, self.of(step.expression), varies=False)

    def define(self, symbol: sp.Symbol, dims: tuple[tirx.Var, ...], varies: bool) -> None:
        """Records the dims of a symbol of the rewrite."""
        self._known[symbol] = dims
        if varies:
            self._varying.add(symbol)

    def of(self, expression: sp.Expr) -> tuple[tirx.Var, ...]:
        """The rows and free axes that the expression depends on."""
        return self._sorted([expression])

    def varies(self, expression: sp.Expr) -> bool:
        """Whether the expression depends on the position on the cascade axis."""
        return bool(expression.free_symbols & self._varying)


def _in(var: tirx.Var, variables: object) -> bool:
    return any(var.same_as(other) for other in variables)  # type: ignore[attr-defined]
