"""A budget of symbolic work: every derivation ends, with the same verdict on any machine.

Work is counted in operations of the expressions that SymPy rewrites, never in seconds. Rewriting goes through this
file, because SymPy's own has no bound: expressions above SIMPLIFIED_OPS, with waves (sin, tanh) above WAVES_OPS, stay
as they are unless they are zero.

| rewriting  | cost of an expression of k operations  |
|------------|----------------------------------------|
| simplified | 1 + k, of a large one 1 + k/10         |
| factored   | 1 + k/2                                |
| cancelled  | 1 + k/2                                |
| expanded   | a tenth of the terms that may come out |
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import sympy as sp
from sympy.functions.elementary.hyperbolic import HyperbolicFunction
from sympy.functions.elementary.trigonometric import TrigonometricFunction

from tvm_cascade.symbolic.sampling import vanishes

WORK = 3000
"""Operations that one derivation may spend: about six seconds. Of random cascades one in hundreds needs a second."""

SIMPLIFIED_OPS = 250
WAVES_OPS = 60
MIXED_OPS = 20
FACTORED_OPS = 120
"""Operations up to which SymPy's simplify, that of waves, that of a hyperbolic one beside exponentials of the same
quantities, and factoring and cancelling, end soon."""


class ExhaustedError(Exception):
    """The budget is exhausted, with the operation that did it; `derive` turns it into a verdict."""


@dataclass
class Work:
    """Operations spent of a budget.

    Attributes
    ----------
    simpler : the simpler form of each expression that was simplified: the same ones come again and again.
    """

    limit: float
    spent: float = 0.0
    simpler: dict[sp.Expr, sp.Expr] = field(default_factory=dict)


_current: ContextVar[Work | None] = ContextVar("work", default=None)


@contextmanager
def budget(limit: float) -> Iterator[Work]:
    """A budget for the block; an enclosing budget is not charged."""
    work = Work(limit)
    token = _current.set(work)
    try:
        yield work
    finally:
        _current.reset(token)


def charge(operations: float, what: str) -> None:
    """Charges operations to the current budget, if any.

    Raises
    ------
    ExhaustedError
        Where that is more than is left.
    """
    work = _current.get()
    if work is None:
        return
    work.spent += operations
    if work.spent > work.limit:
        raise ExhaustedError(f"{what}, after {work.limit:g} operations")


def _operations(expression: sp.Expr) -> int:
    return int(sp.count_ops(expression))


def simplified(expression: sp.Expr) -> sp.Expr:
    """The simplified expression; a large one unchanged, or 0 where it vanishes. Exponentials stay exponentials."""
    size = _operations(expression)
    if size > (WAVES_OPS if expression.has(TrigonometricFunction, HyperbolicFunction) else SIMPLIFIED_OPS):
        charge(1 + size / 10, "simplifying")
        return sp.Integer(0) if vanishes(expression) else expression
    charge(1 + size, "simplifying")
    if _is_simple(expression):
        return expression
    work = _current.get()
    if work is None:
        return _simpler(expression)
    if expression not in work.simpler:
        work.simpler[expression] = _simpler(expression)
    return work.simpler[expression]


def _is_simple(expression: sp.Expr) -> bool:
    """Whether it is a product of whole powers of symbols, and of at most one exponential of such a product."""
    powers = [f.as_base_exp() for f in sp.Mul.make_args(expression) if not isinstance(f, sp.exp)]
    plain = all(e.is_Integer and (b.is_Symbol or b.is_Integer or (e == 1 and b.is_Rational)) for b, e in powers)
    exponentials = [f.args[0] for f in sp.Mul.make_args(expression) if isinstance(f, sp.exp)]
    return plain and (not exponentials or (len(exponentials) == 1 and _is_simple(exponentials[0])))


def _simpler(expression: sp.Expr) -> sp.Expr:
    # SymPy writes a sign as cases of which one is 0, and loses itself where that is divided by.
    expression = expression.replace(_is_reciprocal_sign, lambda power: 1 / power)
    met = expression.atoms(TrigonometricFunction, HyperbolicFunction)
    if met and len({isinstance(wave, HyperbolicFunction) for wave in met}) == len(met):  # at most one of either kind
        known = {wave: sp.Symbol(f"_{wave.func}", real=wave.is_real) for wave in met}
        beside = _by_sympy(expression.xreplace(known))
        found = beside.xreplace({symbol: wave for wave, symbol in known.items()})
        if all(_is_apart(wave, beside) for wave in met):  # no law of waves applies, and SymPy would try them all
            return found
        if expression.has(HyperbolicFunction) and _operations(expression) > MIXED_OPS:
            return sp.Integer(0) if vanishes(expression) else found
    found = _by_sympy(expression)
    # cosh(u) − sinh(u) for exp(−u) cancels, and takes SymPy minutes to simplify further.
    waves = found.has(sp.sinh, sp.cosh) and not expression.has(sp.sinh, sp.cosh)
    return sp.powsimp(expression) if waves else found


def _by_sympy(expression: sp.Expr) -> sp.Expr:
    try:
        return sp.simplify(expression)
    except (ValueError, KeyError):  # an undefined part, or the logarithm of one, that SymPy came by on its way
        return expression


def _is_reciprocal_sign(expression: sp.Expr) -> bool:
    return isinstance(expression, sp.Pow) and isinstance(expression.base, sp.sign) and expression.exp.is_negative


def _is_apart(wave: sp.Expr, beside: sp.Expr) -> bool:
    """Whether a wave varies with a symbol that no exponential in its term reads, so that no law relates them."""
    read = set().union(*(e.free_symbols for e in beside.atoms(sp.exp)))
    return not read or not wave.free_symbols <= read


def factored(expression: sp.Expr) -> sp.Expr:
    """The product of irreducible factors; a large expression unchanged."""
    size = _operations(expression)
    charge(1 + size / 2, "factoring")
    return sp.factor(expression) if size <= FACTORED_OPS else expression


def cancelled(expression: sp.Expr) -> sp.Expr:
    """A fraction without common factors; a large expression unchanged."""
    size = _operations(expression)
    charge(1 + size / 2, "cancelling")
    return sp.cancel(expression) if size <= FACTORED_OPS else expression


def expanded(expression: sp.Expr, **hints: Any) -> sp.Expr:
    """The sum of products.

    Raises
    ------
    ExhaustedError
        Where a power of sums has more terms than the budget leaves, before they are written out.
    """
    terms = _terms(expression)
    charge(terms / 10, "expanding")
    return sp.expand(expression, **hints)


def _terms(expression: sp.Expr) -> float:
    """At most how many terms the expanded expression has."""
    if isinstance(expression, sp.Add):
        return sum(map(_terms, expression.args))
    if isinstance(expression, sp.Mul):
        count = 1.0
        for factor in expression.args:
            count *= _terms(factor)
        return count
    if isinstance(expression, sp.Pow) and expression.exp.is_Integer and expression.exp > 0:
        within, power = _terms(expression.base), int(expression.exp)
        return float(sp.binomial(int(min(within, 1e6)) + power - 1, power)) if within > 1 else 1.0
    return max(1.0, sum(_terms(a) for a in expression.args if isinstance(a, sp.Expr)))


def terms_of_exponentials(expression: sp.Expr, whole: Collection[sp.Symbol] = ()) -> sp.Expr:
    """A sum term by term, each with one exponential as a factor: 1/(1/2 + 1/N) takes none into its denominator.

    Parameters
    ----------
    whole : sums of these alone stay as they are. References c − e are near each other where each is large.
    """
    fixed = [
        p for p in expression.atoms(sp.Pow) if isinstance(p.base, sp.Add) and p.exp.is_negative and not p.has(sp.exp)
    ]
    fixed += [total for total in expression.atoms(sp.Add) if total.free_symbols and total.free_symbols <= set(whole)]
    named = {power: sp.Dummy(real=True) for power in fixed}
    written = sp.powsimp(expanded(expression.xreplace(named)))
    return written.xreplace({symbol: power for power, symbol in named.items()})


def horner(terms: dict[tuple[int, ...], sp.Expr], steps: Sequence[sp.Symbol]) -> sp.Expr:
    """The polynomial, by the powers of the steps in each term, as a + Δ·(b + Δ·c), first step outermost."""
    if not steps:
        return terms.get((), sp.Integer(0))
    total = sp.Integer(0)
    for power in reversed(range(1 + max((powers[0] for powers in terms), default=0))):
        rest = {powers[1:]: value for powers, value in terms.items() if powers[0] == power}
        total = total * steps[0] + horner(rest, steps[1:])
    return total
