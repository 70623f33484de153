"""A step program as formulas: lifts, moves of references, merge and finish."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from tvm_cascade.algebra.cascade import COUNT
from tvm_cascade.steps.program import Combine, Element, Move, Reduce, Scale, StepProgram, Tuple

Row = tuple[str, sp.Expr, sp.Expr]


def formulas(program: StepProgram, gauges: Sequence[str]) -> list[Row]:
    """(section, left side, right side) rows as `Fold.formulas` has them, with shared elements and scales written out.

    Parameters
    ----------
    gauges : how each reference moves, in order.
    """
    lifts: list[Row] = []
    references: list[Row] = []
    merges: list[Row] = []
    shared: dict[sp.Expr, sp.Expr] = {}
    scales: dict[sp.Expr, sp.Expr] = {}
    for step in program.steps:
        if isinstance(step, Element):
            shared[step.symbol] = step.expression.xreplace(shared)
        elif isinstance(step, Reduce):
            lifts.append(("lift", step.component, step.lift.xreplace(shared)))
        elif isinstance(step, Tuple):
            lifts += [("lift", c, lift.xreplace(shared)) for c, lift in zip(step.components, step.lifts, strict=True)]
            merges += [("merge", left, right) for left, right in _tuple(program, step)]
        elif isinstance(step, Move):
            references.append((f"reference ({gauges[len(references)]})", step.moved, step.value))
        elif isinstance(step, Scale):
            scales[step.symbol] = step.expression.xreplace(scales)
        elif isinstance(step, Combine):
            for component, reducer in zip(step.components, step.reducers, strict=True):
                shift = program.shifts[component].xreplace(scales)
                merges.append(("merge", component, reducer.combine(*(_of(shift, program, side) for side in (1, 2)))))
    finish = [("finish", finish.result, finish.expression) for finish in program.finish]
    return [*lifts, *references, *merges, *finish]


def _of(expression: sp.Expr, program: StepProgram, side: int) -> sp.Expr:
    """The expression over the first or the second of two states."""
    of_a_side = [*program.shifts, *(s for move in program.moves for s in (move.reference, move.step)), COUNT]
    return expression.xreplace({s: sp.Symbol(f"{s}_{side}", **s.assumptions0) for s in of_a_side})


def _tuple(program: StepProgram, step: Tuple) -> list[tuple[sp.Expr, sp.Expr]]:
    """A tuple's components and what they merge to; a selection is shown by its name."""
    kept = dict(zip(step.parts, step.components, strict=True))
    parts = [kept.get(part, sp.Symbol(f"part_{part}", real=True)) for part in range(step.reducer.width)]
    sides = [[_of(symbol, program, side) for symbol in parts] for side in (1, 2)]
    if step.reducer.selection is not None:
        selected = sp.Function(step.reducer.name)(*(sp.Tuple(*side) for side in sides))
        return [(sp.Tuple(*step.components), selected)]
    merged = step.reducer.combine(*sides)
    return [(component, merged[part]) for part, component in kept.items()]
