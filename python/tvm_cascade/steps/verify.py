"""The verifier of step programs: reads are defined, references move once, components are combined once.

Checked wherever a program was transformed; a program that fails is a defect of this package.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import sympy as sp

from tvm_cascade.algebra.cascade import COUNT, LENGTH
from tvm_cascade.algebra.reducer import EXTREMES
from tvm_cascade.errors import FoldError
from tvm_cascade.steps.program import Combine, Element, Move, OverPositions, Reduce, Scale, Shift, Step, StepProgram
from tvm_cascade.symbolic.separate import strip_rounding

_HINT = "this is a defect of tvm-cascade; please report the program"


def verify(program: StepProgram, inputs: Collection[sp.Symbol]) -> None:
    """Checks a step program.

    Parameters
    ----------
    inputs : atoms and parameters.

    Raises
    ------
    FoldError
        With the step that is not well formed: it reads what is not defined, or not yet; a reference moves twice, or
        after what is relative to it was computed; a component is combined twice, never, or without its shift.
    """
    _Verifier(program, inputs).run()


class _Verifier:
    """What is defined so far, by what may read it.

    Attributes
    ----------
    values : what lifts read: inputs, elements, references that have moved.
    combined : components.
    moves : what shifts read beside components: references, where they were and where they are, and scales.
    """

    def __init__(self, program: StepProgram, inputs: Collection[sp.Symbol]) -> None:
        self.program = program
        self.inputs = {*inputs, COUNT, LENGTH, *EXTREMES}
        self.components = set(program.shifts)
        self.references = {move.reference for move in program.moves}
        self.values: set[sp.Symbol] = set(self.inputs)
        self.moves: set[sp.Symbol] = set(self.inputs)
        self.combined: set[sp.Symbol] = set()
        self.shared: dict[sp.Symbol, bool] = {}

    def run(self) -> None:
        """Every step, then the results."""
        for step in self.program.steps:
            self._step(step)
        missing = self.components - self.combined
        self._require(
            not missing, "every component combined", f"no combine of {_names(missing)}", "the end of the steps"
        )
        known = self.inputs | self.combined | self.references
        for finish in self.program.finish:
            self._reads(finish, [finish.expression], known)
            known = known | {finish.result}

    def _step(self, step: Step) -> None:
        if isinstance(step, OverPositions):
            self._positions(step)
        elif isinstance(step, Move):
            self._require(
                step.reference not in self.values, "one move a reference", f"another of {step.reference}", step
            )
            self._reads(step, [step.value], self.inputs | self.combined | (self.references & self.values))
            self.values.add(step.reference)
            self.moves |= {step.reference, step.moved, step.step}
        elif isinstance(step, Scale):
            self._reads(step, [step.expression], self.moves)
            self.moves.add(step.symbol)
        elif isinstance(step, Shift):
            self._require(step.component in self.shared, "a share before its shift", "none", step)
            self._reads(step, [step.expression], self.moves | self.components)
            self.shared[step.component] = True
        else:
            self._combine(step)

    def _positions(self, step: OverPositions) -> None:
        self._reads(step, step.lifts, self.values)
        if isinstance(step, Element):
            self.values.add(step.symbol)
        elif isinstance(step, Reduce):
            self.shared[step.component] = False
        else:
            self._once(step, step.components)

    def _combine(self, step: Combine) -> None:
        unshifted = [c for c in step.components if not self.shared.get(c, False)]
        self._require(not unshifted, "a share and a shift before they are combined", _names(unshifted), step)
        self._once(step, step.components)

    def _once(self, step: Step, components: Collection[sp.Symbol]) -> None:
        again = self.combined & set(components)
        self._require(not again, "one combine a component", f"another of {_names(again)}", step)
        self.combined |= set(components)

    def _reads(self, step: object, expressions: Iterable[sp.Expr], known: Collection[sp.Symbol]) -> None:
        read = set().union(*(strip_rounding(e).free_symbols for e in expressions))
        self._require(read <= set(known), "only what is defined before is read", _names(read - set(known)), step)

    def _require(self, holds: bool, expected: str, found: str, step: object) -> None:
        if not holds:
            raise FoldError(expected, found, str(step), _HINT)


def _names(symbols: Iterable[sp.Symbol]) -> str:
    return ", ".join(sorted(map(str, symbols)))
