"""Σ of elements of finite rank: constant factors are deferred, the rest is rescaled as references move."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from tvm_cascade.algebra.cascade import LENGTH, Reduction
from tvm_cascade.algebra.central_moments import about_the_means, located, reads_slopes
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.expansion import Expansion, expansion_of
from tvm_cascade.algebra.facts.extent import pole
from tvm_cascade.algebra.facts.weight import Offsets, by_offset
from tvm_cascade.algebra.invariants import Invariant, cancelled_results, tracking_policy
from tvm_cascade.algebra.moved_state import MovedState
from tvm_cascade.algebra.policy import Policy
from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.algebra.sections import reference_of
from tvm_cascade.algebra.summand import Summand, deferred, near_its_invariants
from tvm_cascade.symbolic.functions import GuardedProduct, Round
from tvm_cascade.symbolic.masks import indicator, masks_in, masks_that_keep, under_its_masks
from tvm_cascade.symbolic.separate import RANK_LIMIT, Step, separate
from tvm_cascade.symbolic.work import expanded


def sum_law(derivation: Derivation, reduction: Reduction, element: sp.Expr, _used: list[Invariant]) -> sp.Expr:
    """The sum over components that this law adds, term by term."""
    element = _over_extrema(derivation, element)
    return sp.Add(*(_term(derivation, reduction, term) for term in independent_terms(element, derivation)))


def _over_extrema(derivation: Derivation, element: sp.Expr) -> sp.Expr:
    """Sums divided by an extremum r that their terms are divided by: (r − x)/r of 1 − x/r, which has its digits."""
    if element.has(Round):
        return element
    in_sums = sp.Tuple(*element.atoms(sp.Add)).free_symbols
    divisors = {
        invariant.symbol: 1 / derivation.invariants.of(1 / invariant.value).symbol
        for invariant in list(derivation.invariants)
        if invariant.symbol in in_sums
        and (1 / invariant.value).is_Symbol
        and tracking_policy(invariant, derivation.done) is Policy.RUNNING
    }
    totals = {total: sp.together(total.xreplace(divisors)) for total in element.atoms(sp.Add) if total.has(*divisors)}
    return element.xreplace(totals).xreplace(divisors) if divisors else element


def independent_terms(element: sp.Expr, derivation: Derivation) -> list[sp.Expr]:
    """Terms that are summed separately; x − u is not split, since Σ x − N·u cancels, but exp(x − u) + w is."""
    elements, invariants = derivation.elements, list(derivation.invariants.values)
    terms = [under_its_masks(term, elements) for term in sp.Add.make_args(element)]
    plain = [t for t in terms if not t.has(*invariants)]
    reading = [t for t in terms if t not in plain and not t.has(*elements)]
    translated = [t for t in reading if t.is_polynomial(*invariants) and _is_linear(t, invariants)]
    rest = [t for t in terms if t not in plain and t not in translated]
    if plain and translated:
        return [sp.Add(*plain, *translated), *rest]
    return ([sp.Add(*plain)] if plain else []) + translated + rest


def _is_linear(term: sp.Expr, invariants: list[sp.Symbol]) -> bool:
    return all(sp.diff(term, a, b) == 0 for a in invariants for b in invariants)


def _term(derivation: Derivation, reduction: Reduction, term: sp.Expr) -> sp.Expr:
    elements = derivation.elements
    if not term.has(*elements):
        return LENGTH * term.xreplace(derivation.invariants.values)
    term = _joined_exponentials(derivation, term)
    summand = deferred(derivation, reduction, term, [h for h in derivation.invariants if h.symbol in term.free_symbols])
    if not summand.tracked:
        still = Expansion((summand.function,), sp.eye(1), {}, {})
        total = _at_references(derivation, reduction, summand, still)
        return _where_kept(derivation, summand, total, reduction)
    summand = near_its_invariants(derivation, summand)
    symbols, stands = [h.symbol for h in summand.tracked], located(summand.function, summand.tracked, elements)
    if not stands and _is_line(summand, symbols):
        return summand.factor * _apart(derivation, reduction, summand)
    has_slopes = not stands or reads_slopes(summand.function, summand.tracked, elements)
    if has_slopes and (moments := _moments(derivation, reduction, summand)):
        return _where_kept(derivation, summand, moments, reduction)
    if any(h.symbol in summand.lift.free_symbols and h.symbol not in symbols for h in derivation.invariants):
        raise derivation.refuse(reduction, "rounding_rank", summand.lift)  # a rounding holds what had to move
    return _where_kept(derivation, summand, _in_a_span(derivation, reduction, summand, symbols), reduction)


def _is_line(summand: Summand, symbols: list[sp.Symbol]) -> bool:
    """Whether it is p(x) + q(x)·u, of one invariant: Σ p and u·Σ q round as p and q·u do."""
    totals = [total for total in summand.function.atoms(sp.Add) if total.has(*symbols)]
    plain = summand.lift == summand.function and len(symbols) == 1
    return bool(plain and totals and _is_linear(summand.function, symbols))


def _in_a_span(derivation: Derivation, reduction: Reduction, summand: Summand, symbols: Sequence[sp.Symbol]) -> sp.Expr:
    """The term over the components of its span; else by moments, or as products with a sum each."""
    span = expansion_of(summand.function, derivation.elements, symbols)
    products = separate(summand.function, derivation.elements, symbols) if span is None else {}
    if products is None and _deciding_masks(derivation, summand):
        return summand.factor * _by_mask(derivation, reduction, summand)
    if products is None:
        shown = derivation.counterexample("infinite_rank", reduction, summand.function)
        code = "separation_unknown" if shown is None else "infinite_rank"
        raise derivation.refuse(reduction, code, summand.function, shown=shown)
    rank = len(products) if span is None else span.rank
    if rank > 1 and summand.lift != summand.function:
        raise derivation.refuse(reduction, "rounding_rank", summand.function, summand.lift)
    if span is not None and rank <= RANK_LIMIT and not span.loses_digits:
        return _at_references(derivation, reduction, summand, span)
    if moments := _moments(derivation, reduction, summand):
        return moments
    if rank > RANK_LIMIT:
        raise derivation.refuse(reduction, "rank_limit", summand.function)
    return summand.factor * _apart(derivation, reduction, summand)


def _moments(derivation: Derivation, reduction: Reduction, summand: Summand) -> sp.Expr | None:
    """The term from moments about the means of its elements; None where it is no such polynomial, or is rounded."""
    if summand.lift != summand.function:
        return None
    moments = about_the_means(derivation, reduction, summand.function, summand.tracked)
    return None if moments is None else summand.factor * moments


def _at_references(derivation: Derivation, reduction: Reduction, summand: Summand, span: Expansion) -> sp.Expr:
    """The term over components for the functions of its span, at references of its invariants."""
    references = [reference_of(derivation, reduction, invariant, summand.function) for invariant in summand.tracked]
    shift = span.shift(
        [invariant.symbol for invariant in summand.tracked], [Step(r.symbol, r.moved, r.step) for r in references]
    )
    functions = (summand.lift, *span.functions[1:])
    state = MovedState(derivation, reduction, functions, shift, summand.tracked, references)
    final = state.final()
    return (
        _guarded_product(derivation, summand, state.components, final)
        if len(state.functions) == 1
        else summand.factor * final
    )


def _where_kept(derivation: Derivation, summand: Summand, total: sp.Expr, reduction: Reduction) -> sp.Expr:
    """Σ keep·F(x, d) where no position is kept: 0, as unfused, rather than 0·H(d) with an H(d) that is not finite.

    They are counted where H(d) may be infinite at finite d, or where they are anyway.
    """
    kept = masks_that_keep(summand.function, derivation.elements)
    if not kept:
        return total
    count = derivation.known(SUM, indicator(kept)) or derivation.known(SUM, sp.expand(-indicator(kept)))
    if count is None:
        read = [summand.factor, *(invariant.value for invariant in summand.tracked)]
        if not any(pole(value, derivation.results) for value in read):
            return total
        count = derivation.component(reduction, SUM, indicator(kept))
    return sp.Piecewise((0, sp.Eq(count, 0)), (total, True))


def _joined_exponentials(derivation: Derivation, term: sp.Expr) -> sp.Expr:
    """exp(x − u)·exp(y − v) as exp(x + y − w), w = u + v: one exponent, which one reference bounds.

    SymPy writes such a product as exp(x + y − u − v) by itself. Where u and v bound it as they are, it stays so.
    """
    values = derivation.invariants.values
    if isinstance(term, Round):
        value, dtype = term.args
        return Round(_joined_exponentials(derivation, value), dtype)
    reading = [f for f in sp.Mul.make_args(term) if isinstance(f, sp.exp) and f.has(*values, *derivation.results)]
    exponent = sp.Add(*(f.args[0] for f in reading))
    rest = [f for f in sp.Mul.make_args(term) if f not in reading]
    if reading and (apart := _bounded_apart(derivation, term, exponent.xreplace(values))) is not None:
        return sp.Mul(*rest, sp.exp(apart))
    several = len(exponent.free_symbols & {*values, *derivation.results}) > 1
    if len(reading) < 2 and not several:
        return term
    if several:
        exponent = derivation.extracted(sp.expand(exponent.xreplace(values)))
    return sp.Mul(*rest, sp.exp(exponent))


def _bounded_apart(derivation: Derivation, term: sp.Expr, exponent: sp.Expr) -> sp.Expr | None:
    """a + b − max a − max b over an invariant of each, where they bound it: a and b may lie far from each other.

    At one reference near max a + max b, a + b would be rounded where (a − max a) + (b − max b) is not.
    """
    terms = sp.Add.make_args(sp.expand(exponent))
    offsets = Offsets(derivation.done, derivation.length)
    moving, still = by_offset([t for t in terms if t.has(*derivation.results)], offsets)
    if len(moving) < 2 or still or any(t.has(*derivation.elements) for group in moving for t in group):
        return None
    rest = sp.Add(*(t for t in terms if not t.has(*derivation.results)))
    apart = rest + sp.Add(*(derivation.extracted(sp.Add(*group)) for group in moving))
    return apart if derivation.bounds(apart, term) else None


def _by_mask(derivation: Derivation, reduction: Reduction, summand: Summand) -> sp.Expr:
    """exp(x − (keep ? u : v)) as keep·exp(x − u) + (1 − keep)·exp(x − v)."""
    mask = _deciding_masks(derivation, summand)[0]
    sides = ((mask, summand.lift.subs(mask, 1)), (1 - mask, summand.lift.subs(mask, 0)))
    return sp.Add(*(_term(derivation, reduction, weight * side) for weight, side in sides if side != 0))


def _deciding_masks(derivation: Derivation, summand: Summand) -> list[sp.Symbol]:
    """The masks that are no mere factors."""
    masks = masks_in(summand.function, derivation.elements)
    return [m for m in masks if summand.function.as_independent(m, as_Add=False)[1] not in (m, 1 - m)]


def _apart(derivation: Derivation, reduction: Reduction, summand: Summand) -> sp.Expr:
    """The element multiplied out, with one sum for each term: w·(x·u + y·v), whose factors may all vanish."""
    terms = sp.Add.make_args(expanded(summand.function, power_exp=False, power_base=False, log=False))
    if len(terms) == 1 or summand.lift != summand.function:
        code = "separation_unknown" if summand.lift == summand.function else "rounding_rank"
        raise derivation.refuse(reduction, code, summand.function)
    return sp.Add(*(_term(derivation, reduction, term) for term in terms))


def _guarded_product(derivation: Derivation, summand: Summand, state: list[sp.Expr], final: sp.Expr) -> sp.Expr:
    """T·exp(c − u) with a c that need not end at u, guarded against a u that is out of range.

    Exponentials among the deferred factors join it: apart, one may overflow where the other is zero.
    """
    (component,), factor = state, final / state[0]
    infinite: list[sp.Expr] = []
    unbounded = False
    for invariant in summand.tracked:
        for exponent in derivation.unbounded(summand.function, invariant):
            unbounded = True
            infinite += cancelled_results(exponent, invariant, derivation.done)
    if not (unbounded and factor.has(sp.exp)):
        return summand.factor * final
    deferred = sp.Mul.make_args(summand.factor)
    joined = [f for f in (*sp.Mul.make_args(factor), *deferred) if isinstance(f, sp.exp)]
    others = [f for f in sp.Mul.make_args(factor) if f not in joined]
    scale = sp.Mul(*others) * sp.exp(sp.Add(*(f.args[0] for f in joined)))
    return sp.Mul(*(f for f in deferred if f not in joined)) * GuardedProduct(component, scale, *infinite)
