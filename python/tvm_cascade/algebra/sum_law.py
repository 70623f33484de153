"""Σ of elements of finite rank: factors deferred, the rest held at a reference and shifted."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import sympy as sp

from tvm_cascade.algebra.cascade import (
    LENGTH,
    Reduction,
    Round,
    Settled,
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


def sum_law(derivation: Derivation, reduction: Reduction, held: sp.Expr, used: list[Handle]) -> sp.Expr:
    """The result in the state that this law adds: Σ of the sum's terms, each with a state of its own."""
    return sp.Add(*(_term(derivation, reduction, term, used) for term in independent_terms(held, derivation)))


def independent_terms(held: sp.Expr, derivation: Derivation) -> list[sp.Expr]:
    """Terms that may be folded apart. x − u stays whole, since Σ x − N·u would cancel; exp(x − u) + w does not.

    Nor do w·exp(x − u) and w·(y − v), of w·(exp(x − u) + y − v).
    """
    elements, handles = derivation.elements, [h.symbol for h in derivation.handles]
    terms = [under_its_masks(term, elements) for term in sp.Add.make_args(held)]
    terms = [part for term in terms for part in _exponentials_apart(term, handles)]
    plain = [t for t in terms if not t.has(*handles)]
    reading = [t for t in terms if t not in plain and not t.has(*elements)]
    translated = [t for t in reading if t.is_polynomial(*handles) and _is_linear(t, handles)]
    rest = [t for t in terms if t not in plain and t not in translated]
    if plain and translated:
        return [sp.Add(*plain, *translated), *rest]
    return ([sp.Add(*plain)] if plain else []) + translated + rest


def _exponentials_apart(term: sp.Expr, handles: Sequence[sp.Symbol]) -> list[sp.Expr]:
    """w·f·exp(x − u), w·g of w·(f·exp(x − u) + g): what bounds the exponential is far from what g is to be held at."""
    totals = [f for f in sp.Mul.make_args(term) if isinstance(f, sp.Add)]
    for total in totals:
        moving = [t for t in total.args if any(e.has(*handles) for e in t.atoms(sp.exp))]
        if moving and len(moving) < len(total.args):
            return [term / total * part for part in (*moving, total - sp.Add(*moving))]
    return [term]


def _is_linear(term: sp.Expr, handles: list[sp.Symbol]) -> bool:
    return all(sp.diff(term, a, b) == 0 for a in handles for b in handles)


@dataclasses.dataclass
class Held:
    """A term with some handles taken out as factors.

    Attributes
    ----------
    function : the term without rounding; `lift` with it.
    factor : what is applied at the end.
    tracked : handles that are held at references.
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
    held = _defer(derivation, reduction, term, [h for h in derivation.handles if h.symbol in term.free_symbols])
    if not held.tracked:
        powers = _powers(derivation, held)
        if powers is None:
            total = held.factor * derivation.component(reduction, SUM, held.lift)
        else:
            state = MovedState(derivation, reduction, (held.lift,), sp.eye(1), [], [])
            total = powers.rest * state.final_in_units(powers)
        return _where_kept(derivation, held, total, reduction)
    held = _without_parameters(held, elements)
    if reads_slopes(held.function, held.tracked, elements) and (moments := _moments(derivation, reduction, held)):
        return _where_kept(derivation, held, moments, reduction)
    held = _without_shifts(derivation, _by_location(derivation, in_exponent_units(derivation, held)))
    if _of_one_variable(held, elements) and (moments := _moments(derivation, reduction, held)):
        return _where_kept(derivation, held, moments, reduction)
    symbols = [handle.symbol for handle in held.tracked]
    if any(h.symbol in held.lift.free_symbols and h.symbol not in symbols for h in derivation.handles):
        raise derivation.refuse(reduction, "rounding_rank", held.lift)  # a rounding holds what had to move
    basis = _basis(derivation, reduction, held, symbols)
    if basis is not None and (basis.rank > RANK_LIMIT or basis.pivots is None):
        if moments := _moments(derivation, reduction, held):
            return _where_kept(derivation, held, moments, reduction)
        if basis.rank > RANK_LIMIT:
            raise derivation.refuse(reduction, "rank_limit", held.function)
    if basis is None:
        return _where_kept(derivation, held, held.factor * _by_mask(derivation, reduction, held), reduction)
    if basis.pivots is None:
        return _where_kept(derivation, held, held.factor * _apart(derivation, reduction, held), reduction)
    return _where_kept(derivation, held, _at_references(derivation, reduction, held, basis), reduction)


def _moments(derivation: Derivation, reduction: Reduction, held: Held) -> sp.Expr | None:
    """The term from moments about the means of its elements; None where it is no such polynomial, or is rounded."""
    if held.lift != held.function:
        return None
    moments = about_the_means(derivation, reduction, held.function, held.tracked)
    return None if moments is None else held.factor * moments


def _at_references(derivation: Derivation, reduction: Reduction, held: Held, basis: Basis) -> sp.Expr:
    """The term from a state of the basis's functions, held at references of its handles."""
    references = [
        log_reference(derivation, handle, held.function) or reference_of(derivation, reduction, handle, held.function)
        for handle in held.tracked
    ]
    symbols = [handle.symbol for handle in held.tracked]
    shift = shift_matrix(basis, symbols, [Step(r.symbol, r.moved, r.step) for r in references])
    if shift is None:
        raise derivation.refuse(reduction, "separation_unknown", held.function)
    functions = tuple(joined_where_opposed(f, derivation.elements) for f in (held.lift, *basis.functions[1:]))
    state = MovedState(derivation, reduction, functions, shift, held.tracked, references)
    powers = None if any(isinstance(r, LogReference) for r in references) else _powers(derivation, held)
    if powers is not None:
        return powers.rest * state.final_in_units(powers)
    final = state.final()
    return _settled(derivation, held, state.components, final) if len(functions) == 1 else held.factor * final


def _powers(derivation: Derivation, held: Held) -> Powers | None:
    return powers_in_range(derivation, held.function, held.factor) if held.lift == held.function else None


def _where_kept(derivation: Derivation, held: Held, total: sp.Expr, reduction: Reduction) -> sp.Expr:
    """Σ keep·F(x, d) where no position is kept: 0, as unfused, rather than 0·H(d) with an H(d) that is not finite.

    A sum of positive terms that F divides by, t = Σ keep·exp(x − m), tells that none is; else they are counted, where
    H(d) may be infinite at finite d, or they are counted anyway.
    """
    kept = masks_that_keep(held.function, derivation.elements)
    if not kept:
        return total
    below = {p.base for p in held.factor.atoms(sp.Pow) if p.exp.is_negative}
    for earlier in derivation.done:
        if earlier.result not in below or earlier.reducer is not SUM:
            continue
        masks = masks_that_keep(earlier.element, derivation.elements)
        if masks and masks.items() <= kept.items() and strip_rounding(earlier.element.subs(masks)).is_positive:
            return sp.Piecewise((0, sp.Eq(earlier.result, 0)), (total, True))
    count = derivation.known(SUM, indicator(kept)) or derivation.known(SUM, sp.expand(-indicator(kept)))
    if count is None:
        read = [held.factor, *(handle.value for handle in held.tracked)]
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
    """u·exp(x − v) with u as the exponential that it stands for."""
    powers = {f for f in sp.Mul.make_args(product) if f.is_Symbol and isinstance(values.get(f), sp.exp)}
    moving = any(isinstance(f, sp.exp) and f.has(*values) for f in sp.Mul.make_args(product))
    return product.xreplace({f: values[f] for f in powers}) if moving else product


def _bounded_apart(derivation: Derivation, term: sp.Expr, exponent: sp.Expr) -> sp.Expr | None:
    """a + b − max a − max b over a handle of each, where they bound it: a and b may lie far from each other.

    Held at one reference near max a + max b, a + b would be rounded where (a − max a) + (b − max b) is not.
    """
    terms = sp.Add.make_args(sp.expand(exponent))
    moving, still = by_offset([t for t in terms if t.has(*derivation.results)], derivation.offsets)
    if len(moving) < 2 or still or any(t.has(*derivation.elements) for group in moving for t in group):
        return None
    rest = sp.Add(*(t for t in terms if not t.has(*derivation.results)))
    apart = rest + sp.Add(*(derivation.extracted(sp.Add(*group)) for group in moving))
    kept = conditions_that_keep(term, derivation.elements)
    return apart if derivation.bounds(apart, kept) else None


def _defer(derivation: Derivation, reduction: Reduction, term: sp.Expr, used: list[Handle]) -> Held:
    """Takes out the handles that are factors, unless that moves a rounding out of its dtype's range."""
    held = Held(strip_rounding(term), term, sp.Integer(1), [])
    later: list[Handle] = []
    for handle in used:
        weight = factor_in(held.function, handle.symbol, derivation.elements)
        in_scale = weight is not None and _leaves_range(held.lift, handle.symbol)
        if in_scale and (shown := leaves_range_in_part(derivation.question(reduction, held.lift))):
            raise derivation.refuse(reduction, "rounding_range", held.lift, shown=shown)
        if weight is None or in_scale or _kept_in_scale(derivation, handle):
            held.tracked.append(handle)
            continue
        later.append(handle)
        held.factor *= weight.subs(handle.symbol, handle.value)
        held.function, held.lift = held.function.subs(handle.symbol, 1), held.lift.subs(handle.symbol, 1)
    named = tuple(derivation.plain(handle.value) for handle in later)
    derivation.deferred[reduction.result] = derivation.deferred.get(reduction.result, ()) + named
    return held


def _without_parameters(held: Held, elements: Sequence[sp.Symbol]) -> Held:
    """Parameters that are factors are applied at the end, so that no move divides by one that may be zero."""
    read = {handle.symbol for handle in held.tracked}
    fixed = [
        f
        for f in sp.Mul.make_args(held.lift)
        if f.free_symbols - {LENGTH} and not f.has(*elements, *read) and f in sp.Mul.make_args(held.function)
    ]
    taken = sp.Mul(*fixed)
    return dataclasses.replace(held, function=held.function / taken, lift=held.lift / taken, factor=held.factor * taken)


def _kept_in_scale(derivation: Derivation, handle: Handle) -> bool:
    """Whether a factor built from max and min is to be held at a power of two instead, lest terms underflow."""
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


def in_exponent_units(derivation: Derivation, held: Held) -> Held:
    """exp(s·x − s·u), not known to be bounded by u: held at w = s·u instead, so that no reference divides by s."""
    kept = conditions_that_keep(held.function, derivation.elements)
    for handle in list(held.tracked):
        for exponent in exponents(held.function, handle.symbol, derivation.elements):
            if derivation.bounds(exponent, kept):
                continue
            slope = sp.diff(exponent, handle.symbol)
            if slope.has(handle.symbol, *derivation.elements) or slope == -1:
                continue
            unit = derivation.handles.of(sp.expand(-slope * handle.value))
            held = dataclasses.replace(
                held,
                function=_in_unit(held.function, exponent, slope * handle.symbol, unit.symbol),
                lift=_in_unit(held.lift, exponent, slope * handle.symbol, unit.symbol),
            )
            others = [h for h in held.tracked if h.symbol in held.function.free_symbols and h is not unit]
            held = dataclasses.replace(held, tracked=[*others, unit])
    return held


def _without_shifts(derivation: Derivation, held: Held) -> Held:
    """(x + p) − u, p a parameter, as x − (u − p): neither p + x nor a reference that has p keeps the digits of x."""
    if held.lift != held.function:
        return held
    for handle in list(held.tracked):
        part = translated_part(held.function, handle.symbol, derivation.elements)
        if part is None or exponents(held.function, handle.symbol, derivation.elements):
            continue
        shift, varying = part.as_independent(*derivation.elements, as_Add=True)
        reads = shift.free_symbols & {*(h.symbol for h in derivation.handles), *derivation.results}
        near = is_location(handle.value, part, derivation.done, derivation.meaning)
        if not shift.free_symbols - {LENGTH} or reads or near or varying == 0:
            continue
        apart = derivation.handles.beside(Handle(handle.symbol, handle.value - shift), varying)
        function = held.function.subs(handle.symbol, apart.symbol + shift)
        tracked = [apart if h is handle else h for h in held.tracked]
        held = dataclasses.replace(held, function=function, lift=function, tracked=tracked, basis=None)
    return held


def _by_location(derivation: Derivation, held: Held) -> Held:
    """Each difference that reads u held near its own data: (x − u)·(y − u), u near neither, as (x − u)·(y − v).

    So is (y − u)·exp(x − u) where u does not bound the exponent: u is then held at the largest x, which is near x
    where the exponential counts, and not near y.
    """
    elements, symbols = derivation.elements, [h.symbol for h in derivation.handles]
    split = held
    for handle in held.tracked:
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
    if split is held or held.lift != held.function:
        return held
    basis = basis_by_derivatives(split.function, elements, [h.symbol for h in split.tracked])
    sound = basis is not None and basis.pivots is not None and basis.rank <= RANK_LIMIT
    return dataclasses.replace(split, basis=basis) if sound else held


def _of_one_variable(held: Held, elements: Sequence[sp.Symbol]) -> bool:
    """Whether two differences read one variable at two scales, (x − u)·(x/64 − v): one tells the other badly."""
    parts = [translated_part(held.function, handle.symbol, elements) for handle in held.tracked]
    varying = [part.as_independent(*elements, as_Add=True)[1] for part in parts if part is not None]
    ratios = (b / a for a, b in itertools.combinations(varying, 2))
    return any(not ratio.has(*elements) and ratio not in (1, -1) for ratio in ratios)


def _without_exponentials(function: sp.Expr, handle: Handle) -> tuple[sp.Expr, dict[sp.Symbol, sp.Expr]]:
    """The function with symbols for exponentials that read the handle, and what they stand for."""
    hidden = {e: sp.Dummy(positive=True) for e in function.atoms(sp.exp) if e.has(handle.symbol)}
    return function.xreplace(hidden), {symbol: e for e, symbol in hidden.items()}


def _in_unit(expression: sp.Expr, exponent: sp.Expr, moving: sp.Expr, unit: sp.Symbol) -> sp.Expr:
    """The expression with exp(a + moving), for the exponent a + moving up to roundings, as exp(a − unit)."""
    meant = [e for e in expression.atoms(sp.exp) if strip_rounding(e.args[0]) == exponent]
    return expression.xreplace({e: sp.exp(sp.expand(e.args[0] - moving) - unit) for e in meant})


def _by_mask(derivation: Derivation, reduction: Reduction, held: Held) -> sp.Expr:
    """exp(x − (keep ? u : v)) as keep·exp(x − u) + (1 − keep)·exp(x − v)."""
    mask = _deciding_masks(derivation, held)[0]
    sides = ((mask, held.lift.subs(mask, 1)), (1 - mask, held.lift.subs(mask, 0)))
    return sp.Add(*(_term(derivation, reduction, weight * side, held.tracked) for weight, side in sides if side != 0))


def _deciding_masks(derivation: Derivation, held: Held) -> list[sp.Symbol]:
    """The masks that are no mere factors."""
    masks = masks_in(held.function, derivation.elements)
    return [m for m in masks if held.function.as_independent(m, as_Add=False)[1] not in (m, 1 - m)]


def _basis(derivation: Derivation, reduction: Reduction, held: Held, symbols: list[sp.Symbol]) -> Basis | None:
    """The basis; None where the element is to be taken apart by a mask first."""
    basis = held.basis or basis_by_derivatives(held.function, derivation.elements, symbols)
    if basis is None and _deciding_masks(derivation, held):
        return None
    if basis is None:
        shown = rank_grows(derivation.question(reduction, held.function))
        code = "separation_unknown" if shown is None else "infinite_rank"
        raise derivation.refuse(reduction, code, held.function, shown=shown)
    if basis.rank > 1 and held.lift != held.function:
        raise derivation.refuse(reduction, "rounding_rank", held.function, held.lift)
    return basis


def _apart(derivation: Derivation, reduction: Reduction, held: Held) -> sp.Expr:
    """The element as Σ G(x)·H(u), each product folded on its own: w·(x·u + y·v), whose parts may all vanish."""
    if held.lift != held.function:
        raise derivation.refuse(reduction, "rounding_rank", held.lift)
    products = separate(held.function, derivation.elements, [h.symbol for h in held.tracked])
    if products and len(products) > 1:
        terms = [sp.powsimp(g * h) for g, h in products.items()]
        if any(_is_bare(term, held, derivation.elements) for term in terms):
            raise derivation.refuse(reduction, "separation_unknown", held.function)
        return sp.Add(*(_term(derivation, reduction, term, held.tracked) for term in terms))
    # One product: what may vanish of H(u) is no reference's business, exponentials are.
    weight = sp.Mul(*(products or {}).values())
    applied = sp.Mul(*(f for f in sp.Mul.make_args(sp.factor_terms(weight)) if not f.has(sp.exp)))
    if applied.is_number:
        raise derivation.refuse(reduction, "separation_unknown", held.function)
    rest = sp.powsimp(simplified(held.function / applied))
    values = {h.symbol: h.value for h in held.tracked}
    return applied.xreplace(values) * _term(derivation, reduction, rest, held.tracked)


def _is_bare(term: sp.Expr, held: Held, elements: Sequence[sp.Symbol]) -> bool:
    """Whether exp(x) stands apart from the exp(−u) that it came with: then it is not bounded."""
    came_with = {h.symbol for h in held.tracked if exponents(held.function, h.symbol, elements)}
    return bool(came_with) and any(e.has(*elements) and not e.has(*came_with) for e in term.atoms(sp.exp))


def _settled(derivation: Derivation, held: Held, state: list[sp.Expr], final: sp.Expr) -> sp.Expr:
    """T·exp(c − u) with a c that need not end at u, guarded against a u that is out of range.

    Exponentials among the deferred factors join it: apart, one may overflow where the other is zero.
    """
    (component,), factor = state, final / state[0]
    infinite: list[sp.Expr] = []
    unbounded = False
    kept = conditions_that_keep(held.function, derivation.elements)
    for handle in held.tracked:
        for exponent in exponents(held.function, handle.symbol, derivation.elements):
            if not derivation.bounds(exponent, kept):
                unbounded = True
                infinite += cancelled_results(exponent, handle, derivation.done)
    if not (unbounded and factor.has(sp.exp)):
        return held.factor * final
    deferred = sp.Mul.make_args(held.factor)
    joined = [f for f in (*sp.Mul.make_args(factor), *deferred) if isinstance(f, sp.exp)]
    others = [f for f in sp.Mul.make_args(factor) if f not in joined]
    scale = sp.Mul(*others) * sp.exp(sp.Add(*(f.args[0] for f in joined)))
    return sp.Mul(*(f for f in deferred if f not in joined)) * Settled(component, scale, *infinite)
