"""The step program: a fold as straight-line code that every computation with it interprets.

    element   p = exp(x - c_m)               a value per position
    reduce    t_0: sum over p                the positions' own share of a component
    tuple     (k_0, i_0): argmax over (x, l)  the same of a tuple, position after position
    move      c_m to m_0                     a reference, by the rule of `steps.move`
    scale     scale_c_m_0 = exp(-Δc_m)       a factor of shifts, in references alone
    shift     t_0: t_0*scale_c_m_0           a component of a state, brought to the references moved so far
    combine   t_0                            ⊕ of the shifted components and of the positions' share
    finish    t = t_0                        a result of the whole axis

One list serves both uses. *Folding in* runs every step, over one state and some positions. *Merging* runs it over
several states: there are no positions, so elements, reductions and lifts of tuples drop out. Shifts read components as
they were before the first step; moves, scales and finishes read them combined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import sympy as sp

from tvm_cascade.algebra.fold import Component, Fold, Reference
from tvm_cascade.algebra.policy import Move as Rule
from tvm_cascade.algebra.reducer import Reducer, TupleReducer
from tvm_cascade.symbolic.printing import formula
from tvm_cascade.symbolic.work import terms_of_exponentials


@dataclass(frozen=True)
class Element:
    """An element: a value per position that lifts share.

    Attributes
    ----------
    symbol : what stands for it in later lifts.
    expression : in atoms, references that have moved, and earlier elements.
    """

    symbol: sp.Symbol
    expression: sp.Expr

    @property
    def lifts(self) -> tuple[sp.Expr, ...]:
        """The expressions that are evaluated at every position."""
        return (self.expression,)

    def __str__(self) -> str:
        return f"element   {self.symbol} = {formula(self.expression)}"


@dataclass(frozen=True)
class Reduce:
    """A reduction: ⊕ of a component's lift over the positions, at the new references."""

    component: sp.Symbol
    reducer: Reducer
    lift: sp.Expr

    @property
    def components(self) -> tuple[sp.Symbol, ...]:
        """The one that it is a share of."""
        return (self.component,)

    @property
    def lifts(self) -> tuple[sp.Expr, ...]:
        """The expressions that are evaluated at every position."""
        return (self.lift,)

    def __str__(self) -> str:
        return f"reduce    {self.component}: {self.reducer} over {formula(self.lift)}"


@dataclass(frozen=True)
class Tuple:
    """A tuple's components: state ∘ lifts, position after position; or state ∘ state. Tuples have no shift.

    Attributes
    ----------
    components : those that the fold keeps.
    parts : which part of the tuple each of them is.
    reducer : ∘.
    lifts : of one position, by component.
    """

    components: tuple[sp.Symbol, ...]
    parts: tuple[int, ...]
    reducer: TupleReducer
    lifts: tuple[sp.Expr, ...]

    def __str__(self) -> str:
        names, lifts = ", ".join(map(str, self.components)), ", ".join(map(formula, self.lifts))
        return f"tuple     ({names}): {self.reducer.name} over ({lifts})"


@dataclass(frozen=True)
class Move:
    """The move of a reference; `steps.move` has the rule.

    Attributes
    ----------
    reference, moved, step : c, c′ and c′ − c.
    value : where it moves to unless its rule keeps it, in combined components, earlier references, n and N.
    guarded : `value` may be unusable on part of the positions.
    scale : it stands in for a factor: it starts at 1, not at 0, and is never 0.
    rule : when it moves.
    decay : the smallest k where every term of a shift that reads the step has a factor exp(±k·step); None otherwise.
    """

    reference: sp.Symbol
    moved: sp.Symbol
    step: sp.Symbol
    value: sp.Expr
    guarded: bool
    scale: bool
    rule: Rule
    decay: float | None

    @property
    def start(self) -> int:
        """The reference of an empty state."""
        return int(self.scale)

    def __str__(self) -> str:
        notes = [str(self.rule)] * (self.rule is not Rule.EXACT) + ["guarded"] * self.guarded + ["scale"] * self.scale
        return f"move      {self.reference} to {formula(self.value)}" + (f" ({', '.join(notes)})" if notes else "")


@dataclass(frozen=True)
class Scale:
    """A factor of shifts that depends on references alone: exp(c − c′), computed once for all components.

    Attributes
    ----------
    expression : in steps and values of references that have moved, the count before the positions, and parameters.
    reference : after whose move it is computed.
    """

    symbol: sp.Symbol
    expression: sp.Expr
    reference: sp.Symbol

    def __str__(self) -> str:
        return f"scale     {self.symbol} = {formula(self.expression)}"


@dataclass(frozen=True)
class Shift:
    """The rescaling of a component to the new references; of an empty state, the identity."""

    component: sp.Symbol
    expression: sp.Expr

    @property
    def moves(self) -> bool:
        """Whether it changes the component."""
        return self.expression != self.component

    def __str__(self) -> str:
        return f"shift     {self.component}: {formula(self.expression)}"


@dataclass(frozen=True)
class Combine:
    """component = ⊕ of the rescaled value and the positions' partial value; components that read each other at once."""

    components: tuple[sp.Symbol, ...]
    reducers: tuple[Reducer, ...]

    @property
    def combined(self) -> tuple[tuple[sp.Symbol, Reducer], ...]:
        return tuple(zip(self.components, self.reducers, strict=True))

    def __str__(self) -> str:
        return f"combine   {', '.join(map(str, self.components))}"


@dataclass(frozen=True)
class Finish:
    """A result, in components, references and earlier results."""

    result: sp.Symbol
    expression: sp.Expr

    def __str__(self) -> str:
        return f"finish    {self.result} = {formula(self.expression)}"


OverPositions = Element | Reduce | Tuple
"""Steps that compute something at every position."""

Step = OverPositions | Move | Scale | Shift | Combine


@dataclass(frozen=True)
class StepProgram:
    """The steps of a fold, and its results.

    Attributes
    ----------
    steps : in order of execution.
    finish : in order; a result may read those before it.
    remembered : components and references whose value before the first step is read after it has changed.
    """

    steps: tuple[Step, ...]
    finish: tuple[Finish, ...]
    remembered: frozenset[sp.Symbol] = field(default=frozenset())

    @cached_property
    def moves(self) -> tuple[Move, ...]:
        """The moves of references, in order."""
        return tuple(step for step in self.steps if isinstance(step, Move))

    @cached_property
    def shifts(self) -> dict[sp.Symbol, sp.Expr]:
        """Every component's shift; a part of a tuple stays as it is."""
        shifts: dict[sp.Symbol, sp.Expr] = {}
        for step in self.steps:
            if isinstance(step, Shift):
                shifts[step.component] = step.expression
            elif isinstance(step, Tuple):
                shifts |= {component: component for component in step.components}
        return shifts

    @cached_property
    def merge(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if not isinstance(step, (Element, Reduce)))

    def __str__(self) -> str:
        return "\n".join(str(step) for step in (*self.steps, *self.finish))


def program_of(
    fold: Fold, shared: Sequence[Element] = (), lifts: Mapping[sp.Symbol, sp.Expr] | None = None
) -> StepProgram:
    """The step program of a fold.

    Parameters
    ----------
    shared : values per position that several lifts read, each after those that it reads.
    lifts : the lifts in terms of them, by component; None for the fold's own.
    """
    (shifts, scales), decay = _hoisted(fold), _decays(fold)
    placed = _Placed(shared, lifts or {c.symbol: c.lift for c in fold.components})
    steps: list[Step] = []
    for run in _runs(fold.units):
        if isinstance(run, Reference):
            steps.append(_move(run, decay.get(run.symbol)))
            steps += [scale for scale in scales if scale.reference == run.symbol]
            continue
        components = [component for unit in run for component in unit if not component.parts]
        for component in components:
            steps += placed.read_by(placed.lifts[component.symbol])
            steps.append(Reduce(component.symbol, component.reducer, placed.lifts[component.symbol]))
        for unit in (unit for unit in run if unit[0].parts):
            for component in unit:
                steps += placed.read_by(placed.lifts[component.symbol])
            steps.append(_tuple(unit, placed.lifts))
        for together in update_order(components, shifts):
            steps += [Shift(c.symbol, shifts[c.symbol]) for c in together]
            steps.append(Combine(tuple(c.symbol for c in together), tuple(c.reducer for c in together)))
    finish = tuple(Finish(result, expression) for result, expression in fold.finish.items())
    return StepProgram(tuple(steps), finish, _remembered(fold, shifts, scales))


class _Placed:
    """Shared elements, each put before the first lift that reads it."""

    def __init__(self, shared: Sequence[Element], lifts: Mapping[sp.Symbol, sp.Expr]) -> None:
        self.waiting, self.lifts = list(shared), lifts

    def read_by(self, expression: sp.Expr) -> Iterator[Element]:
        """The unplaced definitions that an expression reads, in dependency order."""
        for element in list(self.waiting):
            if element in self.waiting and element.symbol in expression.free_symbols:
                yield from self.read_by(element.expression)
                self.waiting.remove(element)
                yield element


def _runs(units: Iterable[Reference | tuple[Component, ...]]) -> list[Reference | list[tuple[Component, ...]]]:
    """References, and the units between them together."""
    runs: list[Reference | list[tuple[Component, ...]]] = []
    for unit in units:
        if isinstance(unit, Reference):
            runs.append(unit)
        elif runs and isinstance(runs[-1], list):
            runs[-1].append(unit)
        else:
            runs.append([unit])
    return runs


def _move(reference: Reference, decay: float | None) -> Move:
    r = reference
    return Move(r.symbol, r.moved, r.step, r.value, r.guarded, r.scale, r.move, decay)


def _tuple(unit: tuple[Component, ...], lifts: Mapping[sp.Symbol, sp.Expr]) -> Tuple:
    reducer = unit[0].reducer.whole
    assert reducer is not None
    symbols = tuple(c.symbol for c in unit)
    return Tuple(symbols, tuple(c.reducer.part for c in unit), reducer, tuple(lifts[s] for s in symbols))


# The inputs of a shift besides references: scales, and values before the move.


def _hoisted(fold: Fold) -> tuple[dict[sp.Symbol, sp.Expr], list[Scale]]:
    """(the shift of each component, with factors in references alone taken out, and these in order of computation)."""
    shifts = {c.symbol: c.shift for c in fold.components}
    of_references = {s for r in fold.references for s in (r.symbol, r.moved, r.step)}
    scales: list[Scale] = []
    functions = {f for shift in shifts.values() for f in shift.atoms(sp.Function, sp.Pow) if _costly(f)}
    for function in sorted(functions, key=lambda f: (-sp.count_ops(f), str(f))):
        read = function.free_symbols & of_references
        components = function.free_symbols & {c.symbol for c in fold.components}
        homes = [r for r in fold.references if read & {r.symbol, r.moved, r.step}]
        if not read or components or not any(shift.has(function) for shift in shifts.values()):
            continue
        symbol = sp.Symbol(f"scale_{homes[-1].symbol}_{len(scales)}", real=True)
        scales.append(Scale(symbol, function, homes[-1].symbol))
        shifts = {key: shift.xreplace({function: symbol}) for key, shift in shifts.items()}
    return shifts, scales


def _decays(fold: Fold) -> dict[sp.Symbol, float]:
    """References whose step stands under an exponential in every term that reads it.

    Such a step may be cut off where its exponential is zero anyway: Δ²·exp(−Δ) is then 0, not inf·0.
    """
    decays: dict[sp.Symbol, float] = {}
    terms = [t for c in fold.components if c.moves for t in sp.Add.make_args(terms_of_exponentials(c.shift))]
    for reference in fold.references:
        rates = [_rate(term, reference.step) for term in terms if term.has(reference.step)]
        if rates and all(rate is not None for rate in rates):
            decays[reference.symbol] = min(float(rate) for rate in rates if rate is not None)
    return decays


def _rate(term: sp.Expr, step: sp.Symbol) -> sp.Expr | None:
    """|k| of a term's factor exp(k·step + …); None where it has none."""
    slopes = [sp.diff(f.args[0], step) for f in sp.Mul.make_args(term) if isinstance(f, sp.exp) and f.has(step)]
    return abs(slopes[0]) if len(slopes) == 1 and slopes[0].is_number and slopes[0] != 0 else None


def _costly(function: sp.Expr) -> bool:
    return not (isinstance(function, sp.Pow) and function.exp.is_Integer and function.exp > 0)


def _remembered(fold: Fold, shifts: dict[sp.Symbol, sp.Expr], scales: list[Scale]) -> frozenset[sp.Symbol]:
    """The components and references whose old value a shift reads after it has changed."""
    old = {r.symbol for r in fold.references}
    components = {c.symbol for c in fold.components}
    found = {s for key, shift in shifts.items() for s in shift.free_symbols & components if s != key}
    for expression in [*shifts.values(), *(scale.expression for scale in scales)]:
        found |= expression.free_symbols & old
    return frozenset(found)


def update_order(components: list[Component], shifts: dict[sp.Symbol, sp.Expr]) -> list[list[Component]]:
    """Components in update order: each after those whose old values it reads; cyclic ones together."""
    symbols = {c.symbol for c in components}
    reads = {c.symbol: (shifts[c.symbol].free_symbols & symbols) - {c.symbol} for c in components}
    remaining, order = list(components), []
    while remaining:
        ready = [c for c in remaining if not reads[c.symbol] & {r.symbol for r in remaining}]
        group = [ready[0]] if ready else [c for c in remaining if c.owner == remaining[0].owner]
        order.append(group)
        remaining = [c for c in remaining if c not in group]
    return order
