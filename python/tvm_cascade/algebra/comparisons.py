"""Elements that compare with earlier results: by extrema of what is compared, and at the ties of an extremum.

| ⊕ of                                  | is                                                                     |
|---------------------------------------|------------------------------------------------------------------------|
| or, and: a(x) > u                     | max a > u, min a > u                                                   |
| or, and: F(x, d) > G(x, d)            | max (F − G) > 0, min (F − G) > 0                                       |
| or: p or q; and: p and q              | some p or some q; every p and every q                                  |
| max: p ? f : u, with u ≥ f everywhere | u where some position fails p, max f elsewhere                         |
| max: [a > d] ? f : g, f rising with a | the larger of the selections at max a and at min a, where g falls      |
| so, where g rises as well             | the selection at max a, where f ≥ g at a = d                           |
| sum, max, min: [a = max a] ? f : g    | (⊕ of f where a = c) ⊕ (⊕ of g where a ≠ c), at the maximum so far c   |
| so, of φ(a, d) and its maximum        | the same at the ends of a, one of which results tell (`monotone.Order`) |

The other comparisons are these with sides exchanged. What is in at c is in at a later c′ ≥ c where these are equal, and
nothing is elsewhere: Σ [a = c′]·w = [c = c′]·Σ [a = c]·w. Beside a maximum of a, a ≥ max a is a = max a.

Others need all positions, as numbers show (`obligations.refutation`), or are unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import sympy as sp

from tvm_cascade.algebra.cascade import Reduction
from tvm_cascade.algebra.cases import Union
from tvm_cascade.algebra.derivation import Derivation, Refused
from tvm_cascade.algebra.facts.extent import sign_within
from tvm_cascade.algebra.facts.trend import trend
from tvm_cascade.algebra.fold import Reference
from tvm_cascade.algebra.monotone import Map, order_of, through_order
from tvm_cascade.algebra.policy import Move, Policy, Range
from tvm_cascade.algebra.reducer import HIGHEST, LOWEST, MAX, MIN, OR, SUM, Reducer
from tvm_cascade.symbolic.functions import Round
from tvm_cascade.symbolic.masks import is_truth, masks_in
from tvm_cascade.symbolic.separate import strip_rounding
from tvm_cascade.symbolic.signs import stand_in

Law = Callable[[Derivation, Reduction], sp.Expr]


def truth_of_all(derivation: Derivation, reduction: Reduction, predicate: sp.Basic, law: Law) -> sp.Expr:
    """1 where the condition holds at some position (for a conjunction, at all), 0 elsewhere.

    Raises
    ------
    Refused
        Where what is compared has no extremum in finite state, or the condition is no comparison.
    """
    return sp.Piecewise((1, _truth_over(derivation, reduction, predicate, law)), (0, True))


def _truth_over(derivation: Derivation, reduction: Reduction, predicate: sp.Basic, law: Law) -> sp.Basic:
    """Whether a condition holds at some position, or at all; of one that others bound, where these let it decide."""
    results, elements = derivation.cascade.results, derivation.elements
    if not predicate.has(*elements):
        return predicate
    through, other = (sp.Or, sp.And) if reduction.reducer is OR else (sp.And, sp.Or)
    if isinstance(predicate, sp.ITE):
        case, chosen, rest = predicate.args
        sides = (case, sp.Not(case)) if through is sp.Or else (sp.Not(case), case)
        predicate = through(other(sides[0], chosen), other(sides[1], rest))
    if isinstance(predicate, sp.Not):
        predicate = predicate.to_nnf(simplify=False)
    if isinstance(predicate, through):
        return through(*(_truth_over(derivation, reduction, part, law) for part in predicate.args))
    if isinstance(predicate, (sp.Gt, sp.Ge, sp.Lt, sp.Le)):
        return _ordered(derivation, reduction, predicate, law)
    if not isinstance(predicate, other):  # an equation, which any value may meet
        raise derivation.refuse(reduction, "logical_dependence", str(predicate))
    parts = predicate.args
    reading = [part for part in parts if part.has(*elements) and part.has(*results)]
    if len(reading) != 1:
        raise _unfolded(derivation, reduction)
    where = other(*(part for part in parts if part.has(*elements) and part not in reading))
    with derivation.over(sp.And(derivation.where, where if through is sp.Or else sp.Not(where))):
        told = _truth_over(derivation, reduction, reading[0], law)
    return other(told, *(part for part in parts if not part.has(*elements)))


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


def folded_choice(derivation: Derivation, reduction: Reduction, union: Union, law: Law) -> sp.Expr:
    """⊕ of an element whose cases are told by a comparison with earlier results.

    Raises
    ------
    Refused
        Where neither order nor an extremum of the element decides, or what is folded at its ties has no law.
    """
    matched, reducer, two = derivation.compared(union.guard), reduction.reducer, len(union.cases) == 2
    if reducer.ordered and two:
        for by_order in (_at_the_ends, partial(_bounded_by_the_other, law=law)):
            if (found := by_order(derivation, reduction, union)) is not None:
                return found
    if two and matched is not None and reducer in (SUM, MAX, MIN):
        extreme, (at, _) = matched
        here, there = (derivation.decided(union.terms[0 if s is at else 1], extreme, s) for s in (True, False))
        if found := _ties(derivation, reduction, extreme, there == (0 if reducer is SUM else reducer.identity)):
            cases = [
                (reducer.over(_at_ties(derivation, reduction, tie, here, there, law) for tie in ties), holds)
                if ties
                else (law(derivation, replace(reduction, element=here)), holds)
                for ties, holds in found
            ]
            told = sp.Piecewise(*cases[:-1], (cases[-1][0], True))
            return sp.Piecewise((sp.nan, _underflows(derivation, extreme)), (told, True))
    raise _unfolded(derivation, reduction)


def _unfolded(derivation: Derivation, reduction: Reduction) -> Refused:
    """A refusal where numbers show that there is no fold, and unknown elsewhere."""
    codes = {SUM: "infinite_rank", MAX: "not_monotone", MIN: "not_monotone"}
    code = codes.get(reduction.reducer, "logical_dependence")
    shown = derivation.counterexample(code, reduction, reduction.element)
    return derivation.refuse(reduction, code if shown else "select_on_result", reduction.element, shown=shown)


def _at_the_ends(derivation: Derivation, reduction: Reduction, union: Union) -> sp.Expr | None:
    """max or min of [a > d] ? f : g, of a part that a is monotone in; None where its branches are not ordered by it.

    A branch counts on its own side alone: so x² rises with x where x > d and d is positive.
    """
    if not isinstance(union.guard, (sp.Gt, sp.Ge, sp.Lt, sp.Le)):
        return None
    gap = union.guard.gts - union.guard.lts
    moving = gap.as_independent(*derivation.elements, as_Add=True)[1]
    unscaled = moving.as_independent(*derivation.cascade.results, as_Add=False)[0].as_coeff_Mul()[1]
    varying = [s for s in derivation.elements if s in gap.free_symbols]
    part = varying[0] if len(varying) == 1 else unscaled
    variable = stand_in(part, "_s")
    gap, *terms = (e.subs(part, variable) for e in (gap, *union.terms))
    guards = [case.guard.subs(part, variable) for case in union.cases]
    choices = [sp.expand(term) if masks_in(term, derivation.elements) else term for term in terms]
    written, *terms = (strip_rounding(derivation.signed(e)) for e in (gap, *choices))
    way = trend(written, variable)
    if not way or sp.Tuple(written, *terms, *guards).has(*derivation.elements):
        return None
    slope = sp.diff(written, variable)
    edge = sp.expand(variable - written / slope) if slope.is_number else None
    upper, lower = terms if way > 0 else terms[::-1]
    kept = _kept_ends(reduction.reducer, variable, upper, lower, edge)
    if kept is None:
        return None
    choice = sp.Piecewise(*zip(choices, guards, strict=True))
    selection = Map((part,), (variable,), choice)
    return selection.over(reduction.reducer, kept, lambda end, part: derivation.component(reduction, end, part))


def _bounded_by_the_other(derivation: Derivation, reduction: Reduction, union: Union, law: Law) -> sp.Expr | None:
    """max or min of [p] ? f : u, where f is nowhere beyond a u that is the same at all positions: u, or that of f."""
    guard, terms = union.guard, union.terms
    for bound, own, is_bound in ((terms[1], terms[0], sp.Not(guard)), (terms[0], terms[1], guard)):
        beyond = own - bound if reduction.reducer is MIN else bound - own
        if not bound.has(*derivation.elements) and sign_within(strip_rounding(derivation.signed(beyond))):
            try:
                within = law(derivation, replace(reduction, element=own))
                some = _truth_over(derivation, replace(reduction, reducer=OR), is_bound, law)
            except Refused:  # with numbers that show it of this term, not of the element
                return None
            return sp.Piecewise((bound, some), (within, True))
    return None


def _kept_ends(
    reducer: Reducer, variable: sp.Symbol, upper: sp.Expr, lower: sp.Expr, edge: sp.Expr | None
) -> tuple[Reducer, ...] | None:
    """The ends of s at which an extremum of the selection stands; None where others may decide.

    Parameters
    ----------
    upper, lower : the element where s is large, and where it is small.
    edge : the s at which one turns into the other; None where that is not told.
    """
    way, away = 1 if reducer is MAX else -1, sp.Dummy(positive=True)

    def rise(branch: sp.Expr, side: int) -> int | None:
        """The trend of a branch in s, on its own side of the edge."""
        found = trend(branch, variable)
        if found is None and edge is not None:
            beyond = trend(branch.xreplace({variable: edge + side * away}), away)
            return None if beyond is None else side * beyond
        return found

    def at_least(jump: sp.Expr) -> bool:
        """Whether a difference of the branches is nowhere negative, at the edge at least."""
        at_edge = jump if edge is None else jump.xreplace({variable: edge})
        return bool(jump.is_nonnegative or sp.expand(at_edge).is_nonnegative)

    rises, falls = rise(upper, 1), rise(lower, -1)
    if rises is None or falls is None:
        return None
    if way * rises >= 0 >= way * falls:
        return (MAX, MIN)
    jump = way * (upper - lower)
    if way * rises >= 0 and at_least(jump):
        return (MAX,)
    return (MIN,) if way * falls <= 0 and at_least(-jump) else None


@dataclass(frozen=True)
class _Tie:
    """The positions that attain an extremum of data.

    Attributes
    ----------
    lift : these data, as their component has them: log √x and log(x)/2 round apart.
    known : what an element symbol is where it is attained; empty where the element is no symbol.
    attained : what the extremum is there, over elements.
    reference : the extremum so far.
    """

    lift: sp.Expr
    known: dict[sp.Symbol, sp.Expr]
    attained: dict[sp.Symbol, sp.Expr]
    reference: Reference

    def written(self, element: sp.Expr) -> tuple[sp.Expr, ...]:
        """The same element at the ties, over results rather than elements, as it is, and over elements."""
        return element.subs(self.known), element, element.xreplace(self.attained)

    @property
    def met(self) -> sp.Basic:
        """Whether a position attains it."""
        return sp.Eq(self.lift, self.reference.symbol)

    @property
    def stands(self) -> sp.Basic:
        """Whether it stays where it was."""
        return sp.Eq(self.reference.symbol, self.reference.moved)


def _ties(
    derivation: Derivation, reduction: Reduction, extreme: Reduction, alone: bool
) -> list[tuple[tuple[_Tie, ...], sp.Basic]]:
    """The ties of an earlier extremum, and when they are its; no ties where it is attained everywhere.

    Nothing where it is not known which they are.

    Parameters
    ----------
    alone : ⊕ is of positions at ties alone, of which there may then be two kinds.
    """
    if not derivation.plain(extreme.element).has(*derivation.cascade.results):
        tie = _tie(derivation, extreme)
        return [] if tie is None else [((tie,), sp.true)]
    kinked = extreme.element.atoms(Round, sp.Piecewise)  # what rounding or a choice makes equal is no end
    asked = derivation.extracted(extreme.element), extreme.reducer, derivation.elements
    values = derivation.invariants.values
    order = order_of(*asked, list(values))
    if any(part.has(*derivation.results) for part in kinked) or isinstance(order, str) or is_truth(order.lift):
        return []
    if _saturates(order.key):
        return []
    if order.way is None and not alone:
        return []
    span = Range.EXTREME if _underflows(derivation, extreme) == sp.false else Range.UNDERFLOWING
    ties = [_end(derivation, reduction, extreme, end, order.lift, span) for end in order.ends]
    holds = [condition.xreplace(values) for condition in order.decided(extreme.reducer)]
    if order.way is not None:
        return list(zip([*((tie,) for tie in ties), ()], holds, strict=False))
    high, low = (tie.reference.value for tie in ties)
    first, second = (order.key.at(end).xreplace(values) for end in (high, low))
    larger, smaller = (first > second, first < second) if extreme.reducer is MAX else (first < second, first > second)
    return [((ties[0],), sp.Or(larger, sp.Eq(high, low))), ((ties[1],), smaller), (tuple(ties), sp.true)]


def _saturates(key: Map) -> bool:
    """Whether floats that are far apart may be equal in a map: log(1 + exp(a − d)) is 0 at all a far below d.

    Exponentials that are factors keep apart what they are taken of, until they underflow (`_underflows`).
    """
    ends = [sp.Dummy(real=True) for _ in key.parts]
    factors = (f.args[0] if isinstance(f, sp.exp) else f for f in sp.Mul.make_args(key.at(*ends)))
    return any(part.has(*ends) and not isinstance(part, sp.Abs) for f in factors for part in f.atoms(sp.Function))


def _underflows(derivation: Derivation, extreme: Reduction) -> sp.Basic:
    """Where floats may attain an extremum of exponentials that its data do not attain: it is next to nothing."""
    element = derivation.plain(extreme.element)
    moved = element.has(*derivation.cascade.results) and any(e.has(*derivation.elements) for e in element.atoms(sp.exp))
    return sp.Abs(extreme.result) * HIGHEST < 1 if moved else sp.false


def _attained(derivation: Derivation, extreme: Reduction) -> dict[sp.Symbol, sp.Expr]:
    return {derivation.plain(extreme.result): derivation.plain(extreme.element)}


def _end(
    derivation: Derivation, reduction: Reduction, extreme: Reduction, end: Reducer, lift: sp.Expr, span: Range
) -> _Tie:
    """The ties of an extremum of data, in the component of it."""
    best = derivation.component(reduction, end, lift)
    reference = derivation.refer(("end", best), lift, Policy.RUNNING, best, auxiliary=True, range=span)
    return _Tie(lift, {lift: best} if lift.is_Symbol else {}, _attained(derivation, extreme), reference)


def _tie(derivation: Derivation, extreme: Reduction) -> _Tie | None:
    """The ties of an earlier extremum; None where its element reads results, or it is made of several components."""
    lift = derivation.lift_of(extreme)
    if lift is None:
        return None
    invariant = derivation.invariants.of(extreme.result)
    exact = "" if derivation.move is Move.EXACT else "exact"
    value = derivation.predicted(invariant.value)
    reference = derivation.refer((invariant, exact), invariant.value, Policy.RUNNING, value, range=Range.EXTREME)
    known = {extreme.element: derivation.plain(extreme.result)} if extreme.element.is_Symbol else {}
    return _Tie(lift, known, _attained(derivation, extreme), reference)


def _at_ties(
    derivation: Derivation, reduction: Reduction, tie: _Tie, here: sp.Expr, there: sp.Expr, law: Law
) -> sp.Expr:
    """⊕ of one element at the ties, and of another elsewhere."""
    reducer = reduction.reducer
    if reducer is not SUM:
        over_results, *others = tie.written(here)
        read = {*derivation.cascade.results}
        over_elements = min(others, key=lambda written: len(written.free_symbols & read))
        weight = over_elements if over_results.has(*derivation.elements) else over_results
        found = [_extremum(derivation, reduction, tie, weight, _anew)]
        if there != reducer.identity:
            found.append(_extremum(derivation, reduction, tie, there, _left))
        return reducer.over(found)
    total, beside = sp.S.Zero, sp.S.Zero
    if there.has(*derivation.cascade.results):
        total, beside = law(derivation, replace(reduction, element=there)), there
    elif there != 0:
        total = _left(derivation, reduction, tie, there)
    pairs = zip(*map(tie.written, (here, beside)), strict=True)
    differences = (at if beside == 0 else sp.expand(at - its) for at, its in pairs)
    known = (_apart(derivation, tie, difference) for difference in differences)
    terms = next((apart for apart in known if apart is not None), None)
    if terms is None:
        raise derivation.refuse(reduction, "select_on_result", here)
    return total + sp.Add(*(factor * _anew(derivation, reduction, tie, varying) for factor, varying in terms))


def _apart(derivation: Derivation, tie: _Tie, element: sp.Expr) -> list[tuple[sp.Expr, sp.Expr]] | None:
    """The terms of an element at ties, as what results give and what varies; None where the latter reads results."""
    whole, read = sp.factor_terms(element), (*derivation.cascade.results, *tie.known.values())
    for terms in ((whole,), sp.Add.make_args(sp.expand(whole))):
        apart = [term.as_independent(*derivation.elements, as_Add=False) for term in terms if term != 0]
        if not any(varying.has(*read) for _, varying in apart):
            return apart
    return None


def _extremum(derivation: Derivation, reduction: Reduction, tie: _Tie, weight: sp.Expr, state: _State) -> sp.Expr:
    """max or min of w at the positions of a state; of what results are read in, whether there is one."""
    varies, reads = weight.has(*derivation.elements), weight.has(*derivation.cascade.results)
    if varies and not reads:
        return state(derivation, reduction, tie, weight)
    if varies:
        element = derivation.extracted(derivation.signed(weight))
        values = derivation.invariants.values
        passed = through_order(element, reduction.reducer, derivation.elements, list(values))
        if isinstance(passed, str):
            raise derivation.refuse(reduction, "select_on_result", weight)
        found, kept, _ = passed
        weight = found.over(
            reduction.reducer, kept, lambda end, part: state(derivation, replace(reduction, reducer=end), tie, part)
        ).xreplace(values)
    met = state(derivation, replace(reduction, reducer=SUM), tie, sp.S.One) > 0
    return sp.Piecewise((weight, met), (reduction.reducer.neutral, True))


def _anew(derivation: Derivation, reduction: Reduction, tie: _Tie, weight: sp.Expr) -> sp.Symbol:
    """The component ⊕ of w where a = c, which starts anew wherever c moves."""
    if weight.has(*derivation.cascade.results, *tie.known.values()):
        raise derivation.refuse(reduction, "select_on_result", weight)
    nothing = (reduction.reducer.neutral, True)
    chosen = sp.Piecewise((weight, tie.met), nothing)
    return derivation.component(
        reduction, reduction.reducer, chosen, lambda own: sp.Piecewise((own, tie.stands), nothing)
    )


def _left(derivation: Derivation, reduction: Reduction, tie: _Tie, weight: sp.Expr) -> sp.Symbol:
    """The component ⊕ of w where a ≠ c, to which positions are added once the extremum leaves them.

    A sum of all from which those at the extremum are subtracted would lose their digits.
    """
    reducer, at = reduction.reducer, _anew(derivation, reduction, tie, weight)
    chosen = sp.Piecewise((reducer.neutral, tie.met), (weight, True))
    left = sp.Piecewise((reducer.neutral, tie.stands), (at, True))
    return derivation.component(reduction, reducer, chosen, lambda own: reducer.combine(own, left))


_State = Callable[[Derivation, Reduction, _Tie, sp.Expr], sp.Symbol]
