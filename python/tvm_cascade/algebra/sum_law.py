"""Σ of elements of finite rank: factors deferred, the rest held at a reference and shifted."""

from __future__ import annotations

import dataclasses

import sympy as sp

from tvm_cascade.algebra.cascade import COUNT, LENGTH, Reduction, Round
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.fold import Reference
from tvm_cascade.algebra.gauge import (
    Gauge,
    Handle,
    bounded_by_results,
    exponents,
    factor_in,
    may_be_singular,
    may_cancel,
    only_in_waves,
    tracking_gauge,
    translated_part,
)
from tvm_cascade.algebra.reducer import MAX, SUM
from tvm_cascade.algebra.separate import (
    RANK_LIMIT,
    Basis,
    Move,
    basis_by_derivatives,
    numeric_rank_exceeds,
    separate,
    shift_matrix,
    strip_rounding,
)

NARROW_RANGE = ("float16", "float8_e4m3fn", "float8_e5m2")
"""Dtypes whose exponent range is so small that rounding at another scale may overflow or lose digits."""


def sum_law(derivation: Derivation, reduction: Reduction, held: sp.Expr, used: list[Handle]) -> sp.Expr:
    """The result in the state that this law adds: Σ of the sum's terms, each with a state of its own."""
    return sp.Add(*(_term(derivation, reduction, term, used) for term in independent_terms(held, derivation)))


def independent_terms(held: sp.Expr, derivation: Derivation) -> list[sp.Expr]:
    """Terms that may be folded apart. x − u stays whole, since Σ x − N·u would cancel; exp(x − u) + w does not."""
    elements, handles = derivation.elements, [h.symbol for h in derivation.handles]
    terms = sp.Add.make_args(held)
    plain = [t for t in terms if not t.has(*handles)]
    reading = [t for t in terms if t not in plain and not t.has(*elements)]
    translations = [t for t in reading if t.is_polynomial(*handles) and _is_linear(t, handles)]
    rest = [t for t in terms if t not in plain and t not in translations]
    if plain and translations:
        return [sp.Add(*plain, *translations), *rest]
    return ([sp.Add(*plain)] if plain else []) + translations + rest


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
    """

    function: sp.Expr
    lift: sp.Expr
    factor: sp.Expr
    tracked: list[Handle]


def _term(derivation: Derivation, reduction: Reduction, term: sp.Expr, used: list[Handle]) -> sp.Expr:
    elements = derivation.elements
    if not term.has(*elements):
        return LENGTH * term.xreplace({h.symbol: h.value for h in used})
    held = _defer(derivation, reduction, term, [h for h in used if h.symbol in term.free_symbols])
    if not held.tracked:
        return held.factor * derivation.component(reduction, SUM, held.lift)
    held = in_exponent_units(derivation, held)
    symbols = [handle.symbol for handle in held.tracked]
    if any(h.symbol in held.lift.free_symbols and h.symbol not in symbols for h in derivation.handles):
        raise derivation.refuse(reduction, "rounding_rank", held.lift)  # a rounding holds what had to move
    basis = _basis(derivation, reduction, held, symbols)
    if basis.pivots is None:
        return held.factor * _apart(derivation, reduction, held)
    references = [reference_of(derivation, reduction, handle, held.function) for handle in held.tracked]
    shift = shift_matrix(basis, symbols, [Move(r.symbol, r.moved, r.step) for r in references])
    if shift is None:
        raise derivation.refuse(reduction, "separation_unknown", held.function)
    fixed = {r.symbol: sp.Integer(0) for r in references if r.gauge is Gauge.DEFERRED}
    old = {u: fixed.get(r.symbol, r.symbol) for u, r in zip(symbols, references, strict=True)}
    lifts = [f.subs(old, simultaneous=True) for f in (held.lift, *basis.functions[1:])]
    unmoved = {s: sp.Integer(0) for r in references if r.symbol in fixed for s in (r.symbol, r.moved, r.step)}
    state = _add_state(derivation, reduction, lifts, shift.subs(unmoved))
    return held.factor * _at_results(shift, state, references, held.tracked).xreplace(fixed)


def _defer(derivation: Derivation, reduction: Reduction, term: sp.Expr, used: list[Handle]) -> Held:
    """Takes out the handles that are factors, unless that moves a rounding out of its dtype's range."""
    held = Held(strip_rounding(term), term, sp.Integer(1), [])
    later: list[Handle] = []
    for handle in used:
        weight = factor_in(held.function, handle.symbol, derivation.elements)
        if weight is None or _leaves_range(held.lift, handle.symbol):
            held.tracked.append(handle)
            continue
        later.append(handle)
        held.factor *= weight.subs(handle.symbol, handle.value)
        held.function, held.lift = held.function.subs(handle.symbol, 1), held.lift.subs(handle.symbol, 1)
    named = tuple(derivation.plain(handle.value) for handle in later)
    derivation.deferred[reduction.result] = derivation.deferred.get(reduction.result, ()) + named
    return held


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
    for handle in list(held.tracked):
        for exponent in exponents(held.function, handle.symbol, derivation.elements):
            if bounded_by_results(exponent, handle, derivation.done):
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
            kept = [h for h in held.tracked if h.symbol in held.function.free_symbols and h is not unit]
            held = dataclasses.replace(held, tracked=[*kept, unit])
    return held


def _in_unit(expression: sp.Expr, exponent: sp.Expr, moving: sp.Expr, unit: sp.Symbol) -> sp.Expr:
    """The expression with exp(a + moving), for the exponent a + moving up to roundings, as exp(a − unit)."""
    meant = [e for e in expression.atoms(sp.exp) if strip_rounding(e.args[0]) == exponent]
    return expression.xreplace({e: sp.exp(sp.expand(e.args[0] - moving) - unit) for e in meant})


def _basis(derivation: Derivation, reduction: Reduction, held: Held, symbols: list[sp.Symbol]) -> Basis:
    basis = basis_by_derivatives(held.function, derivation.elements, symbols)
    if basis is None:
        exceeded = numeric_rank_exceeds(held.function, derivation.elements, symbols, RANK_LIMIT)
        raise derivation.refuse(reduction, "infinite_rank" if exceeded else "separation_unknown", held.function)
    if basis.rank > RANK_LIMIT:
        raise derivation.refuse(reduction, "rank_limit", held.function)
    if basis.rank > 1 and held.lift != held.function:
        raise derivation.refuse(reduction, "rounding_rank", held.lift)
    return basis


def _apart(derivation: Derivation, reduction: Reduction, held: Held) -> sp.Expr:
    """The element as Σ G(x)·H(u), each product folded on its own: w·(x·u + y·v), whose parts may all vanish."""
    if held.lift != held.function:
        raise derivation.refuse(reduction, "rounding_rank", held.lift)
    products = separate(held.function, derivation.elements, [h.symbol for h in held.tracked])
    if products is None or len(products) < 2:
        raise derivation.refuse(reduction, "separation_unknown", held.function)
    return sp.Add(*(_term(derivation, reduction, g * h, held.tracked) for g, h in products.items()))


def _add_state(derivation: Derivation, reduction: Reduction, lifts: list[sp.Expr], shift: sp.Matrix) -> list[sp.Expr]:
    """The component of each lift: the count for one that does not vary, an earlier component with the same lift."""
    state: list[sp.Expr] = []
    new: list[int] = []
    for k, lift in enumerate(lifts):
        known = derivation.known(SUM, lift)
        if not lift.has(*derivation.elements):
            state.append(COUNT * lift)
        elif known is not None:
            state.append(known)
        else:
            state.append(derivation.unused(reduction, ahead=len(new)))
            new.append(k)
    for k in new:
        moved = sum((shift[k, j] * state[j] for j in range(len(lifts))), sp.Integer(0))
        derivation.add(reduction, SUM, lifts[k], sp.powsimp(sp.expand(moved)) if moved.has(sp.exp) else moved)
    return state


def _at_results(shift: sp.Matrix, state: list[sp.Expr], references: list[Reference], tracked: list[Handle]) -> sp.Expr:
    """Component 0 shifted to the final results. A reference that ends at its quantity needs no shift."""
    final = sp.Add(*(shift[0, j] * state[j] for j in range(len(state)))).subs(COUNT, LENGTH)
    for reference, handle in zip(references, tracked, strict=True):
        if reference.guarded or reference.auxiliary or reference.gauge is Gauge.DEFERRED:
            final = final.xreplace({reference.step: handle.value - reference.symbol, reference.moved: handle.value})
        else:
            final = final.subs({reference.moved: reference.symbol, reference.step: 0})
    return final


def reference_of(derivation: Derivation, reduction: Reduction, handle: Handle, function: sp.Expr) -> Reference:
    """Where the handle's quantity is held: by range analysis (see `gauge`)."""
    results, done = derivation.results, derivation.done
    unbounded = {
        e for e in exponents(function, handle.symbol, derivation.elements) if not bounded_by_results(e, handle, done)
    }
    if unbounded:
        exponent = unbounded.pop()
        if unbounded or sp.diff(exponent, handle.symbol) != -1:
            raise derivation.refuse(reduction, "separation_unknown", exponent)
        largest = derivation.component(reduction, MAX, exponent.subs(handle.symbol, 0))
        return derivation.refer((handle, "bound", largest), handle.value, Gauge.RUNNING, largest, auxiliary=True)
    if only_in_waves(function, handle.symbol):
        return derivation.constant(handle.value)
    gauge = tracking_gauge(handle, done)
    part = translated_part(function, handle.symbol, derivation.elements)
    if part is not None and part.free_symbols & {h.symbol for h in derivation.handles}:
        part = None
    # A total N·mean and an exponential are predicted badly while data drift: Σ (x − c)² about a bad c cancels later.
    predicted = derivation.predicted(handle.value, gauge)
    extrapolates = predicted.has(sp.exp) or (gauge is Gauge.CENTRED and predicted.has(LENGTH))
    if part is not None and (extrapolates or may_cancel(handle.value, results)):
        mean = derivation.component(reduction, SUM, part) / COUNT
        return derivation.refer((handle, "mean", mean), handle.value, gauge, mean, auxiliary=True)
    scale = factor_in(function, handle.symbol, derivation.elements) is not None
    value = derivation.predicted(handle.value, gauge)
    guarded = scale or may_be_singular(value, value.free_symbols - {COUNT, LENGTH})
    return derivation.refer(
        (handle, "scale" if scale else ""), handle.value, gauge, value, guarded=guarded, scale=scale
    )
