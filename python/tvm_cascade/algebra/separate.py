"""Finite-rank separation: F(x, u) = Σ_r G_r(x)·H_r(u), a basis by derivatives, and the shift matrix between references.

F and its partial derivatives in u span the same finite space as the G_r, and stay small where F stays small:
(x − u)², x − u, 1 rather than x², x, 1. With B(x, c) that basis taken at a reference c, moving the reference is linear:
B(x, c′) = A(c, c′)·B(x, c). A is the compensation term: exp(c − c′) for softmax, the binomial shift for moments.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

import sympy as sp

from tvm_cascade.algebra.cascade import Round

RANK_LIMIT = 6
"""Components that one reduction's state may have."""


def strip_rounding(expression: sp.Expr) -> sp.Expr:
    """The expression with every rounding replaced by its argument."""
    return expression.replace(Round, lambda value, _dtype: value)


def separate(
    expression: sp.Expr, elements: Sequence[sp.Symbol], handles: Sequence[sp.Symbol]
) -> dict[sp.Expr, sp.Expr] | None:
    """{G(x): H(u)} with expression = Σ G·H, or None where a term mixes the two by this route."""
    trig = expression.has(sp.sin, sp.cos, sp.sinh, sp.cosh)
    expanded = sp.expand(
        sp.powsimp(expression), power_exp=True, power_base=True, log=True, mul=True, multinomial=True, trig=trig
    )
    terms: dict[sp.Expr, sp.Expr] = {}
    for term in sp.Add.make_args(sp.expand(expanded)):
        generator, weight = sp.Integer(1), sp.Integer(1)
        for factor in sp.Mul.make_args(term):
            if factor.has(*elements):
                if factor.has(*handles):
                    return None
                generator *= factor
            else:
                weight *= factor
        terms[generator] = terms.get(generator, sp.Integer(0)) + weight
    simplified = {generator: sp.simplify(weight) for generator, weight in terms.items()}
    return {generator: weight for generator, weight in simplified.items() if weight != 0}


@dataclass(frozen=True)
class Basis:
    """Functions B_k(x, u) that span F's space, and their coordinates: B = matrix(u) · generators(x)."""

    functions: tuple[sp.Expr, ...]
    generators: tuple[sp.Expr, ...]
    matrix: sp.Matrix

    @property
    def rank(self) -> int:
        """Number of functions."""
        return len(self.functions)


def basis_by_derivatives(
    function: sp.Expr, elements: Sequence[sp.Symbol], handles: Sequence[sp.Symbol]
) -> Basis | None:
    """A basis whose first member is the function itself; None where it is not separable. Stops above RANK_LIMIT."""
    generators: list[sp.Expr] = []
    functions: list[sp.Expr] = []
    rows: list[dict[sp.Expr, sp.Expr]] = []
    at = {handle: sp.Rational(random.Random(k).randint(30, 97), 31) for k, handle in enumerate(handles)}
    pending = [function]
    while pending and len(functions) <= RANK_LIMIT:
        candidate = pending.pop(0) if not functions else without_constant_factor(pending.pop(0), elements)
        row = separate(candidate, elements, handles)
        if row is None:
            return None
        generators += [generator for generator in row if generator not in generators]
        trial = sp.Matrix([[known.get(g, sp.Integer(0)).subs(at) for g in generators] for known in [*rows, row]])
        if trial.rank() == len(rows):
            continue
        candidate, row = _reduced(candidate, row, functions, rows, elements)
        rows.append(row)
        functions.append(candidate)
        pending += [sp.diff(candidate, handle) for handle in handles]
    matrix = sp.Matrix([[row.get(g, sp.Integer(0)) for g in generators] for row in rows])
    return Basis(tuple(functions), tuple(generators), matrix)


def _reduced(
    candidate: sp.Expr,
    row: dict[sp.Expr, sp.Expr],
    functions: list[sp.Expr],
    rows: list[dict[sp.Expr, sp.Expr]],
    elements: Sequence[sp.Symbol],
) -> tuple[sp.Expr, dict[sp.Expr, sp.Expr]]:
    """The candidate less a multiple of an earlier function, where that is simpler: (x − u)·exp, not (2 + x − u)·exp."""
    for function, known in zip(functions, rows, strict=True):
        for generator in row.keys() & known.keys():
            ratio = sp.simplify(row[generator] / known[generator])
            rest = sp.factor_terms(sp.simplify(candidate - ratio * function)) if ratio.is_number else candidate
            if rest != 0 and sp.count_ops(rest) < sp.count_ops(candidate):
                left = {g: sp.simplify(row.get(g, 0) - ratio * known.get(g, 0)) for g in {*row, *known}}
                norm = without_constant_factor(rest, elements)
                scale = sp.simplify(rest / norm)
                return norm, {g: sp.simplify(w / scale) for g, w in left.items() if w != 0}
    return candidate, row


def without_constant_factor(expression: sp.Expr, elements: Sequence[sp.Symbol]) -> sp.Expr:
    """The expression without factors that do not vary along the axis; the span stays the same."""
    _, varying = sp.factor_terms(sp.simplify(expression)).as_independent(*elements, as_Add=False)
    return oriented(varying, elements) if varying != 0 else sp.Integer(1)


def oriented(expression: sp.Expr, elements: Sequence[sp.Symbol]) -> sp.Expr:
    """±the expression, in the sign in which differences read x − c."""

    def falls(part: sp.Expr) -> bool:
        return any(sp.diff(part, e).could_extract_minus_sign() for e in elements if part.has(e))

    def turn(power: sp.Pow) -> sp.Expr:
        return (-power.base) ** power.exp if power.exp.is_even and falls(power.base) else power

    turned = expression.replace(lambda e: isinstance(e, sp.Pow), turn)
    sums = [a for a in sp.Mul.make_args(turned) if isinstance(a, sp.Add)]
    odd = sum(falls(a) for a in sums) % 2 == 1
    return (
        sp.Mul(*(-a if isinstance(a, sp.Add) and falls(a) else a for a in sp.Mul.make_args(turned)))
        if odd or sums
        else turned
    )


@dataclass(frozen=True)
class Step:
    """The symbols of one reference's move: from `old` to `new`, by `step` = new − old."""

    old: sp.Symbol
    new: sp.Symbol
    step: sp.Symbol


def shift_matrix(basis: Basis, at: Sequence[sp.Symbol], moves: Sequence[Step]) -> sp.Matrix | None:
    """A(old, new) with B(x, new) = A·B(x, old), exactly; None where the solution does not check out."""
    at_old = basis.matrix.subs({u: m.old for u, m in zip(at, moves, strict=True)}, simultaneous=True)
    at_new = basis.matrix.subs({u: m.new for u, m in zip(at, moves, strict=True)}, simultaneous=True)
    steps = {m.step: m.new - m.old for m in moves}
    for columns in itertools.combinations(range(at_old.cols), basis.rank):
        square = at_old[:, list(columns)]
        if sp.simplify(square.det()) != 0:
            solution = (at_new[:, list(columns)] * square.inv()).applyfunc(lambda e: in_steps(e, moves))
            residue = (solution.subs(steps) * at_old - at_new).applyfunc(lambda e: sp.simplify(sp.expand(e)))
            return solution if residue.is_zero_matrix else None
    return None


def in_steps(expression: sp.Expr, moves: Sequence[Step]) -> sp.Expr:
    """The expression in the step where it depends on nothing else: (c′ − c)² does not cancel, c² − 2cc′ + c′² does."""
    moved = expression.subs({m.new: m.old + m.step for m in moves}, simultaneous=True)
    moved = sp.powsimp(sp.factor(sp.simplify(sp.expand(sp.powsimp(moved)))))
    best = moved if not moved.has(*(m.old for m in moves)) else sp.powsimp(sp.factor(sp.simplify(expression)))
    # Term by term, so that exp(−Δ) − 1 does not become (1 − exp(Δ))·exp(−Δ), whose exp(Δ) overflows.
    return sp.powsimp(sp.expand(best)) if best.has(sp.exp) else best


def numeric_rank_exceeds(
    function: sp.Expr, elements: Sequence[sp.Symbol], handles: Sequence[sp.Symbol], limit: int
) -> bool:
    """Whether the matrix F(x_i, u_j) at random points has full rank limit + 1, which proves a rank above the limit."""
    source = random.Random(7)
    symbols = sorted(function.free_symbols, key=str)
    evaluate = sp.lambdify(symbols, function, "mpmath")
    import mpmath

    size = limit + 1
    rows = [{e: mpmath.mpf(source.uniform(0.2, 2.1)) for e in symbols if e not in handles} for _ in range(size)]
    columns = [{h: mpmath.mpf(source.uniform(0.2, 2.1)) for h in handles} for _ in range(size)]
    # Parameters keep one value over the whole matrix; only elements vary by row.
    fixed = {e: rows[0][e] for e in rows[0] if e not in elements}
    with mpmath.workdps(120):
        try:
            matrix = mpmath.matrix(
                [[evaluate(*[({**r, **fixed, **c})[s] for s in symbols]) for c in columns] for r in rows]
            )
            scale = max(abs(matrix[i, j]) for i in range(size) for j in range(size))
            determinant = abs(mpmath.det(matrix / scale))
        except (ValueError, ZeroDivisionError, TypeError):
            return False
        return bool(determinant > mpmath.mpf(10) ** -90)
