"""What quantities move with: by which multiple of what is added to all elements."""

from __future__ import annotations

import pytest
import sympy as sp

from tvm_cascade.algebra.cascade import LENGTH, Cascade, Reduction, element, result
from tvm_cascade.algebra.facts.weight import Offsets, by_offset, offsets_of
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.reducer import MAX, SUM
from tvm_cascade.obligations.derive import derive

x, y = element("x y")
m, n, t, s, q = result("m n t s q")
PROBABILITY = sp.exp(x - m) / t
REDUCTIONS = [
    Reduction(m, MAX, x),
    Reduction(n, MAX, 2 * y - x),
    Reduction(t, SUM, sp.exp(x - m)),
    Reduction(s, SUM, x),
    Reduction(q, SUM, x**2),
]


@pytest.mark.parametrize(
    ("quantity", "offset"),
    [
        (m, {x: 1}),
        (n, {x: -1, y: 2}),
        (t, {}),
        (s, {x: LENGTH}),
        (q, None),
        (m + sp.log(t), {x: 1}),
        (s / LENGTH - m, {}),
        (sp.log(m), None),
        (m * n, None),
        (3 * (m + n), {y: 6}),
        (sp.Piecewise((t, t > 1), (x - m, True)), {}),
    ],
)
def test_offsets_of_results_and_of_what_is_made_of_them(
    quantity: sp.Expr, offset: dict[sp.Symbol, sp.Expr] | None
) -> None:
    found = Offsets(REDUCTIONS).of(sp.expand(quantity))
    assert found == offset


def test_components_and_references_have_those_of_what_they_hold() -> None:
    fold = derive(Cascade([*REDUCTIONS[:1], REDUCTIONS[2], Reduction(q, SUM, -PROBABILITY * sp.log(PROBABILITY))], [x]))
    assert isinstance(fold, Fold)
    offsets = offsets_of(fold)
    assert [offsets.of(r.symbol) for r in fold.references] == [{x: 1}, {x: 1}]
    assert [offsets.of(c.symbol) for c in fold.components] == [{x: 1}, {}, {}]


def test_terms_that_share_an_offset_come_together() -> None:
    moving, still = by_offset([m, y, s, sp.log(t), -x], Offsets([r for r in REDUCTIONS if r.result != n]))
    assert (moving, still) == ([[y], [m, s, -x]], [sp.log(t)])


def test_terms_stay_together_where_an_offset_is_not_known() -> None:
    assert by_offset([m, y, q, sp.log(t)], Offsets(REDUCTIONS)) == ([[m, y, q, sp.log(t)]], [])
