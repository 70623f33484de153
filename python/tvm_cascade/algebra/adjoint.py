"""The adjoint of a cascade: derivatives of its elements, and the sums of these over positions that its results give.

Of d_k = Σ_l F_k(x_l, d_<k), with the adjoints d̄ of results,

    adjoint of an element   x̄_l = Σ_k d̄_k · ∂F_k/∂x (x_l, d)          a map of positions
    adjoint of a result     d̄_j = Σ_k d̄_k · Σ_l ∂F_k/∂d_j (x_l, d)     a sum over positions, or none:

where ∂F_k/∂d_j = Σ_i a_i(d)·F_i + a_0(d), the inner sum is Σ_i a_i(d)·d_i + N·a_0(d), so nothing is summed again. Of a
softmax, ∂F/∂t = −F/t, and Σ_f ō_f·(−o_f/t) is −Σ_f ō_f·o_f/t, one number a row. Then no gradient is left for the
maximum: its adjoint is 0, as results do not depend on where a reference stands.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import sympy as sp

from tvm_cascade.algebra.cascade import LENGTH, Reduction
from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.symbolic.separate import separate
from tvm_cascade.symbolic.work import simplified


class NotSmooth(Exception):
    """An expression that has no derivative: a rounding, or a function that is not known."""


class _Logistic(sp.Function):
    """1/(1 + exp(−u)): its derivative as a product of two such is in range wherever u is."""

    nargs = 1
    is_real = True

    def fdiff(self, _argument: int = 1) -> sp.Expr:
        (u,) = self.args
        return _Logistic(u) * _Logistic(-u)


class _Magnitude(sp.Function):
    """|u|, of derivative 0 at 0."""

    nargs = 1
    is_real = True

    def fdiff(self, _argument: int = 1) -> sp.Expr:
        (u,) = self.args
        return sp.Piecewise((1, u > 0), (-1, u < 0), (0, True))


class _Larger(sp.Function):
    """max(a, b); where both are equal, each has half of the gradient."""

    nargs = 2
    is_real = True

    def fdiff(self, argument: int = 1) -> sp.Expr:
        mine, other = self.args if argument == 1 else reversed(self.args)
        return sp.Piecewise((1, mine > other), (0, mine < other), (sp.Rational(1, 2), True))


class _Smaller(sp.Function):
    """min(a, b), as the larger."""

    nargs = 2
    is_real = True

    def fdiff(self, argument: int = 1) -> sp.Expr:
        mine, other = self.args if argument == 1 else reversed(self.args)
        return sp.Piecewise((1, mine < other), (0, mine > other), (sp.Rational(1, 2), True))


def _pairs(function: type[sp.Function]) -> object:
    """From values in any number to a function of two, nested."""

    def nested(*values: sp.Expr) -> sp.Expr:
        total, *others = sorted(values, key=sp.default_sort_key)
        for other in others:
            total = function(total, other)
        return total

    return nested


def _reciprocal(power: sp.Expr) -> sp.Expr | None:
    """u of a power of 1/(1 + exp u); None of anything else."""
    if not (isinstance(power, sp.Pow) and power.exp.is_negative and power.base.is_Add and len(power.base.args) == 2):
        return None
    one, other = power.base.args
    return other.args[0] if one == 1 and isinstance(other, sp.exp) else None


def _with_logistics(expression: sp.Expr) -> sp.Expr:
    """1/(1 + exp u) as a logistic of −u, and exp(u) times that as one of u."""
    powers = {power: u for power in expression.atoms(sp.Pow) if (u := _reciprocal(power)) is not None}
    found = expression.xreplace({power: _Logistic(-u) ** -power.exp for power, u in powers.items()})
    for u in powers.values():
        found = found.replace(
            lambda part, u=u: part.is_Mul and {sp.exp(u), _Logistic(-u)} <= {*part.args},
            lambda part, u=u: part / (sp.exp(u) * _Logistic(-u)) * _Logistic(u),
        )
    return found


def _exponentials_joined(*factors: sp.Expr) -> sp.Expr:
    """exp(u)·exp(v) as exp(u + v), which is in range where one of them need not be."""
    joined = sp.exp(sp.Add(*(f.args[0] for f in factors if isinstance(f, sp.exp))))
    return sp.Mul(*(f for f in factors if not isinstance(f, sp.exp)), joined)


def derivative(expression: sp.Expr, by: sp.Symbol) -> sp.Expr:
    """The derivative by a symbol, in the functions that programs have; conditions are held constant.

    Where |u| or an extremum of two values has none, it is that halfway between both sides.

    Raises
    ------
    NotSmooth
        Where a part that reads the symbol has no derivative, as a rounding.
    """
    smooth = expression.replace(sp.Abs, _Magnitude).replace(sp.Max, _pairs(_Larger)).replace(sp.Min, _pairs(_Smaller))
    found = _with_logistics(sp.diff(_with_logistics(smooth), by))
    if found.has(sp.Derivative, sp.Subs):
        raise NotSmooth(str(expression))
    found = found.replace(_Logistic, lambda u: 1 / (1 + sp.exp(-u))).replace(sp.Mul, _exponentials_joined)
    return found.replace(_Magnitude, sp.Abs).replace(_Larger, sp.Max).replace(_Smaller, sp.Min)


def total(summand: sp.Expr, reductions: Sequence[Reduction], elements: Collection[sp.Symbol]) -> sp.Expr | None:
    """Σ over positions of a summand that lies in the span of the elements of sums, in their results; else None.

    Its coefficients divide by nothing that neither the summand nor an element divides by: a·x has the derivative x by
    a, whose sum is not taken for (Σ a·x)/a.

    Parameters
    ----------
    summand : over elements, results and parameters.
    reductions : whose results are known; sums alone count.
    """
    if not summand.has(*elements):
        return LENGTH * summand
    sums = [one for one in reductions if one.reducer.plain is SUM]
    basis = {one.result: one.element for one in sums} | {LENGTH: sp.S.One}
    for result, element in basis.items():
        ratio = sp.Add(*(_quotient(term, element) for term in sp.Add.make_args(summand)))
        if not ratio.has(*elements) and _divides_alike(ratio, [summand, element]):
            return ratio * result
    results = [one.result for one in reductions]
    coefficients = _coefficients([summand, *basis.values()], results, elements)
    if coefficients is None:
        return None
    found = sp.Add(*(c * result for c, result in zip(coefficients, basis, strict=True)))
    return simplified(found) if _divides_alike(found, [summand, *basis.values()]) else None


def _quotient(one: sp.Expr, other: sp.Expr) -> sp.Expr:
    return _exponentials_joined(*sp.Mul.make_args(one / other))


def _coefficients(
    whole: Sequence[sp.Expr], results: Sequence[sp.Symbol], elements: Collection[sp.Symbol]
) -> list[sp.Expr] | None:
    """Of the first expression in the others, without elements; None where there are none, or none are found."""
    atoms = {part: sp.Dummy(real=True) for one in whole for part in _atoms(one, results, elements)}
    over = [one.xreplace(atoms) for one in whole]
    varying = [*elements, *atoms.values()]
    still = sorted(sp.Tuple(*over).free_symbols - {*varying}, key=str)
    apart = [products for one in over if (products := separate(one, varying, still)) is not None]
    if len(apart) < len(over):
        return None
    target, *rows = apart
    generators = list(dict.fromkeys(g for products in apart for g in products))
    matrix = sp.Matrix([[column.get(g, sp.S.Zero) for column in (*rows, target)] for g in generators])
    reduced, pivots = matrix.rref(simplify=simplified, iszerofunc=lambda value: simplified(value) == 0)
    if len(rows) in pivots:
        return None
    found = [sp.S.Zero] * len(rows)
    for row, pivot in enumerate(pivots):
        found[pivot] = reduced[row, len(rows)]
    return found


def _atoms(expression: sp.Expr, results: Sequence[sp.Symbol], elements: Collection[sp.Symbol]) -> list[sp.Expr]:
    """Parts that read no result, and mix elements with parameters or choose among them: the data of a position."""
    if expression.is_Symbol or not expression.has(*elements):
        return []
    others = expression.free_symbols - {*elements}
    if others.isdisjoint(results) and (others or isinstance(expression, sp.Piecewise)):
        return [expression]
    return [atom for part in expression.args for atom in _atoms(part, results, elements)]


def _divides_alike(coefficients: sp.Expr, others: Sequence[sp.Expr]) -> bool:
    """Whether all that an expression divides by is, but for numbers, what another divides by as well."""

    def divisors(expression: sp.Expr) -> set[sp.Expr]:
        return {power.base for power in expression.atoms(sp.Pow) if power.exp.is_negative and not power.base.is_number}

    known = set().union(*map(divisors, others))
    return all(any(sp.cancel(base / other).is_number for other in known) for base in divisors(coefficients))
