"""Random cascades: `derive` answers each with a proved fold or a refusal, and never with an error."""

from __future__ import annotations

import hypothesis
import pytest
import sympy as sp
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from campaigns.algebra_trial import evaluated
from tvm_cascade.algebra.cascade import Cascade, Reduction, element, result
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.reducer import MAX, MIN, PROD, SUM, Reducer
from tvm_cascade.algebra.verdict import Refusal
from tvm_cascade.codes import CODES
from tvm_cascade.obligations.check import check
from tvm_cascade.obligations.derive import derive
from tvm_cascade.symbolic.functions import Round

from ..tiers import slow_but

ELEMENTS = (element("x"), element("y"), element("r", positive=True))
RESULTS = result("d0 d1 d2")

# How an element e (and a further one f) may depend on an earlier result d.
FORMS = {
    "translated": lambda e, d, f: e - d,
    "multiplied": lambda e, d, f: e * d,
    "divided": lambda e, d, f: e / (1 + d**2),
    "exponential": lambda e, d, f: sp.exp(e - d),
    "scaled exponential": lambda e, d, f: sp.exp((e - d) / 4),
    "exponential times another": lambda e, d, f: sp.exp(e - d) * f,
    "square": lambda e, d, f: (e - d) ** 2,
    "weighted square": lambda e, d, f: f * (e - d) ** 2,
    "cube": lambda e, d, f: (e - d) ** 3,
    "two terms": lambda e, d, f: e * d + f,
    "two powers": lambda e, d, f: e * d + d**2,
    "distance": lambda e, d, f: sp.Abs(e - d),
    "larger of both": lambda e, d, f: sp.Max(e, d),
    "cosine": lambda e, d, f: sp.cos(e - d),
    "root": lambda e, d, f: e * sp.sqrt(1 + d**2),
    "logarithm": lambda e, d, f: e * sp.log(2 + d**2),
    "tangent": lambda e, d, f: sp.tanh(e - d),
    "rounded": lambda e, d, f: Round(e * d, sp.Symbol("float16")),
    "independent": lambda e, d, f: e * f,
    "of the result alone": lambda e, d, f: d + 1,
}
REDUCERS = (SUM, SUM, SUM, MAX, MIN, PROD)


@st.composite
def cascades(draw: st.DrawFn) -> Cascade:
    """Two or three reductions, each of which may read any one before it."""
    count = draw(st.integers(2, 3))
    first = Reduction(RESULTS[0], draw(st.sampled_from((SUM, MAX, MIN))), draw(st.sampled_from(ELEMENTS)))
    reductions = [first]
    for k in range(1, count):
        form = FORMS[draw(st.sampled_from(sorted(FORMS)))]
        e, f = (draw(st.sampled_from(ELEMENTS)) for _ in range(2))
        read = RESULTS[draw(st.integers(0, k - 1))]
        reducer: Reducer = draw(st.sampled_from(REDUCERS))
        reductions.append(Reduction(RESULTS[k], reducer, sp.sympify(form(e, read, f))))
    return Cascade(reductions, ELEMENTS)


@pytest.mark.parametrize("examples", slow_but([25], [25, 200]))
def test_derive_gives_a_proved_fold_or_a_refusal(examples: int) -> None:
    hypothesis.settings(max_examples=examples, suppress_health_check=list(HealthCheck))(given(cascades())(is_sound))()


def is_sound(source: Cascade) -> None:
    outcome = derive(source)
    if isinstance(outcome, Refusal):
        assert outcome.reason.code in CODES and outcome.reason.code not in ("fold", "defect")
        assert outcome.reduction in [str(r) for r in source.results]
        return
    assert isinstance(outcome, Fold)
    check(outcome, seed=99, length=4)
    assert tuple(outcome.finish) == source.results
    assert not evaluated(outcome, seed=11)
