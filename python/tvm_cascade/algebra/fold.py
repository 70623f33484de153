"""A fold: lift of an element, merge of two states in any grouping, and finish, as data.

A state holds components T and references c. `steps` lists them in the order in which they are computed:

    lift:    T = lift(x, c)                                    one element, at the reference
    merge:   c′ = value(partial T, n);  T′ = shift(T₁, c₁ → c′) ⊕ shift(T₂, c₂ → c′)
    finish:  d = finish(T, c, earlier d)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, wraps
from typing import TypeVar

import sympy as sp

from tvm_cascade.algebra.cascade import COUNT, Cascade
from tvm_cascade.algebra.policy import Move, Policy, Range
from tvm_cascade.algebra.reducer import Reducer
from tvm_cascade.symbolic.printing import Row, aligned, formula


@dataclass(frozen=True)
class Component:
    """One scalar of the state.

    Attributes
    ----------
    symbol : T.
    owner : the result whose reduction it serves.
    reducer : how contributions combine.
    lift : the contribution of one element, in element symbols and references.
    shift : T after its references have moved, in the components, c, c′ and c′ − c of the references, and the count n.
    parts : the components of its tuple by part, itself among them; none where it combines by itself.
    """

    symbol: sp.Symbol
    owner: sp.Symbol
    reducer: Reducer
    lift: sp.Expr
    shift: sp.Expr
    parts: tuple[sp.Symbol, ...] = ()

    @property
    def read_in_merge(self) -> frozenset[sp.Symbol]:
        """The components that its merge depends on."""
        whole = self.reducer.whole
        return frozenset({self.symbol} if whole is None else {self.parts[k] for k in whole.reads(self.reducer.part)})

    @property
    def moves(self) -> bool:
        """Whether moving a reference changes it."""
        return self.shift != self.symbol


@dataclass(frozen=True)
class Reference:
    """The value that components are relative to.

    Attributes
    ----------
    symbol, moved, step : c, c′ after a move, and c′ − c.
    policy : the rule by which it moves.
    tracks : the quantity it stands in for, in results; the part of elements whose mean it is; y/x for a slope.
    value : where it moves to, in components of the merged state, references, the count n and the length N.
    guarded : `value` can be singular on partial results (or zero, for a scale); the reference then stays put.
    scale : it stands in for a factor, so it must not be zero; it starts at 1.
    move : where it goes; unless that is exact, it need not end at `tracks`.
    auxiliary : it keeps the lifts bounded by a component of its own, and need not end at `tracks`.
    range : why lifts keep their digits there.
    """

    symbol: sp.Symbol
    moved: sp.Symbol
    step: sp.Symbol
    policy: Policy
    tracks: sp.Expr
    value: sp.Expr
    guarded: bool = False
    auxiliary: bool = False
    scale: bool = False
    move: Move = Move.EXACT
    range: Range = Range.PREDICTED

    @property
    def free(self) -> bool:
        """Whether it may end away from `tracks`, so that finish has to bring the state there."""
        return self.guarded or self.auxiliary or self.move is not Move.EXACT


@dataclass(frozen=True)
class Fold:
    """What a cascade becomes.

    Attributes
    ----------
    cascade : what it was derived from.
    steps : components and references in the order of computation.
    finish : for each result, its value in components, references and earlier results.
    deferred : for each result, the quantities whose factor is applied only in `finish`.
    """

    cascade: Cascade
    steps: tuple[Component | Reference, ...]
    finish: dict[sp.Symbol, sp.Expr]
    deferred: dict[sp.Symbol, tuple[sp.Expr, ...]] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.cascade, self.steps, *self.finish.items(), *self.deferred.items()))

    @property
    def units(self) -> list[Reference | tuple[Component, ...]]:
        """The steps, components of one tuple together; they are neighbours."""
        found: list[Reference | tuple[Component, ...]] = []
        for step in self.steps:
            last = found[-1] if found else None
            if isinstance(step, Reference):
                found.append(step)
            elif isinstance(last, tuple) and step.parts and last[0].parts == step.parts:
                found[-1] = (*last, step)
            else:
                found.append((step,))
        return found

    @property
    def components(self) -> tuple[Component, ...]:
        return tuple(step for step in self.steps if isinstance(step, Component))

    @property
    def references(self) -> tuple[Reference, ...]:
        return tuple(step for step in self.steps if isinstance(step, Reference))

    def restricted_to(self, results: Iterable[sp.Symbol]) -> Fold:
        """The fold of some results alone: steps that none of them needs are dropped."""
        finish: dict[sp.Symbol, sp.Expr] = {}
        pending = list(results)
        while pending:
            result = pending.pop()
            if result not in finish:
                finish[result] = self.finish[result]
                pending += [s for s in self.finish[result].free_symbols if s in self.finish]
        needed = set().union(*(f.free_symbols for f in finish.values()))
        while True:
            read: set[sp.Symbol] = set()
            for step in self.steps:
                if isinstance(step, Component) and step.symbol in needed:
                    read |= step.lift.free_symbols | step.shift.free_symbols | step.read_in_merge
                if isinstance(step, Reference) and {step.symbol, step.moved, step.step} & needed:
                    read |= step.value.free_symbols | {step.symbol}
            if read <= needed:
                break
            needed |= read
        steps = tuple(
            s for s in self.steps if s.symbol in needed or (isinstance(s, Reference) and {s.moved, s.step} & needed)
        )
        ordered = {result: self.finish[result] for result in self.finish if result in finish}
        return Fold(self.cascade, steps, ordered, {r: d for r, d in self.deferred.items() if r in finish})

    def formulas(self) -> list[Row]:
        """(section, left side, right side) rows: lift, reference, merge and finish, in order of computation."""
        rows: list[Row] = []
        rows += [("lift", c.symbol, c.lift) for c in self.components]
        rows += [(f"reference ({r.policy})", r.moved, r.value) for r in self.references]
        for unit in self.units:
            if isinstance(unit, tuple):
                rows += [("merge", left, right) for left, right in _merged(self, unit)]
        rows += [("finish", result, expression) for result, expression in self.finish.items()]
        return rows

    def __repr__(self) -> str:
        results, state = (", ".join(map(str, names)) for names in (self.finish, (step.symbol for step in self.steps)))
        return f"<Fold of {results}: state {state}; print it for its formulas>"

    def __str__(self) -> str:
        rows = self.formulas()
        width = max(len(section) for section, *_ in rows)
        return "\n".join(f"{section:<{width}}  {left} = {formula(right)}" for section, left, right in rows)

    def latex(self) -> str:
        """The formulas as one LaTeX `aligned` block."""
        return aligned(self.formulas())

    def _repr_latex_(self) -> str:
        return f"$${self.latex()}$$"


RECENT = 256
"""Folds of which facts are remembered: models ask for the same in every layer, plans in every skeleton they try."""

Meaning = Mapping[sp.Symbol, sp.Expr]
"""Definitions of elements in terms of data, as far as they have one."""

Fact = TypeVar("Fact")


def fact(find: Callable[[Fold, Meaning], Fact]) -> Callable[..., Fact]:
    """What a function finds of a fold and the meaning of its elements, found once for each."""

    @lru_cache(maxsize=RECENT)
    def known(fold: Fold, meaning: tuple[tuple[sp.Symbol, sp.Expr], ...]) -> Fact:
        return find(fold, dict(meaning))

    @wraps(find)
    def asked(fold: Fold, meaning: Mapping[sp.Symbol, sp.Expr] = {}) -> Fact:
        return known(fold, tuple(meaning.items()))

    return asked


def _of_side(expression: sp.Expr, fold: Fold, side: int) -> sp.Expr:
    """The expression with the state's symbols marked as those of the first or the second state."""
    names = [c.symbol for c in fold.components] + [s for r in fold.references for s in (r.symbol, r.step)] + [COUNT]
    return expression.xreplace({s: sp.Symbol(f"{s}_{side}", **s.assumptions0) for s in names})


def _merged(fold: Fold, unit: tuple[Component, ...]) -> list[tuple[sp.Expr, sp.Expr]]:
    """(component, merged) of a unit; a selection is shown by its name."""
    whole = unit[0].reducer.whole
    if whole is None:
        first, second = (_of_side(unit[0].shift, fold, side) for side in (1, 2))
        return [(unit[0].symbol, unit[0].reducer.combine(first, second))]
    sides = [[_of_side(symbol, fold, side) for symbol in unit[0].parts] for side in (1, 2)]
    if whole.selection is not None:
        return [(sp.Tuple(*(c.symbol for c in unit)), sp.Function(whole.name)(*(sp.Tuple(*side) for side in sides)))]
    merged = whole.combine(*sides)
    return [(component.symbol, merged[component.reducer.part]) for component in unit]
