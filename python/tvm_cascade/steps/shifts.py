"""The inputs of a shift besides references: loop-invariant coefficients, and values before the move."""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from tvm_cascade.algebra.fold import Component, Fold
from tvm_cascade.symbolic.work import terms_of_exponentials


@dataclass(frozen=True)
class Coefficient:
    """A factor of a shift that depends on references alone, computed once per row: exp(c − c′).

    Attributes
    ----------
    symbol : what stands for it.
    expression : in the steps and values of references, the count, and parameters.
    home : the reference after whose move it is computed.
    """

    symbol: sp.Symbol
    expression: sp.Expr
    home: sp.Symbol


@dataclass(frozen=True)
class ShiftPlan:
    """Shifts over coefficients, and the values that are saved before a move.

    Attributes
    ----------
    shifts : of each component, with coefficients taken out.
    coefficients : in order of computation.
    remembered : components and references whose old value another shift reads.
    decay : for references whose moves scale every component by exp(±k·step): the smallest k.
    """

    shifts: dict[sp.Symbol, sp.Expr]
    coefficients: tuple[Coefficient, ...]
    remembered: frozenset[sp.Symbol]
    decay: dict[sp.Symbol, float]


def plan_shifts(fold: Fold) -> ShiftPlan:
    """Hoists the loop-invariant coefficients out of a fold's shifts."""
    shifts = {c.symbol: c.shift for c in fold.components}
    of_references = {s for r in fold.references for s in (r.symbol, r.moved, r.step)}
    coefficients: list[Coefficient] = []
    functions = {f for shift in shifts.values() for f in shift.atoms(sp.Function, sp.Pow) if _costly(f)}
    for function in sorted(functions, key=lambda f: (-sp.count_ops(f), str(f))):
        read = function.free_symbols & of_references
        components = function.free_symbols & {c.symbol for c in fold.components}
        homes = [r for r in fold.references if read & {r.symbol, r.moved, r.step}]
        if not read or components or not any(shift.has(function) for shift in shifts.values()):
            continue
        symbol = sp.Symbol(f"scale_{homes[-1].symbol}_{len(coefficients)}", real=True)
        coefficients.append(Coefficient(symbol, function, homes[-1].symbol))
        shifts = {key: shift.xreplace({function: symbol}) for key, shift in shifts.items()}
    return ShiftPlan(shifts, tuple(coefficients), frozenset(_remembered(fold, shifts, coefficients)), _decays(fold))


def _decays(fold: Fold) -> dict[sp.Symbol, float]:
    """References whose step stands under an exponential in every term that reads it.

    Such a step may be cut off where its exponential is zero anyway: Δ²·exp(−Δ) is then 0, not inf·0.
    """
    decays: dict[sp.Symbol, float] = {}
    terms = [t for c in fold.components if c.moves for t in sp.Add.make_args(terms_of_exponentials(c.shift))]
    for reference in fold.references:
        rates = [_rate(term, reference.step) for term in terms if term.has(reference.step)]
        if rates and all(rate is not None for rate in rates):
            decays[reference.symbol] = min(float(rate) for rate in rates if rate is not None)
    return decays


def _rate(term: sp.Expr, step: sp.Symbol) -> sp.Expr | None:
    """|k| of a term's factor exp(k·step + …); None where it has none."""
    slopes = [sp.diff(f.args[0], step) for f in sp.Mul.make_args(term) if isinstance(f, sp.exp) and f.has(step)]
    return abs(slopes[0]) if len(slopes) == 1 and slopes[0].is_number and slopes[0] != 0 else None


def _costly(function: sp.Expr) -> bool:
    return not (isinstance(function, sp.Pow) and function.exp.is_Integer and function.exp > 0)


def _remembered(fold: Fold, shifts: dict[sp.Symbol, sp.Expr], coefficients: list[Coefficient]) -> set[sp.Symbol]:
    old = {r.symbol for r in fold.references}
    components = {c.symbol for c in fold.components}
    found = {s for key, shift in shifts.items() for s in shift.free_symbols & components if s != key}
    for expression in [*shifts.values(), *(c.expression for c in coefficients)]:
        found |= expression.free_symbols & old
    return found


def update_order(components: list[Component], shifts: dict[sp.Symbol, sp.Expr]) -> list[list[Component]]:
    """Components in update order: each after those whose old values it reads; cyclic ones together."""
    symbols = {c.symbol for c in components}
    reads = {c.symbol: (shifts[c.symbol].free_symbols & symbols) - {c.symbol} for c in components}
    remaining, order = list(components), []
    while remaining:
        ready = [c for c in remaining if not reads[c.symbol] & {r.symbol for r in remaining}]
        group = [ready[0]] if ready else [c for c in remaining if c.owner == remaining[0].owner]
        order.append(group)
        remaining = [c for c in remaining if c not in group]
    return order
