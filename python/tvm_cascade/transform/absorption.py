"""Absorbing states: when merging another element leaves a state unchanged.

An element is dead where a mask put constants for some of its symbols. Whether the state absorbs it can depend on the
state: max absorbs a value that is no greater than itself, a sum absorbs a term whose exponential is zero beside every
number. So the answer is a list of conditions on the state, all of which must hold; empty where every state absorbs it.

    max x, Σ exp(x − c)·v  at x = L   ->   max ≥ L;  exp(L − c) is zero
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import sympy as sp

from tvm_cascade.algebra.cascade import COUNT
from tvm_cascade.algebra.fold import Component, Fold
from tvm_cascade.algebra.reducer import MAX, MIN, SUM
from tvm_cascade.symbolic.functions import Round


class Relation(Enum):
    """The relation of `left` and `right` under which an element is absorbed."""

    AT_LEAST = "left ≥ right"
    AT_MOST = "left ≤ right"
    VANISHES = "exp(left) is zero beside any number; there is no right"


@dataclass(frozen=True)
class Absorbing:
    """A condition on a state, in components, references and parameters."""

    relation: Relation
    left: sp.Expr
    right: sp.Expr = sp.S.Zero


def absorbing(fold: Fold, dead: Mapping[sp.Symbol, sp.Expr]) -> tuple[Absorbing, ...] | None:
    """The conditions under which folding dead elements leaves the state unchanged; None where it never does.

    Parameters
    ----------
    fold : what is computed.
    dead : the constants that stand for some of the element symbols; the other symbols may be anything finite.
    """
    if any(component.shift.has(COUNT) for component in fold.components):
        return None  # positions are counted as they come, so none may be left for later
    found: list[Absorbing] = []
    for component in fold.components:
        conditions = _of_component(component, dead, set(fold.cascade.elements) - set(dead))
        if conditions is None:
            return None
        found += [c for c in conditions if c not in found]
    return tuple(found)


def _of_component(
    component: Component, dead: Mapping[sp.Symbol, sp.Expr], alive: set[sp.Symbol]
) -> list[Absorbing] | None:
    lift = component.lift.subs(dead, simultaneous=True)
    if lift in (component.reducer.identity, component.reducer.neutral):
        return []
    if lift.has(sp.nan, sp.zoo, sp.oo, -sp.oo):
        return None
    if component.reducer.plain in (MAX, MIN) and not lift.free_symbols & alive:
        relation = Relation.AT_LEAST if component.reducer.plain is MAX else Relation.AT_MOST
        return [Absorbing(relation, component.symbol, lift)]
    if component.reducer is SUM:
        exponents = [_vanishing_exponent(term, dead, alive) for term in sp.Add.make_args(sp.expand_mul(component.lift))]
        if all(exponent is not None for exponent in exponents):
            return [Absorbing(Relation.VANISHES, exponent) for exponent in exponents if exponent is not None]
    return None


def _vanishing_exponent(term: sp.Expr, dead: Mapping[sp.Symbol, sp.Expr], alive: set[sp.Symbol]) -> sp.Expr | None:
    """The exponent of the one factor of a term that holds the dead symbols, where it is known at dead elements."""
    zeroed = [factor for factor in sp.Mul.make_args(term) if factor.has(*dead)]
    if len(zeroed) != 1:
        return None
    factor = zeroed[0].args[0] if isinstance(zeroed[0], Round) else zeroed[0]  # zero, rounded, is zero
    if not isinstance(factor, sp.exp):
        return None
    exponent = factor.args[0].subs(dead, simultaneous=True)
    return None if exponent.free_symbols & alive else exponent
