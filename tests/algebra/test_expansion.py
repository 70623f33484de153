"""Expansion: the span of a function's moves is the least one, and it moves as the functions themselves do."""

from __future__ import annotations

import pytest
import sympy as sp

from tvm_cascade.algebra.expansion import expansion_of
from tvm_cascade.symbolic.functions import LogRatio
from tvm_cascade.symbolic.separate import Step

x, y, w = sp.symbols("x y w", real=True)
u, v = sp.symbols("u v", real=True)
a = sp.Symbol("a", positive=True)
MOVES = [Step(*sp.symbols(names, real=True)) for names in ("c c' Δc", "e e' Δe")]

SPANS = {
    "exponential": (sp.exp(x - u), 1),
    "square": ((x - u) ** 2, 3),
    "fourth power": ((x - u) ** 4, 5),
    "entropy": ((x - v) * sp.exp(x - u), 2),
    "covariance": ((x - u) * (y - v), 4),
    "one invariant in two differences": ((x - u) * (y - u), 3),
    "two invariants beside one element": ((x - u) * (x - v), 3),
    "at two scales": ((x - u) * (2 * x - v), 3),
    "weighted wave": (w * sp.sin(x - u), 2),
    "logistic parts": (sp.exp(2 * x - 2 * u) * (1 - sp.exp(u - x)) ** 2, 3),
    "factor": (x * u, 1),
    "a divisor of parameters": (sp.exp(-x - u) / (1 / a + sp.Rational(1, 1000)), 1),
    "two characters": (sp.exp(x - u) + sp.exp(2 * x - 2 * u), 2),
    "asymmetric loss": (sp.exp(x - u) - (x - u) - 1, 3),
    "squared change": (w * (sp.exp(x - u) - 1) ** 2, 3),
    "angle": (1 - sp.cos(x - u), 3),
    "divergence": ((x - u) * sp.exp(x - u) - sp.exp(x - u) + 1, 3),
    "two deviations": ((sp.exp(x - u) - 1) * (y - v), 4),
    "square and cube": ((x - u) ** 2 * (1 + x - u), 4),
    "of the third order": (sp.exp(x - u) - 1 - (x - u) - (x - u) ** 2 / 2, 4),
}
"""Functions, with the dimension of the span of what moves make of them."""


def written_out(expression: sp.Expr) -> sp.Expr:
    return expression.replace(lambda part: isinstance(part, LogRatio), lambda part: part.written_out)


@pytest.mark.parametrize("name", SPANS)
def test_a_span_is_the_least_one_and_moves_as_its_functions_do(name: str) -> None:
    function, rank = SPANS[name]
    invariants = [invariant for invariant in (u, v) if function.has(invariant)]
    span = expansion_of(function, [x, y, w], invariants)
    assert span is not None
    assert span.functions[0] == function
    assert span.rank == rank
    moves = MOVES[: len(invariants)]
    old = {invariant: move.old for invariant, move in zip(invariants, moves, strict=True)}
    new = {invariant: move.old + move.step for invariant, move in zip(invariants, moves, strict=True)}
    ends = {move.new: move.old + move.step for move in moves}
    moved = span.shift(invariants, moves).xreplace(ends) * sp.Matrix([f.xreplace(old) for f in span.functions])
    for found, function in zip(moved, span.functions, strict=True):
        assert sp.simplify(sp.expand(written_out(found) - function.xreplace(new), power_exp=True, trig=True)) == 0


@pytest.mark.parametrize("function", [sp.Abs(x - u), 1 / (1 + sp.exp(u - x)), sp.log(x - u), sp.sqrt(x - u)])
def test_other_functions_than_exponential_polynomials_of_differences_have_none(function: sp.Expr) -> None:
    assert expansion_of(function, [x], [u]) is None
