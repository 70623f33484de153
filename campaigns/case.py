"""A fuzz case: one random cascade as data, from one seed."""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from campaigns.term import Term, to_algebra
from tvm_cascade.algebra.cascade import POSITION, Cascade, Reduction
from tvm_cascade.algebra.reducer import HIGHEST, LOWEST, REDUCERS, Selection
from tvm_cascade.algebra.selection_law import bottom, selecting
from tvm_cascade.symbolic.masks import TRUTH


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
    reducer : a key of `REDUCERS`; of a selection, whether the largest or the smallest keys are selected.
    element : in inputs and results before k; the key of a selection, whose best one is the result.
    sort : of the result.
    ranks : of a selection, how many of the best are kept with their positions; 0 of every other reduction.
    """

    reducer: str
    element: Term
    sort: str
    ranks: int = 0

    @property
    def name(self) -> str:
        """The reducer's, or that of the selection."""
        return f"{SELECTIONS[self.reducer]}{self.ranks}" if self.ranks else self.reducer


SELECTIONS = {"max": "top", "min": "bottom"}


def _plain(result: sp.Symbol, step: Step, element: sp.Expr) -> Reduction:
    return Reduction(result, REDUCERS[step.reducer], element)


def _selection(result: sp.Symbol, step: Step, key: sp.Expr) -> list[Reduction]:
    """The parts of a selection: the first is the best key."""
    absent = (LOWEST if step.reducer == "max" else HIGHEST, sp.Integer(-1)) * step.ranks
    chosen = Selection(step.ranks, step.reducer == "max", True, 0, absent)
    elements = [key, POSITION, *bottom(chosen)[2:]]
    names = [result, *(sp.Symbol(f"{result}_part{k}", real=True) for k in range(1, len(elements)))]
    whole = selecting(chosen)
    return [Reduction(name, whole.of(k), e) for k, (name, e) in enumerate(zip(names, elements, strict=True))]


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
    patterned : the inputs that have those data; others are normal.
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
    patterned: tuple[str, ...] = ("x",)

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

        reductions = list[Reduction]()
        for result, step in zip(results, self.steps, strict=True):
            element = sp.sympify(to_algebra(step.element, leaf))
            reductions += _selection(result, step, element) if step.ranks else [_plain(result, step, element)]
        elements = [given.symbol for given in self.used if "axis" in given.axes]
        return Cascade(reductions, [*elements, POSITION] if any(step.ranks for step in self.steps) else elements)

    def __str__(self) -> str:
        lines = [f"seed {self.seed}"]
        lines += [f"  d{k} = {step.name} {step.element}" for k, step in enumerate(self.steps)]
        asked = ", ".join(f"d{k}" for k, wanted in enumerate(self.asked) if wanted)
        lines += [
            f"  {self.dtype}, rows {self.rows}, length {self.length}, free {self.free}, data: {self.inputs}",
            f"  tile {self.tile}, segments {self.segments}, lanes {self.lanes}; outputs {asked}; stages {self.staged}",
        ]
        return "\n".join(lines)
