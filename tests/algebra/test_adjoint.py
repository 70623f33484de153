"""The adjoint of a cascade: derivatives, and sums of them that results give."""

from __future__ import annotations

import math

import mpmath
import pytest
import sympy as sp

from tvm_cascade import LENGTH, MAX, MIN, SUM, Cascade, Reduction, element, result
from tvm_cascade.algebra.adjoint import NotSmooth, derivative, total
from tvm_cascade.errors import FoldError
from tvm_cascade.obligations import adjoint as obligations
from tvm_cascade.obligations.adjoint import summed_derivative
from tvm_cascade.symbolic.functions import WholePower

N = LENGTH
x, y, w, v = element("x y w v")
m, t, o, s, q, h, a, c = result("m t o s q h a c")
scale, slope = sp.symbols("scale slope", real=True)

_EXPONENTIAL = [Reduction(m, MAX, x), Reduction(t, SUM, sp.exp(x - m))]
_WEIGHTED = Reduction(o, SUM, sp.exp(x - m) / t * v)
_SHARE = sp.exp(x - m) / t
_SQUARES = [Reduction(s, SUM, x), Reduction(q, SUM, (x - s / N) ** 2)]
_BIASED = [Reduction(m, MAX, x + slope * y), Reduction(t, SUM, sp.exp(x + slope * y - m))]

FROM_RESULTS = {
    "the denominator of a softmax": ([*_EXPONENTIAL, _WEIGHTED], t, -o / t),
    "its maximum": ([*_EXPONENTIAL, _WEIGHTED], m, -o),
    "entropy": ([*_EXPONENTIAL, Reduction(h, SUM, -_SHARE * sp.log(_SHARE))], t, (1 - h) / t),
    "the mean of a variance": (_SQUARES, s, sp.S.Zero),
    "a weighted variance": ([*_EXPONENTIAL, _WEIGHTED, Reduction(q, SUM, _SHARE * (v - o) ** 2)], o, sp.S.Zero),
    "a norm before a product": ([Reduction(q, SUM, x**2), Reduction(c, SUM, x * w / sp.sqrt(q))], q, -c / (2 * q)),
    "a third moment": ([*_SQUARES, Reduction(c, SUM, (x - s / N) ** 3)], s, -3 * q / N),
    "a largest magnitude": ([Reduction(a, MAX, sp.Abs(x)), Reduction(c, SUM, x * w / a)], a, -c / a),
    "a smallest one": ([Reduction(a, MIN, x), Reduction(c, SUM, x**2 / a)], a, -c / a),
    "scores with a bias": (_BIASED, m, -t),
    "a constant": ([Reduction(s, SUM, x), Reduction(c, SUM, x + s)], s, N),
}
TO_BE_SUMMED = {
    "a gain": ([Reduction(c, SUM, scale * x)], scale),
    "the slope of a bias": (_BIASED, slope),
    "a mean before a product": ([*_SQUARES, Reduction(c, SUM, (x - s / N) * w / sp.sqrt(q))], s),
}


@pytest.mark.parametrize("name", FROM_RESULTS)
def test_sums_that_results_give(name: str) -> None:
    reductions, by, expected = FROM_RESULTS[name]
    found = summed_derivative(Cascade(reductions, [x, y, w, v]), by)
    assert found is not None and sp.simplify(found - expected) == 0


@pytest.mark.parametrize("name", TO_BE_SUMMED)
def test_sums_that_are_made(name: str) -> None:
    """The derivative of Σ a·x by a is Σ x, and (Σ a·x)/a has no value at a = 0."""
    reductions, by = TO_BE_SUMMED[name]
    assert summed_derivative(Cascade(reductions, [x, y, w, v]), by) is None


def test_no_gradient_is_left_for_a_maximum() -> None:
    """ō·∂o/∂m + t̄·∂t/∂m with t̄ = ō·∂o/∂t."""
    cascade = Cascade([*_EXPONENTIAL, _WEIGHTED], [x, v])
    by_m, by_t = summed_derivative(cascade, m), summed_derivative(cascade, t)
    of_t = summed_derivative(Cascade(_EXPONENTIAL, [x]), m)
    assert sp.simplify(by_m + by_t * of_t) == 0 and by_t != 0


@pytest.mark.parametrize("wrong", ["derivative", "total"])
def test_a_wrong_adjoint_fails_its_obligation(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = {"derivative": derivative, "total": total}[wrong]
    monkeypatch.setattr(obligations, wrong, lambda *given: right(*given) * 2)
    with pytest.raises(FoldError, match="an adjoint as the definition has it"):
        summed_derivative(Cascade([*_EXPONENTIAL, _WEIGHTED], [x, v]), t)


@pytest.mark.parametrize(
    ("expression", "at", "expected"),
    [
        (x / (1 + sp.exp(-x)), -800.0, 0.0),
        (x / (1 + sp.exp(-x)), 800.0, 1.0),
        (sp.log(1 + sp.exp(x)), 800.0, 1.0),
        (-sp.exp(x) * sp.log(sp.exp(x)), -800.0, 0.0),
        (sp.Abs(x), 0.0, 0.0),
        (sp.Max(x, 0), 0.0, 0.5),
        (sp.Min(x, 2, 3), 1.0, 1.0),
        (sp.Max(x, 0), -1.0, 0.0),
        (sp.sqrt(sp.Abs(x)), -4.0, -0.25),
    ],
)
def test_derivatives_in_range_and_at_kinks(expression: sp.Expr, at: float, expected: float) -> None:
    """In float64, far out where 1 + exp(−x) is infinite, and where both sides have another derivative."""
    found = sp.lambdify([x], derivative(expression, x), [{"exp": _exponential}, "math"])(at)
    assert math.isfinite(found) and abs(found - expected) < 1e-300 + 1e-12 * abs(expected)


def _exponential(exponent: float) -> float:
    return math.inf if exponent > 700 else float(mpmath.exp(exponent))


@pytest.mark.parametrize("rounding", [sp.floor(x), sp.ceiling(3 * x), WholePower(sp.floor(x))])
def test_roundings_have_no_derivative(rounding: sp.Expr) -> None:
    with pytest.raises(NotSmooth):
        derivative(rounding * y, x)
    assert derivative(rounding * y, y) == rounding
