"""Truth values that programs write as numbers, and comparisons with infinities: PyTorch's softmax and logsumexp."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from tvm import te, tirx
from tvm.ir import Expr

from tvm_cascade.algebra.verdict import Verdict
from tvm_cascade.analysis.inline import without_numbers_for_truth
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_function import fuse_function

from ..analysis.infinite import from_infinity
from ..analysis.programs import LENGTH, ROWS, array, each, fold, maximum, minimum, number, program
from .running import Array, Unfused, read

TILINGS = [(5, 1), (4, 3)]
INFINITY, ZERO = number(np.inf), number(0)
C = tirx.Var("c", "bool")


def as_number(condition: Expr, dtype: str = "int64") -> Expr:
    return condition.astype(dtype)


def where(condition: Expr, chosen: Expr, other: Expr) -> Expr:
    """As Relax writes R.where."""
    return tirx.Select(tirx.LT(tirx.const(0, "int64"), as_number(condition)), chosen, other)


@pytest.mark.parametrize(
    ("written", "condition"),
    [
        (tirx.LT(tirx.const(0, "int64"), as_number(C)), "c"),
        (tirx.GE(as_number(C, "int8").astype("int32"), tirx.const(1, "int32")), "c"),
        (tirx.NE(as_number(C, "uint8"), tirx.const(0, "uint8")), "c"),
        (as_number(C, "int8").astype("bool"), "c"),
        (tirx.EQ(as_number(C), tirx.const(0, "int64")), "not c"),
        (tirx.LT(as_number(C), tirx.const(1, "int64")), "not c"),
        (tirx.LE(as_number(C), tirx.const(1, "int64")), "T.bool(True)"),
        (tirx.LT(as_number(C, "float32"), number(1)), 'T.Cast("float32", c) < T.float32(1.0)'),
    ],
)
def test_comparisons_of_truth_values_with_numbers_are_conditions(written: Expr, condition: str) -> None:
    assert str(without_numbers_for_truth(written)) == condition


def safe_softmax(truth: str = "int8", by_all: bool = False) -> tirx.PrimFunc:
    """Σ w·v of w = where(not any(s != −inf), 0, softmax(s)), with `any` as the maximum of small integers."""
    s, v = array("s"), array("v")
    lowest = each("lowest", lambda i, j: tirx.EQ(s[i, j], number(-np.inf)))
    if by_all:
        numbers = each("numbers", lambda i, j: lowest[i, j].astype(truth))
        none = fold("none", lambda i, j: numbers[i, j], minimum)
        empty = each("empty", lambda i: none[i].astype("bool"), ROWS)
    else:
        numbers = each("numbers", lambda i, j: tirx.Not(lowest[i, j]).astype(truth))
        some = fold("some", lambda i, j: numbers[i, j], maximum)
        empty = each("empty", lambda i: tirx.Not(some[i].astype("bool")), ROWS)
    m = fold("m", lambda i, j: s[i, j], maximum)
    t = fold("t", lambda i, j: te.exp(s[i, j] - m[i]))
    w = each("w", lambda i, j: where(empty[i], ZERO, te.exp(s[i, j] - m[i]) / t[i]))
    return program(s, v, fold("out", lambda i, j: w[i, j] * v[i, j]))


def kept_where_an_integer_says(threshold: int = 0) -> tirx.PrimFunc:
    """Σ where(0 < max Cast(int8, keep), x/Σ|x|, x), with no condition in between."""
    x, keep = array("x"), array("keep", dtype="bool")
    some = fold("some", lambda i, j: keep[i, j].astype("int8"), maximum)
    s = fold("s", lambda i, j: te.abs(x[i, j]))
    holds = each("holds", lambda i: some[i].astype("int32") > tirx.const(threshold, "int32"), ROWS)
    return program(x, keep, fold("out", lambda i, j: tirx.Select(holds[i], x[i, j] / s[i], x[i, j])))


def log_sum_exp(condition: Callable[[Expr], Expr]) -> tirx.PrimFunc:
    """log Σ exp(x − g) + g of g = where(condition of max x, 0, max x)."""
    x = array("x")
    m = fold("m", lambda i, j: x[i, j], maximum)
    g = each("g", lambda i: where(condition(m[i]), ZERO, m[i]), ROWS)
    s = fold("s", lambda i, j: te.exp(x[i, j] - g[i]))
    return program(x, each("out", lambda i: te.log(s[i]) + g[i], ROWS))


CONDITIONS: dict[str, Callable[[Expr], Expr]] = {
    "|m| = ∞": lambda m: tirx.EQ(te.abs(m), INFINITY),
    "m = ∞": lambda m: tirx.EQ(m, INFINITY),
    "∞ = m": lambda m: tirx.EQ(INFINITY, m),
    "not m < ∞": lambda m: tirx.Not(tirx.LT(m, INFINITY)),
    "m = −∞": lambda m: tirx.EQ(m, number(-np.inf)),
    "not m > −∞": lambda m: tirx.Not(tirx.GT(m, number(-np.inf))),
    "not −∞ < m < ∞": lambda m: tirx.Not(tirx.And(tirx.GT(m, number(-np.inf)), tirx.NE(m, INFINITY))),
}

BUILDS: dict[str, Callable[[], tirx.PrimFunc]] = {
    "any of int8": safe_softmax,
    "any of int32": lambda: safe_softmax("int32"),
    "all of int8": lambda: safe_softmax(by_all=True),
    **{f"log Σ exp, {name}": lambda at=at: log_sum_exp(at) for name, at in CONDITIONS.items()},
    **{
        f"log Σ exp, {name}, from −∞": lambda at=at: from_infinity(log_sum_exp(at), "m")
        for name, at in CONDITIONS.items()
    },
}


@cache
def unfused(name: str) -> Unfused:
    return read(BUILDS[name]())


def rows_of_every_kind() -> Array:
    """Normal numbers; −∞ alone; −∞ first; +∞ amid numbers."""
    x = np.random.default_rng(0).standard_normal((ROWS, LENGTH)).astype("float32")
    x[1], x[2, : LENGTH - 3], x[3, 5] = -np.inf, -np.inf, np.inf
    return x


@pytest.mark.parametrize("name", BUILDS)
def test_they_fuse_and_give_what_the_program_gives(name: str) -> None:
    func = unfused(name)
    (group,) = func.groups
    assert len(group.members) == func.func.script().count("T.init")
    x = rows_of_every_kind()
    for tile, segments in TILINGS:
        func.check([x, np.ones_like(x)][: len(func.func.params) - 1], tile=tile, segments=segments)


@pytest.mark.parametrize("threshold", [0, -1, 1])
def test_an_integer_result_is_compared_with_a_constant(threshold: int) -> None:
    func = read(kept_where_an_integer_says(threshold))
    assert len(func.groups) == 1
    rng = np.random.default_rng(1)
    keep = rng.random((ROWS, LENGTH)) < 0.5
    keep[0] = False
    for tile, segments in TILINGS:
        func.check([rng.standard_normal(keep.shape).astype("float32"), keep], tile=tile, segments=segments)


def test_a_comparison_with_an_infinity_that_says_nothing_of_numbers_is_refused() -> None:
    outcome = fuse_function(log_sum_exp(lambda m: tirx.GE(m, number(-np.inf))), FuseOptions(force=True))
    assert [d.reason.verdict for d in outcome.decisions] == [Verdict.REFUSED]
    assert outcome.decisions[0].reason.code == "logical_dependence"
