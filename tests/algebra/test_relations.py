"""What earlier extrema bound: absolute values and extrema that they decide, and folds that follow."""

from __future__ import annotations

import pytest
import sympy as sp

from tvm_cascade.algebra.cascade import Cascade, Reduction, element, result
from tvm_cascade.algebra.facts.relation import ordered_by_results, upper_ends
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.reducer import MAX, MIN, SUM
from tvm_cascade.obligations.derive import derive

x, y = element("x y")
m, n, k, s = result("m n k s")
DONE = [Reduction(m, MAX, x), Reduction(n, MIN, x), Reduction(k, MAX, y)]


@pytest.mark.parametrize(
    ("written", "decided"),
    [
        (sp.Abs(x - m), m - x),
        (sp.Abs(x - n), x - n),
        (sp.Max(x, m), m),
        (sp.Min(x, m), x),
        (sp.Max(2 * x, 2 * n), 2 * x),
        (sp.Abs(sp.exp(x) - sp.exp(m)), sp.exp(m) - sp.exp(x)),
        (sp.Abs(x + y - m - k), m + k - x - y),
        (sp.Abs(x - k), sp.Abs(x - k)),
        (sp.Max(x, m + k), sp.Max(x, m + k)),
    ],
    ids=str,
)
def test_extrema_are_decided_where_results_tell(written: sp.Expr, decided: sp.Expr) -> None:
    assert sp.expand(ordered_by_results(written, DONE) - decided) == 0


def test_an_expression_ends_where_each_extremum_is_its_element() -> None:
    ends = [end for _, end in upper_ends(sp.exp(x - m) - k, DONE)]
    assert ends == [1 - k, sp.exp(x - m) - y, 1 - y]


@pytest.mark.parametrize("distance", [sp.Abs(sp.exp(x) - sp.exp(m)), sp.Abs(x + y - m - k)], ids=str)
def test_a_sum_of_distances_from_what_is_never_exceeded_folds(distance: sp.Expr) -> None:
    read = [r for r in DONE if distance.has(r.result)]
    assert isinstance(derive(Cascade([*read, Reduction(s, SUM, distance)], [x, y])), Fold)
