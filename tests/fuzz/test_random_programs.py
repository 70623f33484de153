"""Random programs through the pass: fused or not, they compute what they did, and nothing is raised."""

from __future__ import annotations

from dataclasses import dataclass

import hypothesis
import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tvm import te, tirx

from tvm_cascade.evaluate import oracle
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_function import fuse_function

from ..analysis.programs import array, each, fold, maximum, minimum, number, program, total
from ..tiers import slow_but
from ..transform.running import assert_close, build, run

ROWS = 3
COMBINES = {"sum": total, "max": maximum, "min": minimum}

# How an element x (and a further input w, and a mask) may depend on an earlier result d over n positions.
FORMS = {
    "translated": lambda x, w, keep, d, n: x - d,
    "exponential": lambda x, w, keep, d, n: te.exp((x - d) * number(0.125)),
    "weighted": lambda x, w, keep, d, n: te.exp((x - d) * number(0.25)) * w,
    "square": lambda x, w, keep, d, n: (x - d / number(n)) * (x - d / number(n)),
    "scaled": lambda x, w, keep, d, n: x / (number(2) + te.abs(d)) * w,
    "masked": lambda x, w, keep, d, n: tirx.if_then_else(keep, te.exp((x - d) * number(0.125)), number(0)),
    "selected": lambda x, w, keep, d, n: tirx.Select(keep, x * d, w),
    "root": lambda x, w, keep, d, n: w * te.sqrt(number(1) + te.abs(d)),
    "independent": lambda x, w, keep, d, n: x * w,
    "no fold": lambda x, w, keep, d, n: te.tanh(x - d),
}


@dataclass(frozen=True)
class Recipe:
    """What makes a program: everything that was drawn."""

    length: int
    first: str
    later: tuple[tuple[str, str, int], ...]  # form, combine, which earlier result
    asked: tuple[bool, ...]  # whether each result but the last is an output too
    preprocessed: bool
    tile: int
    segments: int
    lanes: int

    def program(self) -> tirx.PrimFunc:
        n = self.length
        x, w, keep = array("x", ROWS, n), array("w", n), array("keep", ROWS, n, dtype="bool")
        read = each("read", lambda i, j: x[i, j] * number(0.5) + w[j], ROWS, n) if self.preprocessed else x
        results = [fold("d0", lambda i, j: read[i, j], COMBINES[self.first], n, (ROWS,))]
        for k, (form, combine, earlier) in enumerate(self.later, start=1):
            d = results[earlier % k]

            def element(i, j, form=form, d=d):  # type: ignore[no-untyped-def]
                return FORMS[form](read[i, j], w[j], keep[i, j], d[i], n)

            results.append(fold(f"d{k}", element, COMBINES[combine], n, (ROWS,)))
        kept = [result for result, asked in zip(results[:-1], self.asked, strict=False) if asked]
        return program(x, w, keep, *kept, results[-1])

    def inputs(self) -> list[np.ndarray]:
        rng = np.random.default_rng(self.length)
        x = rng.standard_normal((ROWS, self.length), dtype=np.float32)
        return [x, rng.standard_normal(self.length, dtype=np.float32), rng.random(x.shape) < 0.7]


recipes = st.builds(
    Recipe,
    length=st.sampled_from([1, 3, 4, 5, 8, 13, 30]),
    first=st.sampled_from(sorted(COMBINES)),
    later=st.lists(
        st.tuples(st.sampled_from(sorted(FORMS)), st.sampled_from(["sum", "sum", "max", "min"]), st.integers(0, 2)),
        min_size=1,
        max_size=2,
    ).map(tuple),
    asked=st.tuples(st.booleans(), st.booleans()),
    preprocessed=st.booleans(),
    tile=st.sampled_from([1, 2, 4, 8, 64]),
    segments=st.sampled_from([1, 2, 5]),
    lanes=st.sampled_from([1, 4]),
)


@pytest.mark.parametrize("examples", slow_but([15], [15, 100]))
def test_the_pass_keeps_the_meaning_of_a_random_program(examples: int) -> None:
    hypothesis.settings(max_examples=examples, suppress_health_check=list(HealthCheck))(given(recipes)(keeps_it))()


def keeps_it(recipe: Recipe) -> None:
    func = recipe.program()
    before = func.script()
    options = FuseOptions(tile=recipe.tile, segments=recipe.segments, lanes=recipe.lanes, force=True)
    outcome = fuse_function(func, options)
    assert func.script() == before
    assert "defect" not in [decision.reason.code for decision in outcome.decisions], outcome.decisions
    if not outcome.fused:
        assert outcome.func.same_as(func)
        return
    given_, reference = recipe.inputs(), oracle.signature(func)
    baseline = run(build(func), func, given_)
    assert set(baseline) == {param.name for param in reference.outputs}
    assert_close(run(build(outcome.func), outcome.func, given_), func, given_, baseline, recipe.length)
