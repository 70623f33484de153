"""The catalogue: cascades as text stand for the programs that they read as, and hold on hard data."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.check import __main__ as check
from benchmarks.check.audit import audit
from benchmarks.check.catalogue import CATALOGUE
from benchmarks.check.definition import HARD, LETTERS, Definition
from tvm_cascade.accuracy.numerics import Subject
from tvm_cascade.errors import InputError
from tvm_cascade.evaluate import oracle, tolerance
from tvm_cascade.evaluate.inputs import INPUTS
from tvm_cascade.options import FuseOptions

QUICK = (
    "sample variance",
    "weighted covariance",
    "softmax over kept positions",
    "layer norm stored in half",
    "kullback-leibler of logits",
)


def test_it_holds_as_many_cascades_and_kinds_of_data_as_it_should() -> None:
    assert len(CATALOGUE) >= 120
    assert set(INPUTS) < set(HARD)


def test_text_is_the_program_that_it_reads_as() -> None:
    text = "mean = sum x/N; out = sum w*(x - mean)**2 if x >= b else abs(y - 1.5)*g -> out, mean"
    one = Definition("mine", text)
    given = one.inputs(np.random.default_rng(0), "normal")
    found = oracle.evaluate(one.build(), given)
    b, g, w, x, y = (values.astype("float64") for values in given)
    mean = x.mean(1, keepdims=True)
    chosen = np.where(x >= b[:, None], w * (x - mean) ** 2, np.abs(y - 1.5) * g)
    assert tolerance.check(found["mean"], mean[:, 0], length=37, dtype="float64").ok
    assert tolerance.check(found["out"], chosen.sum(1), length=37, dtype="float64").ok


def test_the_best_are_values_and_positions() -> None:
    one = Definition("mine", "best = top2 x*x -> best, best_at", length=9)
    (x,) = given = one.inputs(np.random.default_rng(0), "normal")
    best, where = oracle.evaluate(one.build(), given).values()
    order = np.argsort(-(x * x), axis=1)[:, :2]
    np.testing.assert_array_equal(where, order)
    assert tolerance.check(best, np.take_along_axis(x.astype("float64") ** 2, order, 1), length=9, dtype="float64").ok


@pytest.mark.parametrize("stored", ["float32", "float16", "int8"])
def test_inputs_are_what_their_letters_say(stored: str) -> None:
    one = Definition("mine", "out = sum b*g*k*p*w*x", stored)
    for kind in HARD:
        b, g, k, p, w, x = one.inputs(np.random.default_rng(0), kind)
        assert (b.shape, g.shape, x.shape) == ((5,), (37,), (5, 37))
        assert {a.dtype.name for a in (b, g, k, p, w, x)} == {stored}
        assert set(np.unique(k)) <= ({0, 4} if stored == "int8" else {0, 1})
        assert not np.any(p < 0)
        assert stored == "int8" or (np.all(w >= 0.04) and np.all(w <= 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sum x", "statements `name = expression`"),
        ("out = sum x +", "'x \\+'"),
        ("out = sum v", "a letter of LETTERS.*found v"),
        ("out = sum x.y", "an expression of this language.*x.y"),
    ],
)
def test_what_is_no_cascade_is_told(text: str, message: str) -> None:
    with pytest.raises(InputError, match=r"(?s)" + message):
        Definition("mine", text).build()


@pytest.mark.parametrize("name", QUICK)
def test_hard_data_cost_neither_class_nor_digits(name: str) -> None:
    assert audit(CATALOGUE[name], tuple(HARD)).problems == ()


def test_the_command_checks_what_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(["--catalogue", "log-sum-exp", "--inputs", "offset_1e6"]) == 0
    assert "1 program: 1 fused" in capsys.readouterr().out
    assert check.main(["--catalogue", "no such"]) == 2
    assert "names of the catalogue" in capsys.readouterr().err


def test_letters_have_one_meaning() -> None:
    assert all(len(letter) == 1 for letter in LETTERS)


@pytest.mark.parametrize("name", ["attention of one query", "cross-entropy of logits", "softmax of distances"])
def test_sums_before_a_division_are_in_range_up_to_the_largest_number_over_the_length(name: str) -> None:
    one = CATALOGUE[name]
    subject = Subject(one.build(), FuseOptions.from_environment(force=True), "auto")
    given = one.inputs(np.random.default_rng(0), "normal")
    for place in (slice(0, 1), slice(-1, None), slice(0, 18), slice(None)):
        for sign in (-1, 1):
            arrays = [values.copy() for values in given]
            arrays[-1][0, place] = sign * 3.4e38 / one.length
            _, (out,) = subject.compared(arrays)
            np.testing.assert_array_equal(tolerance.kinds(out.fused), tolerance.kinds(out.unfused))


@pytest.mark.parametrize(
    ("name", "value"),
    [("mean square about the mid-range", 3e38), ("variance under softmax", 2.0**100)],
)
def test_large_equal_rows_are_right_also_where_the_unfused_program_overflows(name: str, value: float) -> None:
    one = CATALOGUE[name]
    subject = Subject(one.build(), FuseOptions.from_environment(force=True), "auto")
    arrays = one.inputs(np.random.default_rng(0), "normal")
    arrays[-1][0] = value
    with np.errstate(over="ignore"):
        _, (out,) = subject.compared(arrays)
    assert np.isfinite(out.fused).all()
    assert out.judged.ok, out.judged.message
