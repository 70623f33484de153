"""A fuzz case: one random cascade as data, from one seed."""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from tvm_cascade.algebra.cascade import TRUTH, Cascade, Reduction
from tvm_cascade.algebra.reducer import REDUCERS
from tvm_cascade.testing.fuzz.term import Term, to_algebra


@dataclass(frozen=True)
class Input:
    """An array that cascades read.

    Attributes
    ----------
    axes : what indexes it, in order: "row" (all row axes), "axis" (the cascade axis), "free".
    sort : "real", "positive" or "truth".
    """

    name: str
    axes: tuple[str, ...]
    sort: str

    @property
    def symbol(self) -> sp.Symbol:
        """Its value at a position, in the algebra."""
        facts = {"real": {"real": True}, "positive": {"real": True, "positive": True}, "truth": TRUTH}[self.sort]
        return sp.Symbol(self.name, **facts)


INPUTS: dict[str, Input] = {
    given.name: given
    for given in (
        Input("x", ("row", "axis"), "real"),
        Input("y", ("row", "axis"), "real"),
        Input("w", ("axis",), "real"),
        Input("v", ("axis", "free"), "real"),
        Input("r", ("row", "axis"), "positive"),
        Input("g", ("axis",), "positive"),
        Input("keep", ("row", "axis"), "truth"),
        Input("live", ("axis",), "truth"),
        Input("temperature", ("row",), "positive"),
    )
}


@dataclass(frozen=True)
class Step:
    """One reduction: result k = ⊕ of the element.

    Attributes
    ----------
    reducer : a key of `REDUCERS`.
    element : in inputs and results before k.
    sort : of the result.
    """

    reducer: str
    element: Term
    sort: str


@dataclass(frozen=True)
class Case:
    """What a seed stands for.

    Attributes
    ----------
    steps : the reductions, in dependency order.
    rows, length, free : extents of the program's axes.
    dtype : of the arrays and results.
    tile, segments, lanes : options of the pass; None for its own choice.
    asked : which results are outputs.
    staged : positions of steps whose costliest part is a stage of its own in the program.
    inputs : the name of the data, a key of `evaluate.inputs.INPUTS`.
    """

    seed: int
    steps: tuple[Step, ...]
    rows: tuple[int, ...]
    length: int
    free: int
    dtype: str
    tile: int | None
    segments: int
    lanes: int | None
    asked: tuple[bool, ...]
    staged: tuple[int, ...]
    inputs: str

    @property
    def used(self) -> tuple[Input, ...]:
        """The inputs that some element reads."""
        names = {name for step in self.steps for name in step.element.leaves("input")}
        return tuple(given for name, given in INPUTS.items() if name in names)

    def cascade(self) -> Cascade:
        """The case in the algebra."""
        results = [sp.Symbol(f"d{k}", real=True) for k in range(len(self.steps))]

        def leaf(term: Term) -> sp.Expr:
            return results[int(term.leaf)] if term.op == "result" else INPUTS[str(term.leaf)].symbol

        reductions = [
            Reduction(result, REDUCERS[step.reducer], sp.sympify(to_algebra(step.element, leaf)))
            for result, step in zip(results, self.steps, strict=True)
        ]
        return Cascade(reductions, [given.symbol for given in self.used if "axis" in given.axes])

    def __str__(self) -> str:
        lines = [f"seed {self.seed}"]
        lines += [f"  d{k} = {step.reducer} {step.element}" for k, step in enumerate(self.steps)]
        asked = ", ".join(f"d{k}" for k, wanted in enumerate(self.asked) if wanted)
        lines += [
            f"  {self.dtype}, rows {self.rows}, length {self.length}, free {self.free}, data: {self.inputs}",
            f"  tile {self.tile}, segments {self.segments}, lanes {self.lanes}; outputs {asked}; stages {self.staged}",
        ]
        return "\n".join(lines)
