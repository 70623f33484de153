"""Names of buffers: whatever they are, the same cascade is found, fused, and right."""

from __future__ import annotations

import random

import pytest
from tvm import te, tirx

import tvm_cascade
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_function import fuse_function

from ..analysis.programs import LENGTH, array, fold, maximum, number, program
from ..tiers import slow_but
from .running import assert_same_after, drawn

NAMES = (
    *("N", "n", "position", "lowest", "highest", "_u0", "_h", "u0", "h", "c_m", "m_0", "m_1", "s_0_1", "Δc_m", ""),
    *("exp", "log", "sqrt", "fabs", "math", "mpf", "pi", "e", "max", "float", "E", "I", "S", "beta", "gamma"),
    *("lambda", "None", "class", "x y", "a.b", "f(x)", "1x", "x-1", "λ", "数", '"', "\\", "x\ny", "v_i", "tile"),
)
"""Names that the algebra's own symbols have, or had; those of functions and constants; and no names in Python."""


def named(names: list[str]) -> tirx.PrimFunc:
    """Softmax times values, about the maximum: four buffers and two results."""
    x, w = array(names[0]), array(names[1])
    m = fold(names[2], lambda i, j: x[i, j], maximum)
    s = fold(names[3], lambda i, j: te.exp(x[i, j] - m[i]) * te.sqrt(w[i, j] * w[i, j] + number(1)))
    return program(x, w, fold(names[4], lambda i, j: te.exp(x[i, j] - m[i]) / s[i] * w[i, j]))


@pytest.mark.parametrize("turned", slow_but([2], [0, 2]))
@pytest.mark.parametrize("first", range(0, len(NAMES), 5))
def test_names_change_no_verdict(first: int, turned: int) -> None:
    names = list(NAMES[first : first + 5])
    decisions = fuse_function(named(names[turned:] + names[:turned]), FuseOptions(force=True)).decisions
    assert [decision.reason.code for decision in decisions] == ["fold"], [str(d.reason) for d in decisions]


@pytest.mark.parametrize("seed", range(3))
def test_results_are_right_under_any_names(seed: int) -> None:
    func = named(random.Random(seed).sample(NAMES, 5))
    compiled = tvm_cascade.compile(func, force=True)
    assert compiled.report.fused and str(compiled.report) and compiled.report.to_json()
    assert_same_after(compiled, func, drawn(func), LENGTH)


def test_one_name_for_all() -> None:
    func = named(["same"] * 5)
    compiled = tvm_cascade.compile(func, force=True)
    assert compiled.report.fused
    assert_same_after(compiled, func, drawn(func), LENGTH)
