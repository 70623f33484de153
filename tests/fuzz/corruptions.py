"""Folds with one thing wrong: a table of corruptions, functions from a fold to folds, and of what catches them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import sympy as sp

from tvm_cascade.algebra.fold import Component, Fold
from tvm_cascade.algebra.policy import Policy

Corruption = Callable[[Fold], Iterator[Fold]]


def scalars(fold: Fold) -> list[Component]:
    """Components of their own; those of a tuple stand and fall together."""
    return [c for c in fold.components if c.reducer.whole is None]


def serving(fold: Fold) -> list[Component]:
    """Components that results are made of; references alone are free to stand anywhere."""
    needed = set().union(*(e.free_symbols for e in fold.finish.values()))
    for component in reversed(fold.components):
        if component.symbol in needed:
            needed |= component.shift.free_symbols
    return [c for c in scalars(fold) if c.symbol in needed]


def with_component(fold: Fold, old: Component, **fields: object) -> Fold:
    """The fold with fields of one component replaced."""
    new = dataclasses.replace(old, **fields)  # type: ignore[arg-type]
    return dataclasses.replace(fold, steps=tuple(new if step is old else step for step in fold.steps))


def with_finish(fold: Fold, result: sp.Symbol, expression: sp.Expr) -> Fold:
    return dataclasses.replace(fold, finish={**fold.finish, result: expression})


def last_term(expression: sp.Expr, factor: int) -> sp.Expr:
    """The expression with its last term multiplied."""
    *others, last = sp.Add.make_args(expression)
    return sp.Add(*others, factor * last)


def lifts(factor: int) -> Corruption:
    def corrupt(fold: Fold) -> Iterator[Fold]:
        for c in serving(fold):
            yield with_component(fold, c, lift=last_term(c.lift, factor))

    return corrupt


def shifts(factor: int) -> Corruption:
    def corrupt(fold: Fold) -> Iterator[Fold]:
        for c in serving(fold):
            if c.moves:
                yield with_component(fold, c, shift=last_term(c.shift, factor))

    return corrupt


def finishes(factor: int) -> Corruption:
    def corrupt(fold: Fold) -> Iterator[Fold]:
        for result, expression in fold.finish.items():
            yield with_finish(fold, result, last_term(expression, factor))

    return corrupt


def unshifted(fold: Fold) -> Iterator[Fold]:
    for c in serving(fold):
        if c.moves:
            yield with_component(fold, c, shift=c.symbol)


def swapped_components(fold: Fold) -> Iterator[Fold]:
    """Two components of one result trade places in everything that reads them."""
    for a, b in zip(scalars(fold), scalars(fold)[1:], strict=False):
        trade = {a.symbol: b.symbol, b.symbol: a.symbol}
        finish = {result: e.xreplace(trade) for result, e in fold.finish.items()}
        if a.owner == b.owner and finish != fold.finish:
            yield dataclasses.replace(fold, finish=finish)


def reducers(**changes: object) -> Corruption:
    def corrupt(fold: Fold) -> Iterator[Fold]:
        for c in scalars(fold):
            yield with_component(fold, c, reducer=dataclasses.replace(c.reducer, **changes))  # type: ignore[arg-type]

    return corrupt


def wrong_identity(fold: Fold) -> Iterator[Fold]:
    """An identity that is too high for max, too low for min, and one off for sums and products."""
    for c in scalars(fold):
        wrong = 10**6 if c.reducer.ordered and c.reducer.identity < 0 else -(10**6) if c.reducer.ordered else 7
        identity = sp.Integer(
            wrong if c.reducer.name not in ("and", "or") else wrong * (-1) ** (c.reducer.name == "and")
        )
        yield with_component(fold, c, reducer=dataclasses.replace(c.reducer, identity=identity))


def references_elsewhere(fold: Fold) -> Iterator[Fold]:
    """A reference that must end at its quantity, and ends beside it."""
    for r in fold.references:
        ends_there = not (r.guarded or r.auxiliary) and r.policy is not Policy.DEFERRED
        shifted = any(c.shift.has(r.moved, r.step) for c in serving(fold))
        if ends_there and shifted and len(fold.references) == 1:
            moved = dataclasses.replace(r, value=r.value + 1)
            yield dataclasses.replace(fold, steps=tuple(moved if step is r else step for step in fold.steps))


def _first(a: sp.Expr, b: sp.Expr) -> sp.Expr:
    return 2 * a + b


def _mean(a: sp.Expr, b: sp.Expr) -> sp.Expr:
    return (a + b) / 2


SHIFT, ANYWHERE = "shift between references", "finish from any free reference"

CORRUPTIONS: dict[str, tuple[Corruption, set[str]]] = {
    "coefficient of a lift": (lifts(2), {SHIFT, ANYWHERE}),
    "sign of a lift": (lifts(-1), {SHIFT, ANYWHERE}),
    "dropped term of a lift": (lifts(0), {SHIFT, ANYWHERE}),
    "coefficient of a shift": (shifts(2), {SHIFT}),
    "sign of a shift": (shifts(-1), {SHIFT}),
    "dropped term of a merge": (shifts(0), {SHIFT}),
    "no shift": (unshifted, {SHIFT}),
    "coefficient of a finish": (finishes(2), {ANYWHERE}),
    "sign of a finish": (finishes(-1), {ANYWHERE}),
    "dropped term of a finish": (finishes(0), {ANYWHERE}),
    "swapped components": (swapped_components, {ANYWHERE}),
    "reference that ends elsewhere": (references_elsewhere, {"finish over any split = definition"}),
    "wrong identity": (wrong_identity, {"empty is the identity"}),
    "merge that prefers one side": (reducers(combine=_first), {"merge commutative"}),
    "merge that depends on the grouping": (reducers(combine=_mean), {"merge associative"}),
}
"""Corruptions by name, and the obligations each of which catches some of what they make."""
