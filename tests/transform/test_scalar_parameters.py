"""Numbers as parameters: constants of predicates, expressions and extents, in one kernel for all their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tvm import tirx
from tvm.script import tirx as T

import tvm_cascade
from tvm_cascade.algebra.verdict import Verdict
from tvm_cascade.driver.compilation import compile_unfused
from tvm_cascade.errors import InputError
from tvm_cascade.evaluate import oracle, tolerance

Array = NDArray[Any]
ROWS, LENGTH, TILE = 4, 37, 8


def valid_softmax() -> tirx.PrimFunc:
    """Maximum and sum of exp(scale·(x − maximum)) over the first `valid` elements of each row."""

    @T.prim_func(s_tir=True)
    def main(
        x: T.Buffer((4, 37), "float32"),
        valid: T.int64,
        scale: T.float32,
        top: T.Buffer((4,), "float32"),
        total: T.Buffer((4,), "float32"),
    ) -> None:
        for i, j in T.grid(4, 37):
            with T.sblock("top"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    top[vi] = T.min_value("float32")
                top[vi] = T.max(top[vi], T.if_then_else(T.Cast("int64", vj) < valid, x[vi, vj], T.min_value("float32")))
        for i, j in T.grid(4, 37):
            with T.sblock("total"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    total[vi] = T.float32(0)
                total[vi] = total[vi] + T.if_then_else(
                    T.Cast("int64", vj) < valid, T.exp(scale * x[vi, vj] - scale * top[vi]), T.float32(0)
                )

    return main


def scaled_moments() -> tirx.PrimFunc:
    """Σ (scale·x − mean)² with the mean's divisor as a parameter."""

    @T.prim_func(s_tir=True)
    def main(
        x: T.Buffer((4, 37), "float32"),
        scale: T.float32,
        count: T.int32,
        total: T.Buffer((4,), "float32"),
        moment: T.Buffer((4,), "float32"),
    ) -> None:
        for i, j in T.grid(4, 37):
            with T.sblock("total"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    total[vi] = T.float32(0)
                total[vi] = total[vi] + scale * x[vi, vj]
        for i, j in T.grid(4, 37):
            with T.sblock("moment"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    moment[vi] = T.float32(0)
                moment[vi] = moment[vi] + (scale * x[vi, vj] - total[vi] / T.Cast("float32", count)) * (
                    scale * x[vi, vj] - total[vi] / T.Cast("float32", count)
                )

    return main


def over_a_length() -> tirx.PrimFunc:
    """Softmax statistics over `n` elements of each row, a parameter that is the extent of the axis."""

    @T.prim_func(s_tir=True)
    def main(
        x: T.Buffer((4, 37), "float32"),
        n: T.int64,
        top: T.Buffer((4,), "float32"),
        total: T.Buffer((4,), "float32"),
    ) -> None:
        for i, j in T.grid(T.int64(4), n):
            with T.sblock("top"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    top[vi] = T.min_value("float32")
                top[vi] = T.max(top[vi], x[vi, vj])
        for i, j in T.grid(T.int64(4), n):
            with T.sblock("total"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    total[vi] = T.float32(0)
                total[vi] = total[vi] + T.exp(x[vi, vj] - top[vi])

    return main


PROGRAMS: dict[str, tuple[Any, list[tuple[Any, ...]]]] = {
    "valid_softmax": (valid_softmax, [(37, 0.5), (9, 2.0), (1, 1.0)]),
    "scaled_moments": (scaled_moments, [(1.0, 37), (-3.0, 20)]),
    "over_a_length": (over_a_length, [(37,), (8,), (3,)]),
}


@pytest.mark.parametrize(("name", "segments"), [(name, 1) for name in PROGRAMS] + [("over_a_length", 3)])
def test_one_kernel_is_right_for_every_number(name: str, segments: int) -> None:
    make, numbers = PROGRAMS[name]
    func = make()
    compiled = tvm_cascade.compile(func, tile=TILE, segments=segments, force=True)
    assert [group.verdict for group in compiled.report.groups] == [Verdict.FUSED]
    unfused = compile_unfused(func, schedule=False, vector_math=False)
    x = np.random.default_rng(0).standard_normal((ROWS, LENGTH)).astype("float32")
    for given in numbers:
        expected = list(oracle.evaluate(func, [x, *given]).values())
        outputs, usual = ([np.full(ROWS, np.nan, "float32") for _ in expected] for _ in range(2))
        compiled(x, *given, *outputs)
        unfused(x, *given, *usual)
        for output, exact, baseline in zip(outputs, expected, usual, strict=True):
            tolerance.assert_close(output, exact, baseline, length=LENGTH, dtype="float32")


def test_the_oracle_takes_numbers_of_the_parameters_kind_alone() -> None:
    x = np.zeros((ROWS, LENGTH), "float32")
    for wrong in (2.5, np.ones(2, "int64")):
        with pytest.raises(InputError, match="a number of dtype int64"):
            oracle.evaluate(valid_softmax(), [x, wrong, 1.0])


def test_a_number_keeps_its_name_in_the_report() -> None:
    told = str(tvm_cascade.explain(valid_softmax(), force=True))
    assert "scale" in told


def test_a_parameter_that_is_neither_buffer_nor_number_is_said_to_be() -> None:
    func = valid_softmax()
    strange = tirx.PrimFunc([*func.params, tirx.Var("context", "handle")], func.body).with_attr("s_tir", True)
    (group,) = tvm_cascade.explain(strange).groups
    assert group.reason.code == "unsupported_shape" and "context is no buffer and no number" in group.reason.detail


def test_numerics_which_draws_data_says_that_it_has_none_for_numbers() -> None:
    with pytest.raises(InputError, match="the numbers valid, scale"):
        tvm_cascade.numerics(valid_softmax())
