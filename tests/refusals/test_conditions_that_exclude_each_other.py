"""A refusal rests on conditions that can hold together: two that never do prove nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tvm import te, tirx
from tvm.ir import Expr

import tvm_cascade
from tvm_cascade.algebra.verdict import Verdict

from ..analysis.programs import array, fold, maximum, number, program, total

Condition = Callable[[Expr], Expr]


def where_both(first: Condition, second: Condition, combine: Callable[..., Expr]) -> tirx.PrimFunc:
    """s = Σ x; out = ⊕ of tanh(x − s)·(y − s) where both conditions on its group hold, 0 elsewhere."""
    x, y, group = array("x"), array("y"), array("group", dtype="int32")
    s = fold("s", lambda i, j: x[i, j])

    def element(i: Expr, j: Expr) -> Expr:
        left = tirx.Select(first(group[i, j]), te.tanh(x[i, j] - s[i]), number(0))
        return left * tirx.Select(second(group[i, j]), y[i, j] - s[i], number(0))

    return program(x, y, group, fold("out", element, combine))


@pytest.mark.parametrize("combine", [total, maximum], ids=["sum", "max"])
@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        (lambda g: g < 4, lambda g: g >= 8, False),
        (lambda g: g < 8, lambda g: g >= 4, True),
        (lambda g: g + 2 <= 40, lambda g: tirx.Not(g < 50), False),
        (lambda g: tirx.And(g > 3, g < 9), lambda g: tirx.Or(g < 2, g > 10), False),
        (lambda g: tirx.And(g > -30, g < 9), lambda g: tirx.Or(g < 5, g > 10), True),
    ],
    ids=["apart", "overlapping", "far apart", "outside an interval", "partly inside an interval"],
)
def test_it_is_refused_only_where_both_conditions_may_hold(
    first: Condition, second: Condition, together: bool, combine: Callable[..., Expr]
) -> None:
    explanation = tvm_cascade.explain(where_both(first, second, combine), force=True)
    verdicts = {group.reason.verdict for group in explanation.groups}
    assert (Verdict.REFUSED in verdicts) == together, str(explanation)


def test_a_function_of_an_element_moves_with_it() -> None:
    """max of (x − s)·(tanh(x) − s) with s = Σ (1 + v²) falls in x: no x and tanh(x) of one position say otherwise."""
    x, v = array("x"), array("v")
    s = fold("s", lambda i, j: number(1) + v[i, j] * v[i, j])
    out = fold("out", lambda i, j: (x[i, j] - s[i] * number(2)) * (te.tanh(x[i, j]) - s[i]), maximum)
    explanation = tvm_cascade.explain(program(x, v, out), force=True)
    assert all(group.reason.verdict is not Verdict.REFUSED for group in explanation.groups), str(explanation)


def test_what_is_rounded_moves_with_what_it_is_rounded_from() -> None:
    """max (float16(max(x, x²)) ≥ s ? max(x, x²) : 0) with s = Σ v rises with max(x, x²), rounded or not."""
    x, v = array("x"), array("v")
    s = fold("s", lambda i, j: v[i, j])
    larger = lambda i, j: tirx.max(x[i, j], x[i, j] * x[i, j])  # noqa: E731
    rounded = lambda i, j: larger(i, j).astype("float16").astype("float32")  # noqa: E731
    out = fold("out", lambda i, j: tirx.if_then_else(rounded(i, j) >= s[i], larger(i, j), number(0)), maximum)
    explanation = tvm_cascade.explain(program(x, v, out), force=True)
    assert all(group.reason.verdict is not Verdict.REFUSED for group in explanation.groups), str(explanation)
