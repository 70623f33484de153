"""What a trial of a recorded function tells apart: a rounding from a wrong answer."""

from __future__ import annotations

import pytest
from tvm import te, tirx

from campaigns.recorded.trial import difference

from ..analysis.programs import array, fold, maximum, program, total
from ..transform.running import build


def log_sum_exp(dtype: str, by: float = 1.0, late: bool = False) -> tirx.PrimFunc:
    """x -> log Σ exp(by·x), about the maximum or about the maximum and a half."""
    x = array("x", dtype=dtype)
    largest = fold("largest", lambda i, j: x[i, j], maximum)
    shift = tirx.const(0.5 if late else 0.0, dtype)
    summed = fold("summed", lambda i, j: te.exp(tirx.const(by, dtype) * x[i, j] - largest[i] - shift), total)
    return program(x, te.compute((4,), lambda i: te.log(summed[i]) + largest[i] + shift, name="out"))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_another_rounding_passes_and_a_wrong_answer_does_not(dtype: str) -> None:
    func = log_sum_exp(dtype)
    plain = build(func)
    assert difference(func, plain, build(log_sum_exp(dtype, late=True))) == ""
    wrong = build(log_sum_exp(dtype, by=1.0 + {"float16": 2**-4, "float32": 2**-14, "float64": 2**-42}[dtype]))
    assert difference(func, plain, wrong).startswith("out: not close")


def test_integers_are_equal_or_wrong() -> None:
    def counted(above: float) -> tirx.PrimFunc:
        x = array("x")
        one, none = tirx.const(1, "int32"), tirx.const(0, "int32")
        return program(x, fold("n", lambda i, j: tirx.Select(x[i, j] > above, one, none), total))

    plain = build(counted(0.0))
    assert difference(counted(0.0), plain, build(counted(0.0))) == ""
    assert difference(counted(0.0), plain, build(counted(0.2))).startswith("n: not close")
