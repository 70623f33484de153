"""Certificates: what is bounded whatever the data, with the argument, and what is guarded, with the doubt."""

from __future__ import annotations

import pytest
import sympy as sp

from corpus import workloads
from tvm_cascade.algebra.cascade import LENGTH, Cascade, Reduction, element, result
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.reducer import MAX, MIN, PROD, SUM, Reducer
from tvm_cascade.analysis.extract import Reductions
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.reading import read_program
from tvm_cascade.obligations.certificate import PREMISE, certificate
from tvm_cascade.obligations.derive import derive

x, v = element("x v")
r = element("r", positive=True)
m, s, t, o = result("m s t o")


def fold_of(*reductions: Reduction) -> Fold:
    fold = derive(Cascade(reductions, (x, r, v)))
    assert isinstance(fold, Fold)
    return fold


ONE_OF_EACH_PROGRAM = list(
    {(job.builder, *job.shape): name for name in workloads.names() for job in [workloads.get(name)]}.values()
)


@pytest.mark.parametrize("name", ONE_OF_EACH_PROGRAM)
def test_the_folds_of_workloads_are_bounded(name: str) -> None:
    program = read_program(workloads.get(name).cpu.build())
    assert isinstance(program, Program)
    groups = [candidate.group for candidate in Reductions(program).cascades() if candidate.group is not None]
    found = [certificate(group.fold) for group in groups]
    assert all(one.bounded for one in found), list(map(str, found))


def test_a_bounded_fold_tells_why() -> None:
    attention = fold_of(
        Reduction(m, MAX, x), Reduction(t, SUM, sp.exp(x - m)), Reduction(o, SUM, v * sp.exp(x - m) / t)
    )
    told = str(certificate(attention))
    assert told.startswith(f"bounded {PREMISE}: ")
    assert "exp(x − c) ≤ 1" in told
    assert "1/t is applied at the end: a sum of what is not negative" in told


@pytest.mark.parametrize(
    ("reductions", "doubt"),
    [
        ((Reduction(s, SUM, x), Reduction(o, SUM, v / s)), "o: 1/s may be any size, and is applied at the end"),
        ((Reduction(m, MAX, r), Reduction(o, SUM, sp.log(r / m))), "o: c_m may be far from the data: "),
        ((Reduction(m, MAX, x), Reduction(o, PROD, sp.exp(-r * m))), "o: its exponent is a sum of any size"),
        ((Reduction(m, MAX, x), Reduction(o, PROD, sp.exp(x - m))), "o: o_0 may leave its range"),
    ],
    ids=["a divisor of any sign", "a ratio near one", "an exponential of a sum", "a product of exponentials"],
)
def test_a_guarded_fold_names_its_doubts(reductions: tuple[Reduction, ...], doubt: str) -> None:
    known = certificate(fold_of(*reductions))
    assert not known.bounded
    assert str(known).startswith(f"guarded: {doubt}")
    assert [standing.result for standing in known.standings if not standing.bounded] == [o]


@pytest.mark.parametrize("reducer", [MAX, MIN])
def test_an_extremum_that_may_vanish_beside_the_largest_exponent_is_guarded(reducer: Reducer) -> None:
    known = certificate(fold_of(Reduction(s, MAX, v), Reduction(o, reducer, r * sp.exp(x - s))))
    assert str(known) == "guarded: o: o_1 may vanish against the largest exponent"


mean = s / LENGTH
DEVIATIONS = {
    "asymmetric loss": (Reduction(s, SUM, x), sp.exp(x - mean) - (x - mean) - 1),
    "change from the largest": (Reduction(s, MAX, x), v * (sp.exp(x - s) - 1)),
    "angle": (Reduction(s, SUM, x), 1 - sp.cos(x - mean)),
    "product of differences": (Reduction(s, SUM, x), (x - s) * (v - s)),
}
"""A location, and an element that is zero where the location is at the data, though its terms are not."""


@pytest.mark.parametrize("name", DEVIATIONS)
def test_an_element_of_which_terms_cancel_is_guarded_by_their_sizes(name: str) -> None:
    location, deviation = DEVIATIONS[name]
    known = certificate(fold_of(location, Reduction(o, SUM, deviation)))
    assert not known.bounded
    assert "its parts may cancel" in str(known)


@pytest.mark.parametrize(
    ("location", "difference"),
    [
        (Reduction(s, SUM, x), sp.exp(x - mean) - v),
        (Reduction(s, SUM, x), sp.exp(x - s) - (x - s) - 1),
        (Reduction(s, SUM, r), r / mean - 1 - sp.log(r / mean) + v),
    ],
    ids=["zero beside other data", "about a total, which is far from the data", "beside a term of its own"],
)
def test_an_element_that_does_not_vanish_there_is_summed_term_by_term_and_guarded(
    location: Reduction, difference: sp.Expr
) -> None:
    known = certificate(fold_of(location, Reduction(o, SUM, difference)))
    assert not known.bounded


def test_what_reads_a_guarded_result_is_guarded() -> None:
    deviations = Reduction(o, SUM, (v - t) ** 2)
    alone = certificate(fold_of(Reduction(t, SUM, r), deviations))
    reading = certificate(fold_of(Reduction(s, SUM, x), Reduction(t, SUM, v / s), deviations))
    assert alone.bounded
    assert str(reading).endswith("; o: it reads what is guarded: t")
