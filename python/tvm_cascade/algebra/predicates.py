"""Conjunctions and disjunctions of comparisons with earlier results, by extrema of the compared quantity.

| element                | some position holds               | every position holds             |
|------------------------|-----------------------------------|----------------------------------|
| a(x) > u               | max a > u                         | min a > u                        |
| F(x, d) > G(x, d)      | max (F − G) > 0                   | min (F − G) > 0                  |
| a(x) = u               | none: as many values as positions | min a = u and max a = u          |
| a(x) ≠ u               | not (min a = u and max a = u)     | none                             |
| F(x, d) ≥ max F        | always                           | min F = max F                    |
| p and q                | q and some p, where q varies not  | every p and every q              |
| p or q                 | some p or some q                  | q or every p, where q varies not |
| p and keep             | some p over the positions kept    | every p and every keep           |

The other comparisons are these with sides exchanged; extrema of F − G have the laws of extrema. So is the max of
(x > u ? 1 : 0), as which TE writes "some position".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import sympy as sp

from tvm_cascade.algebra.cascade import Reduction
from tvm_cascade.algebra.cases import Union
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.reducer import AND, HIGHEST, LOWEST, MAX, MIN, OR
from tvm_cascade.symbolic.masks import is_truth

Law = Callable[[Derivation, Reduction], sp.Expr]


def truth_of_all(derivation: Derivation, reduction: Reduction, predicate: sp.Basic, law: Law) -> sp.Expr:
    """1 where the condition holds at some position (for a conjunction, at all), 0 elsewhere.

    Raises
    ------
    Refused
        Where what is compared has no extremum in finite state, or the condition is no comparison.
    """
    return sp.Piecewise((1, truth_over(derivation, reduction, predicate, law)), (0, True))


def extremum_of_two_values(derivation: Derivation, reduction: Reduction, union: Union, law: Law) -> sp.Expr:
    """max or min of (x > u ? a : b), a and b loop-invariant: by whether any and whether all x are above u.

    Raises
    ------
    Refused
        As `truth_of_all` does.
    """
    chosen, other = union.terms
    every, some = (
        truth_over(derivation, replace(reduction, reducer=logical), union.guard, law) for logical in (AND, OR)
    )
    return sp.Piecewise((chosen, every), (reduction.reducer.combine(chosen, other), some), (other, True))


def truth_over(derivation: Derivation, reduction: Reduction, predicate: sp.Basic, law: Law) -> sp.Basic:
    """Whether the condition holds at some position, for a reduction by "or"; at all positions, by "and".

    Raises
    ------
    Refused
        As `truth_of_all` does.
    """
    elements, some = derivation.elements, reduction.reducer is OR
    if not predicate.has(*elements):
        return predicate
    through, against = (sp.Or, sp.And) if some else (sp.And, sp.Or)
    if isinstance(predicate, through):
        return through(*(truth_over(derivation, reduction, part, law) for part in predicate.args))
    if isinstance(predicate, against):
        fixed = [part for part in predicate.args if not part.has(*elements)]
        masks = [part for part in predicate.args if part.has(*elements) and _is_mask(part)]
        comparisons = [part for part in predicate.args if part not in (*fixed, *masks)]
        if len(comparisons) == 1:
            where = sp.And(*masks) if some else sp.Not(sp.Or(*masks))
            return against(*fixed, _where(derivation, reduction, comparisons[0], where, law))
    if derivation.where == sp.true and (known := derivation.compared(predicate)) is not None:
        return _with_own_extremum(derivation, reduction, *known, law)
    if isinstance(predicate, (sp.Gt, sp.Ge, sp.Lt, sp.Le)):
        return _ordered(derivation, reduction, predicate, law)
    if isinstance(predicate, sp.Ne if some else sp.Eq):
        return _all_equal(derivation, reduction, predicate)
    raise derivation.refuse(reduction, "logical_dependence", str(predicate))


def _with_own_extremum(
    derivation: Derivation, reduction: Reduction, extreme: Reduction, holds: tuple[bool, bool], law: Law
) -> sp.Basic:
    """Of a comparison with an earlier extremum of the same element, that holds where it is attained, and elsewhere.

    It is attained at some position, and at every one where the opposite extremum is the same.
    """
    at, _ = holds
    if at is (reduction.reducer is OR):
        return sp.sympify(at)
    opposite = replace(extreme, result=reduction.result, reducer=MIN if extreme.reducer is MAX else MAX)
    other = law(derivation, replace(opposite, element=derivation.plain(extreme.element)))
    everywhere = sp.Eq(other, derivation.plain(extreme.result))
    return everywhere if at else sp.Not(everywhere)


def _is_mask(part: sp.Basic) -> bool:
    return bool(part.is_Relational and part.rhs == 0 and is_truth(part.lhs))


def _where(derivation: Derivation, reduction: Reduction, predicate: sp.Basic, where: sp.Basic, law: Law) -> sp.Basic:
    """The truth over the positions where a condition on the position holds."""
    if where == sp.true:
        return truth_over(derivation, reduction, predicate, law)
    if not any(_is_apart(derivation, *sides) for sides in (predicate.args, predicate.args[::-1])):
        raise derivation.refuse(reduction, "logical_dependence", str(predicate))  # its law has cases of its own
    with derivation.over(where):
        return truth_over(derivation, reduction, predicate, law)


def _is_apart(derivation: Derivation, side: sp.Basic, other: sp.Basic) -> bool:
    """Whether one side of a comparison reads no result, and the other no element."""
    return not side.has(*derivation.cascade.results) and not other.has(*derivation.elements)


def _ordered(derivation: Derivation, reduction: Reduction, relation: sp.Basic, law: Law) -> sp.Basic:
    """Of a comparison: that of an extremum."""
    some, strict = reduction.reducer is OR, isinstance(relation, (sp.Gt, sp.Lt))
    ordered = sp.Gt if strict else sp.Ge
    if _is_apart(derivation, relation.gts, relation.lts):
        extreme = derivation.component(reduction, MAX if some else MIN, relation.gts)
        # A maximum starts at the lowest number, which is above −∞ where all elements are that.
        return sp.And(ordered(extreme, relation.lts), extreme > LOWEST if some and strict else sp.true)
    if _is_apart(derivation, relation.lts, relation.gts):
        extreme = derivation.component(reduction, MIN if some else MAX, relation.lts)
        return sp.And(ordered(relation.gts, extreme), extreme < HIGHEST if some and strict else sp.true)
    difference = replace(reduction, reducer=MAX if some else MIN, element=relation.gts - relation.lts)
    return ordered(law(derivation, difference), 0)


def _all_equal(derivation: Derivation, reduction: Reduction, relation: sp.Basic) -> sp.Basic:
    """Of an equation at every position, or its opposite at some: both extrema tell."""
    for side, other in (relation.args, relation.args[::-1]):
        if _is_apart(derivation, side, other):
            ends = [derivation.component(reduction, reducer, side) for reducer in (MIN, MAX)]
            equal = sp.And(*(sp.Eq(end, other) for end in ends))
            return sp.Not(equal) if isinstance(relation, sp.Ne) else equal
    raise derivation.refuse(reduction, "logical_dependence", str(relation))
