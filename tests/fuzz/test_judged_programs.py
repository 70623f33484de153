"""What the judge of program trials holds against a fused program, and what the unfused one might as well have given."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tvm

from campaigns import program_trial
from campaigns.case import Case, Step
from campaigns.grammar import draw
from campaigns.program import data, program, reordered, sorted_orders
from campaigns.term import Term
from tvm_cascade.evaluate import oracle, tolerance

CANCELLING_TOTAL, HALF_PRECISION = 10002247, 10000028
CANCELLING_ELEMENTS = 10764433414
"""Σ g·(exp(d) − d − 1)·(x − mean) of few positions, where exp(d) is rounded at the size of 1 and d is a quarter."""
X = Term("input", leaf="x")


def judged(case: Case, scale: float) -> str:
    """The objection to the unfused program itself, its last result read as off by a factor."""
    func = program(case)
    forms = {"unfused": func, "fused": program(case, [scale] * len(case.steps))}
    return program_trial.Judge(case, func, program_trial.compiled(forms)).objection("fused")


@pytest.mark.parametrize("seed", [CANCELLING_TOTAL, HALF_PRECISION])
def test_a_program_off_by_more_than_orders_and_scales_explain_is_wrong(seed: int) -> None:
    assert judged(draw(seed), 1.0) == ""
    assert "not close" in judged(draw(seed), 1.02)


@pytest.mark.parametrize("seed", [CANCELLING_TOTAL, HALF_PRECISION])
def test_luck_of_the_order_and_of_the_scale_of_a_rounding_is_no_finding(seed: int) -> None:
    assert program_trial.program_trial(draw(seed)).finding == ""


@pytest.mark.usefixtures("optimised")  # which contracts products and sums, and so rounds otherwise
def test_luck_of_roundings_in_elements_is_no_finding() -> None:
    assert program_trial.program_trial(draw(CANCELLING_ELEMENTS)).finding == ""


def test_a_program_off_by_more_than_roundings_in_elements_is_wrong() -> None:
    assert "not close" in judged(draw(CANCELLING_ELEMENTS), 1 + 1e-5)


def test_elements_are_rounded_anew_at_neighbours_and_alike_in_every_order() -> None:
    """The unfused program is further off at some neighbour than in any order of the data themselves."""
    case = draw(CANCELLING_ELEMENTS)
    func, inputs = program(case), data(case, 0)
    unfused = program_trial.compiled({"unfused": func})["unfused"]

    def error(given: list[np.ndarray]) -> float:
        found, exact = program_trial.run(unfused, func, given)["d2"], oracle.evaluate(func, given)["d2"]
        return tolerance.check(found, exact, length=case.length, dtype=case.dtype).max_error

    seeds = range(program_trial.NUDGES)
    beside = [program_trial.neighbours(inputs, seed) for seed in seeds]
    for given, other in zip(inputs, beside[0], strict=True):
        assert (given != other).all() and (np.abs(given - other) <= np.spacing(np.abs(given))).all()
    assert max(map(error, beside)) > 1.2 * max(error(reordered(case, inputs, seed)) for seed in seeds)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(975725123, id="an operand that is packed within the loop that computes it"),
        pytest.param(45724907, id="an element of a row alone beside functions of data"),
    ],
)
def test_programs_are_compiled_and_right(seed: int) -> None:
    trial = program_trial.program_trial(draw(seed))
    assert (trial.finding, trial.verdict) == ("", "fused"), trial.detail


def test_positions_are_judged_by_their_keys() -> None:
    case = dataclasses.replace(draw(CANCELLING_TOTAL), steps=(Step("max", X, "real", 2),), asked=(True,), staged=())
    func = program(case)
    forms = dict(program_trial.compiled({"unfused": func}))

    def beside(*tensors: tvm.runtime.Tensor) -> None:
        forms["unfused"](*tensors)
        positions = tensors[-1].numpy()  # of the second best
        tensors[-1].copyfrom((positions + 1) % case.length)

    judge = program_trial.Judge(case, func, {**forms, "fused": beside, "same": forms["unfused"]})
    assert judge.objection("same") == ""
    assert judge.objection("fused").startswith("d0.v3: not close")


def test_sorted_orders_keep_positions_together() -> None:
    case = draw(CANCELLING_TOTAL)
    inputs = data(case, 0)
    orders = list(sorted_orders(case, inputs))
    assert (np.diff(orders[0][0]) >= 0).all() and (np.diff(orders[1][0]) <= 0).all()
    for order in orders:
        pairs = [set(zip(*(a.tolist() for a in arrays), strict=True)) for arrays in (inputs, order)]
        assert pairs[0] == pairs[1]


@pytest.mark.parametrize(("element", "leaves"), [(Term("exp", (X - 1000.0,)), True), (X * Term("exp", (X,)), False)])
def test_a_zero_that_underflowed_is_out_of_range_and_one_of_the_data_is_not(element: Term, leaves: bool) -> None:
    steps = (Step("sum", element, "real"),)
    case = dataclasses.replace(draw(0), steps=steps, asked=(True,), staged=(), inputs="zeros", dtype="float32")
    func, inputs = program(case), data(case, 0)
    assert (oracle.evaluate(func, inputs)["d0"] == 0).all()
    assert program_trial.Judge(case, func, program_trial.compiled({"unfused": func}))._leaves_range(inputs) is leaves
