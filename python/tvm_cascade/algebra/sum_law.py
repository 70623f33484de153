"""Σ of elements of finite rank: constant factors are deferred, the rest is rescaled as references move."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import sympy as sp

from tvm_cascade.algebra.cascade import (
    LENGTH,
    GuardedProduct,
    Reduction,
    Round,
    conditions_that_keep,
    indicator,
    masks_in,
    masks_that_keep,
    under_its_masks,
)
from tvm_cascade.algebra.central_moments import about_the_means, reads_slopes
from tvm_cascade.algebra.counterexample import rank_grows
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.gauge import (
    Gauge,
    Handle,
    Move,
    cancelled_results,
    exponents,
    factor_in,
    is_location,
    may_be_infinite,
    tracking_gauge,
    translated_part,
    translations,
)
from tvm_cascade.algebra.moved_state import MovedState
from tvm_cascade.algebra.offsets import by_offset
from tvm_cascade.algebra.opposed import joined_where_opposed
from tvm_cascade.algebra.powers import Powers, powers_in_range
from tvm_cascade.algebra.ratios import LogReference, log_reference
from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.algebra.reference import reference_of
from tvm_cascade.algebra.rounded_range import leaves_range_in_part
from tvm_cascade.algebra.separate import (
    RANK_LIMIT,
    Basis,
    Step,
    basis_by_derivatives,
    separate,
    shift_matrix,
    strip_rounding,
)
from tvm_cascade.algebra.work import simplified

NARROW_RANGE = ("float16", "float8_e4m3fn", "float8_e5m2")
"""Dtypes whose exponent range is so small that rounding at another scale may overflow or lose digits."""


def sum_law(derivation: Derivation, reduction: Reduction, element: sp.Expr, used: list[Handle]) -> sp.Expr:
    """The sum over components that this law adds: term by term, each with its own components."""
    return sp.Add(*(_term(derivation, reduction, term, used) for term in independent_terms(element, derivation)))


def independent_terms(element: sp.Expr, derivation: Derivation) -> list[sp.Expr]:
    """Terms that are summed separately; x − u is not split, since Σ x − N·u cancels, but exp(x − u) + w is.

    Nor do w·exp(x − u) and w·(y − v), of w·(exp(x − u) + y − v).
    """
    elements, handles = derivation.elements, [h.symbol for h in derivation.handles]
    terms = [under_its_masks(term, elements) for term in sp.Add.make_args(element)]
    terms = [part for term in terms for part in _exponentials_apart(term, handles)]
    plain = [t for t in terms if not t.has(*handles)]
    reading = [t for t in terms if t not in plain and not t.has(*elements)]
    translated = [t for t in reading if t.is_polynomial(*handles) and _is_linear(t, handles)]
    rest = [t for t in terms if t not in plain and t not in translated]
    if plain and translated:
        return [sp.Add(*plain, *translated), *rest]
    return ([sp.Add(*plain)] if plain else []) + translated + rest


def _exponentials_apart(term: sp.Expr, handles: Sequence[sp.Symbol]) -> list[sp.Expr]:
    """Splits w·(f·exp(x − u) + g) into two terms: what bounds the exponential is no reference for g."""
    totals = [f for f in sp.Mul.make_args(term) if isinstance(f, sp.Add)]
    for total in totals:
        moving = [t for t in total.args if any(e.has(*handles) for e in t.atoms(sp.exp))]
        if moving and len(moving) < len(total.args):
            return [term / total * part for part in (*moving, total - sp.Add(*moving))]
    return [term]


def _is_linear(term: sp.Expr, handles: list[sp.Symbol]) -> bool:
    return all(sp.diff(term, a, b) == 0 for a in handles for b in handles)


@dataclasses.dataclass
class Summand:
    """A term of a sum, with deferred factors taken out.

    Attributes
    ----------
    function : the term without rounding; `lift` with it.
    factor : what is applied at the end.
    tracked : handles that references stand in for.
    basis : of the function, where it is known.
    """

    function: sp.Expr
    lift: sp.Expr
    factor: sp.Expr
    tracked: list[Handle]
    basis: Basis | None = None


def _term(derivation: Derivation, reduction: Reduction, term: sp.Expr, used: list[Handle]) -> sp.Expr:
    elements = derivation.elements
    if not term.has(*elements):
        return LENGTH * term.xreplace({h.symbol: h.value for h in used})
    term = _joined_exponentials(derivation, term)
    summand = _defer(derivation, reduction, term, [h for h in derivation.handles if h.symbol in term.free_symbols])
    if not summand.tracked:
        powers = _powers(derivation, summand)
        if powers is None:
            total = summand.factor * derivation.component(reduction, SUM, summand.lift)
        else:
            state = MovedState(derivation, reduction, (summand.lift,), sp.eye(1), [], [])
            total = powers.rest * state.final_in_units(powers)
        return _where_kept(derivation, summand, total, reduction)
    summand = _without_parameters(summand, elements)
    if reads_slopes(summand.function, summand.tracked, elements) and (
        moments := _moments(derivation, reduction, summand)
    ):
        return _where_kept(derivation, summand, moments, reduction)
    summand = _without_shifts(derivation, _by_location(derivation, in_exponent_units(derivation, summand)))
    if _of_one_variable(summand, elements) and (moments := _moments(derivation, reduction, summand)):
        return _where_kept(derivation, summand, moments, reduction)
    symbols = [handle.symbol for handle in summand.tracked]
    if any(h.symbol in summand.lift.free_symbols and h.symbol not in symbols for h in derivation.handles):
        raise derivation.refuse(reduction, "rounding_rank", summand.lift)  # a rounding holds what had to move
    basis = _basis(derivation, reduction, summand, symbols)
    if basis is not None and (basis.rank > RANK_LIMIT or basis.pivots is None):
        if moments := _moments(derivation, reduction, summand):
            return _where_kept(derivation, summand, moments, reduction)
        if basis.rank > RANK_LIMIT:
            raise derivation.refuse(reduction, "rank_limit", summand.function)
    if basis is None:
        return _where_kept(derivation, summand, summand.factor * _by_mask(derivation, reduction, summand), reduction)
    if basis.pivots is None:
        return _where_kept(derivation, summand, summand.factor * _apart(derivation, reduction, summand), reduction)
    return _where_kept(derivation, summand, _at_references(derivation, reduction, summand, basis), reduction)


def _moments(derivation: Derivation, reduction: Reduction, summand: Summand) -> sp.Expr | None:
    """The term from moments about the means of its elements; None where it is no such polynomial, or is rounded."""
    if summand.lift != summand.function:
        return None
    moments = about_the_means(derivation, reduction, summand.function, summand.tracked)
    return None if moments is None else summand.factor * moments


def _at_references(derivation: Derivation, reduction: Reduction, summand: Summand, basis: Basis) -> sp.Expr:
    """The term over components for the basis functions, at references of its handles."""
    references = [
        log_reference(derivation, handle, summand.function)
        or reference_of(derivation, reduction, handle, summand.function)
        for handle in summand.tracked
    ]
    symbols = [handle.symbol for handle in summand.tracked]
    shift = shift_matrix(basis, symbols, [Step(r.symbol, r.moved, r.step) for r in references])
    if shift is None:
        raise derivation.refuse(reduction, "separation_unknown", summand.function)
    functions = tuple(joined_where_opposed(f, derivation.elements) for f in (summand.lift, *basis.functions[1:]))
    state = MovedState(derivation, reduction, functions, shift, summand.tracked, references)
    powers = None if any(isinstance(r, LogReference) for r in references) else _powers(derivation, summand)
    if powers is not None:
        return powers.rest * state.final_in_units(powers)
    final = state.final()
    return (
        _guarded_product(derivation, summand, state.components, final)
        if len(functions) == 1
        else summand.factor * final
    )


def _powers(derivation: Derivation, summand: Summand) -> Powers | None:
    return powers_in_range(derivation, summand.function, summand.factor) if summand.lift == summand.function else None


def _where_kept(derivation: Derivation, summand: Summand, total: sp.Expr, reduction: Reduction) -> sp.Expr:
    """Σ keep·F(x, d) where no position is kept: 0, as unfused, rather than 0·H(d) with an H(d) that is not finite.

    A sum of positive terms that F divides by, t = Σ keep·exp(x − m), tells that none is; else they are counted, where
    H(d) may be infinite at finite d, or they are counted anyway.
    """
    kept = masks_that_keep(summand.function, derivation.elements)
    if not kept:
        return total
    below = {p.base for p in summand.factor.atoms(sp.Pow) if p.exp.is_negative}
    for earlier in derivation.done:
        if earlier.result not in below or earlier.reducer is not SUM:
            continue
        masks = masks_that_keep(earlier.element, derivation.elements)
        if masks and masks.items() <= kept.items() and strip_rounding(earlier.element.subs(masks)).is_positive:
            return sp.Piecewise((0, sp.Eq(earlier.result, 0)), (total, True))
    count = derivation.known(SUM, indicator(kept)) or derivation.known(SUM, sp.expand(-indicator(kept)))
    if count is None:
        read = [summand.factor, *(handle.value for handle in summand.tracked)]
        if not any(may_be_infinite(value, derivation.results) for value in read):
            return total
        count = derivation.component(reduction, SUM, indicator(kept))
    return sp.Piecewise((0, sp.Eq(count, 0)), (total, True))


def _joined_exponentials(derivation: Derivation, term: sp.Expr) -> sp.Expr:
    """exp(x − u)·exp(y − v) as exp(x + y − w), w = u + v: one exponent, which one reference bounds.

    SymPy writes such a product as exp(x + y − u − v) by itself. Where u and v bound it as they are, it stays so.
    Exponentials inside a rounding are joined with those that are factors there: apart, one may leave the dtype's range.
    """
    values = {h.symbol: h.value for h in derivation.handles}
    if isinstance(term, Round):
        value, dtype = term.args
        return Round(_joined_exponentials(derivation, _factors_written_out(value, values)), dtype)
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


def _factors_written_out(product: sp.Expr, values: Mapping[sp.Symbol, sp.Expr]) -> sp.Expr:
    """u·exp(x − v) with u written out as an exponential."""
    powers = {f for f in sp.Mul.make_args(product) if f.is_Symbol and isinstance(values.get(f), sp.exp)}
    moving = any(isinstance(f, sp.exp) and f.has(*values) for f in sp.Mul.make_args(product))
    return product.xreplace({f: values[f] for f in powers}) if moving else product


def _bounded_apart(derivation: Derivation, term: sp.Expr, exponent: sp.Expr) -> sp.Expr | None:
    """a + b − max a − max b over a handle of each, where they bound it: a and b may lie far from each other.

    At one reference near max a + max b, a + b would be rounded where (a − max a) + (b − max b) is not.
    """
    terms = sp.Add.make_args(sp.expand(exponent))
    moving, still = by_offset([t for t in terms if t.has(*derivation.results)], derivation.offsets)
    if len(moving) < 2 or still or any(t.has(*derivation.elements) for group in moving for t in group):
        return None
    rest = sp.Add(*(t for t in terms if not t.has(*derivation.results)))
    apart = rest + sp.Add(*(derivation.extracted(sp.Add(*group)) for group in moving))
    kept = conditions_that_keep(term, derivation.elements)
    return apart if derivation.bounds(apart, kept) else None


def _defer(derivation: Derivation, reduction: Reduction, term: sp.Expr, used: list[Handle]) -> Summand:
    """Takes out the handles that are factors, unless that moves a rounding out of its dtype's range."""
    summand = Summand(strip_rounding(term), term, sp.Integer(1), [])
    later: list[Handle] = []
    for handle in used:
        weight = factor_in(summand.function, handle.symbol, derivation.elements)
        in_scale = weight is not None and _leaves_range(summand.lift, handle.symbol)
        if in_scale and (shown := leaves_range_in_part(derivation.question(reduction, summand.lift))):
            raise derivation.refuse(reduction, "rounding_range", summand.lift, shown=shown)
        if weight is None or in_scale or _kept_in_scale(derivation, handle):
            summand.tracked.append(handle)
            continue
        later.append(handle)
        summand.factor *= weight.subs(handle.symbol, handle.value)
        summand.function, summand.lift = summand.function.subs(handle.symbol, 1), summand.lift.subs(handle.symbol, 1)
    named = tuple(derivation.plain(handle.value) for handle in later)
    derivation.deferred[reduction.result] = derivation.deferred.get(reduction.result, ()) + named
    return summand


def _without_parameters(summand: Summand, elements: Sequence[sp.Symbol]) -> Summand:
    """Parameters that are factors are applied at the end, so that no move divides by one that may be zero."""
    read = {handle.symbol for handle in summand.tracked}
    fixed = [
        f
        for f in sp.Mul.make_args(summand.lift)
        if f.free_symbols - {LENGTH} and not f.has(*elements, *read) and f in sp.Mul.make_args(summand.function)
    ]
    taken = sp.Mul(*fixed)
    return dataclasses.replace(
        summand, function=summand.function / taken, lift=summand.lift / taken, factor=summand.factor * taken
    )


def _kept_in_scale(derivation: Derivation, handle: Handle) -> bool:
    """Whether a factor built from max and min is replaced by a power of two, lest terms underflow."""
    power = derivation.move is Move.POWER_OF_TWO
    return power and tracking_gauge(handle, derivation.done) is Gauge.RUNNING


def _leaves_range(lift: sp.Expr, handle: sp.Symbol) -> bool:
    """Whether a rounding to a narrow range has the handle as a factor, and is not of exponentials alone."""
    for rounded in lift.atoms(Round):
        value, dtype = rounded.args
        if str(dtype) in NARROW_RANGE and value.has(handle):
            varying = [f for f in sp.Mul.make_args(value.subs(handle, 1)) if not f.is_number]
            if not all(isinstance(f, sp.exp) or not f.free_symbols for f in varying):
                return True
    return False


def in_exponent_units(derivation: Derivation, summand: Summand) -> Summand:
    """Rewrites exp(s·x − s·u), not known to be bounded by u, over w = s·u, so that no reference divides by s."""
    kept = conditions_that_keep(summand.function, derivation.elements)
    for handle in list(summand.tracked):
        for exponent in exponents(summand.function, handle.symbol, derivation.elements):
            if derivation.bounds(exponent, kept):
                continue
            slope = sp.diff(exponent, handle.symbol)
            if slope.has(handle.symbol, *derivation.elements) or slope == -1:
                continue
            unit = derivation.handles.of(sp.expand(-slope * handle.value))
            summand = dataclasses.replace(
                summand,
                function=_in_unit(summand.function, exponent, slope * handle.symbol, unit.symbol),
                lift=_in_unit(summand.lift, exponent, slope * handle.symbol, unit.symbol),
            )
            others = [h for h in summand.tracked if h.symbol in summand.function.free_symbols and h is not unit]
            summand = dataclasses.replace(summand, tracked=[*others, unit])
    return summand


def _without_shifts(derivation: Derivation, summand: Summand) -> Summand:
    """(x + p) − u, p a parameter, as x − (u − p): neither p + x nor a reference that has p keeps the digits of x."""
    if summand.lift != summand.function:
        return summand
    for handle in list(summand.tracked):
        part = translated_part(summand.function, handle.symbol, derivation.elements)
        if part is None or exponents(summand.function, handle.symbol, derivation.elements):
            continue
        shift, varying = part.as_independent(*derivation.elements, as_Add=True)
        reads = shift.free_symbols & {*(h.symbol for h in derivation.handles), *derivation.results}
        near = is_location(handle.value, part, derivation.done, derivation.meaning)
        if not shift.free_symbols - {LENGTH} or reads or near or varying == 0:
            continue
        apart = derivation.handles.beside(Handle(handle.symbol, handle.value - shift), varying)
        function = summand.function.subs(handle.symbol, apart.symbol + shift)
        tracked = [apart if h is handle else h for h in summand.tracked]
        summand = dataclasses.replace(summand, function=function, lift=function, tracked=tracked, basis=None)
    return summand


def _by_location(derivation: Derivation, summand: Summand) -> Summand:
    """Gives each difference its own location: (x − u)·(y − u), u near neither, becomes (x − u)·(y − v).

    So is (y − u)·exp(x − u) where u does not bound the exponent: the reference is then the largest x, which is near x
    where the exponential counts, and not near y.
    """
    elements, symbols = derivation.elements, [h.symbol for h in derivation.handles]
    split = summand
    for handle in summand.tracked:
        in_exponents = exponents(split.function, handle.symbol, elements)
        kept = conditions_that_keep(split.function, elements)
        if any(derivation.bounds(exponent, kept) for exponent in in_exponents):
            continue
        bare, hidden = _without_exponentials(split.function, handle)
        parts = translations(bare, handle.symbol, elements) or {}
        parts = {p: totals for p, totals in parts.items() if p - handle.symbol not in in_exponents}
        if len(parts) < (1 if in_exponents else 2) or any(p.has(*symbols, *hidden) for p in parts):
            continue
        if not in_exponents and any(is_location(handle.value, p, derivation.done, derivation.meaning) for p in parts):
            continue
        others = [(p, derivation.handles.beside(handle, p)) for p in list(parts)[0 if in_exponents else 1 :]]
        apart = {total: total.subs(handle.symbol, other.symbol) for part, other in others for total in parts[part]}
        function = bare.xreplace(apart).xreplace(hidden)
        split = dataclasses.replace(
            split, function=function, lift=function, tracked=[*split.tracked, *(other for _, other in others)]
        )
    if split is summand or summand.lift != summand.function:
        return summand
    basis = basis_by_derivatives(split.function, elements, [h.symbol for h in split.tracked])
    sound = basis is not None and basis.pivots is not None and basis.rank <= RANK_LIMIT
    return dataclasses.replace(split, basis=basis) if sound else summand


def _of_one_variable(summand: Summand, elements: Sequence[sp.Symbol]) -> bool:
    """Whether two differences read one variable at two scales, (x − u)·(x/64 − v)."""
    parts = [translated_part(summand.function, handle.symbol, elements) for handle in summand.tracked]
    varying = [part.as_independent(*elements, as_Add=True)[1] for part in parts if part is not None]
    ratios = (b / a for a, b in itertools.combinations(varying, 2))
    return any(not ratio.has(*elements) and ratio not in (1, -1) for ratio in ratios)


def _without_exponentials(function: sp.Expr, handle: Handle) -> tuple[sp.Expr, dict[sp.Symbol, sp.Expr]]:
    """The function with symbols for exponentials that read the handle, and the exponentials."""
    hidden = {e: sp.Dummy(positive=True) for e in function.atoms(sp.exp) if e.has(handle.symbol)}
    return function.xreplace(hidden), {symbol: e for e, symbol in hidden.items()}


def _in_unit(expression: sp.Expr, exponent: sp.Expr, moving: sp.Expr, unit: sp.Symbol) -> sp.Expr:
    """The expression with exp(a + moving), for the exponent a + moving up to roundings, as exp(a − unit)."""
    meant = [e for e in expression.atoms(sp.exp) if strip_rounding(e.args[0]) == exponent]
    return expression.xreplace({e: sp.exp(sp.expand(e.args[0] - moving) - unit) for e in meant})


def _by_mask(derivation: Derivation, reduction: Reduction, summand: Summand) -> sp.Expr:
    """exp(x − (keep ? u : v)) as keep·exp(x − u) + (1 − keep)·exp(x − v)."""
    mask = _deciding_masks(derivation, summand)[0]
    sides = ((mask, summand.lift.subs(mask, 1)), (1 - mask, summand.lift.subs(mask, 0)))
    return sp.Add(
        *(_term(derivation, reduction, weight * side, summand.tracked) for weight, side in sides if side != 0)
    )


def _deciding_masks(derivation: Derivation, summand: Summand) -> list[sp.Symbol]:
    """The masks that are no mere factors."""
    masks = masks_in(summand.function, derivation.elements)
    return [m for m in masks if summand.function.as_independent(m, as_Add=False)[1] not in (m, 1 - m)]


def _basis(derivation: Derivation, reduction: Reduction, summand: Summand, symbols: list[sp.Symbol]) -> Basis | None:
    """The basis; None where the element has to be split by a mask first."""
    basis = summand.basis or basis_by_derivatives(summand.function, derivation.elements, symbols)
    if basis is None and _deciding_masks(derivation, summand):
        return None
    if basis is None:
        shown = rank_grows(derivation.question(reduction, summand.function))
        code = "separation_unknown" if shown is None else "infinite_rank"
        raise derivation.refuse(reduction, code, summand.function, shown=shown)
    if basis.rank > 1 and summand.lift != summand.function:
        raise derivation.refuse(reduction, "rounding_rank", summand.function, summand.lift)
    return basis


def _apart(derivation: Derivation, reduction: Reduction, summand: Summand) -> sp.Expr:
    """The element as Σ G(x)·H(u) with one sum each: w·(x·u + y·v), whose factors may all vanish."""
    if summand.lift != summand.function:
        raise derivation.refuse(reduction, "rounding_rank", summand.lift)
    products = separate(summand.function, derivation.elements, [h.symbol for h in summand.tracked])
    if products and len(products) > 1:
        terms = [sp.powsimp(g * h) for g, h in products.items()]
        if any(_is_bare(term, summand, derivation.elements) for term in terms):
            raise derivation.refuse(reduction, "separation_unknown", summand.function)
        return sp.Add(*(_term(derivation, reduction, term, summand.tracked) for term in terms))
    # One product: factors of H(u) that may vanish cannot be divided out; only exponentials get references.
    weight = sp.Mul(*(products or {}).values())
    applied = sp.Mul(*(f for f in sp.Mul.make_args(sp.factor_terms(weight)) if not f.has(sp.exp)))
    if applied.is_number:
        raise derivation.refuse(reduction, "separation_unknown", summand.function)
    rest = sp.powsimp(simplified(summand.function / applied))
    values = {h.symbol: h.value for h in summand.tracked}
    return applied.xreplace(values) * _term(derivation, reduction, rest, summand.tracked)


def _is_bare(term: sp.Expr, summand: Summand, elements: Sequence[sp.Symbol]) -> bool:
    """Whether exp(x) lost the exp(−u) that bounded it."""
    came_with = {h.symbol for h in summand.tracked if exponents(summand.function, h.symbol, elements)}
    return bool(came_with) and any(e.has(*elements) and not e.has(*came_with) for e in term.atoms(sp.exp))


def _guarded_product(derivation: Derivation, summand: Summand, state: list[sp.Expr], final: sp.Expr) -> sp.Expr:
    """T·exp(c − u) with a c that need not end at u, guarded against a u that is out of range.

    Exponentials among the deferred factors join it: apart, one may overflow where the other is zero.
    """
    (component,), factor = state, final / state[0]
    infinite: list[sp.Expr] = []
    unbounded = False
    kept = conditions_that_keep(summand.function, derivation.elements)
    for handle in summand.tracked:
        for exponent in exponents(summand.function, handle.symbol, derivation.elements):
            if not derivation.bounds(exponent, kept):
                unbounded = True
                infinite += cancelled_results(exponent, handle, derivation.done)
    if not (unbounded and factor.has(sp.exp)):
        return summand.factor * final
    deferred = sp.Mul.make_args(summand.factor)
    joined = [f for f in (*sp.Mul.make_args(factor), *deferred) if isinstance(f, sp.exp)]
    others = [f for f in sp.Mul.make_args(factor) if f not in joined]
    scale = sp.Mul(*others) * sp.exp(sp.Add(*(f.args[0] for f in joined)))
    return sp.Mul(*(f for f in deferred if f not in joined)) * GuardedProduct(component, scale, *infinite)
