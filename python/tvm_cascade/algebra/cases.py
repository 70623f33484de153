"""Cases: an element is a disjoint union of terms, each under a guard, and ⊕ of a union is ⊕ of ⊕s.

| a guard reads               | as in                  | where it holds            | ⊕ of its term                     |
|-----------------------------|------------------------|---------------------------|-----------------------------------|
| results alone               | where(d > u, f, g)     | everywhere or nowhere     | a case of the finish (`derive`)   |
| elements alone              | keep·f                 | wherever the state stands | a masked lift (`Derivation.over`) |
| an element, its extremum    | where(x ≤ max x, f, g) | everywhere or nowhere     | f, or g (`Derivation.decided`)    |
| an element, its extremum    | where(x = max x, f, g) | until the extremum moves  | started anew (`comparisons`)      |
| both otherwise              | where(x > d, f, g)     | beyond a threshold        | at an end (`comparisons`)         |

That a logarithm or a root is real is a guard too: elsewhere the term is NaN, and so is the sum (`quotients`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sympy as sp


@dataclass(frozen=True)
class Case:
    """A term, and the guard under which it is the element; the guards before it in a union do not hold there.

    Attributes
    ----------
    guard : a condition; true of the last case.
    """

    guard: sp.Basic
    term: sp.Expr


@dataclass(frozen=True)
class Union:
    """An element by its cases.

    Attributes
    ----------
    choice : the one selection in which they differ.
    """

    choice: sp.Piecewise
    cases: tuple[Case, ...]

    @property
    def guard(self) -> sp.Basic:
        """That of the first case."""
        return self.cases[0].guard

    @property
    def terms(self) -> tuple[sp.Expr, ...]:
        return tuple(case.term for case in self.cases)


def by_results(element: sp.Expr, elements: Sequence[sp.Symbol]) -> Union | None:
    """The cases of an element that varies in them, by the largest selection whose guards do not; None without one."""
    return _by_the_largest(element, elements, lambda guards: not any(guard.has(*elements) for guard in guards))


def by_both(element: sp.Expr, elements: Sequence[sp.Symbol], results: Sequence[sp.Symbol]) -> Union | None:
    """The cases by the largest selection with a guard on both results and positions; None without one."""
    return _by_the_largest(element, elements, lambda guards: any(_reads_both(g, elements, results) for g in guards))


def _reads_both(guard: sp.Basic, elements: Sequence[sp.Symbol], results: Sequence[sp.Symbol]) -> bool:
    return bool(results and guard.has(*elements) and guard.has(*results))


def truth_of(element: sp.Expr, elements: Sequence[sp.Symbol]) -> sp.Basic | None:
    """The condition under which an element is 1; None where it may be other than 0 and 1, or does not vary."""
    return _truth(element) if isinstance(element, sp.Piecewise) and element.has(*elements) else None


def _truth(element: sp.Expr) -> sp.Basic | None:
    if not isinstance(element, sp.Piecewise):
        return sp.true if element == 1 else sp.false if element == 0 else None
    holds: sp.Basic | None = sp.false
    for case in reversed(_union(element, element).cases):
        its = _truth(case.term)
        holds = None if its is None or holds is None else sp.ITE(case.guard, its, holds)
    return holds


def joined(element: sp.Expr) -> sp.Expr:
    """The element with c ? (p ? f : g) : (q ? f : g) as (c ? p : q) ? f : g: what a choice by c gives is compared."""

    def join(*cases: tuple[sp.Expr, sp.Basic]) -> sp.Expr:
        inner = [term.args if isinstance(term, sp.Piecewise) else ((term, sp.true),) for term, _ in cases]
        if len({(choice[0][0], choice[1:]) for choice in inner}) > 1 or inner[0][0][1] == sp.true:
            return sp.Piecewise(*cases)
        guard = sp.false
        for choice, (_, case) in zip(reversed(inner), reversed(cases), strict=True):
            guard = sp.ITE(case, choice[0][1], guard)
        return sp.Piecewise((inner[0][0][0], guard), *inner[0][1:])

    return element.replace(sp.Piecewise, join)


def _by_the_largest(
    element: sp.Expr, elements: Sequence[sp.Symbol], told: Callable[[list[sp.Basic]], bool]
) -> Union | None:
    varying = [choice for choice in element.atoms(sp.Piecewise) if elements and choice.has(*elements)]
    found = [choice for choice in varying if told([guard for _, guard in choice.args])]
    return _union(element, max(found, key=sp.count_ops)) if found else None


def _union(element: sp.Expr, choice: sp.Piecewise) -> Union:
    return Union(choice, tuple(Case(guard, element.xreplace({choice: term})) for term, guard in choice.args))
