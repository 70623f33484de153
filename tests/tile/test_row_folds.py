"""Whatever folds along rows: named statistics, losses and norms, and random folds of the grammar, by the emulator."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_cascade
from tvm_cascade.testing.fuzz.grammar import draw
from tvm_cascade.testing.fuzz.program import data, program

from .emulator.run import compiler, cuda_source
from .fold_programs import FOLDS, channels_last_norm, smoothed_cross_entropy
from .test_row_kernels import GRID, assert_right, drawn, row_kernel

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

RANDOM = (42, 64, 110, 126, 180)
"""Seeds: two groups, float16 arithmetic, inputs of no dimension, numbers that text would round, inputs of a merge."""

MORE = (
    5,
    6,
    12,
    13,
    15,
    22,
    52,
    87,
    14,
    19,
    21,
    25,
    28,
    29,
    32,
    34,
    35,
    36,
    39,
    49,
    53,
    54,
    61,
    63,
    65,
    67,
    69,
    70,
    72,
    74,
    76,
    77,
    81,
    82,
)


@pytest.mark.parametrize("name", FOLDS)
def test_folds(name: str) -> None:
    assert_right(FOLDS[name]())


@pytest.mark.parametrize("name", ["smoothed_cross_entropy", "masked_moments", "instance_norm"])
def test_folds_of_half_precision(name: str) -> None:
    assert_right(FOLDS[name](dtype="float16", rows=3))


@pytest.mark.parametrize("name", ["masked_moments", "deviations"])
def test_rows_in_segments(name: str) -> None:
    assert_right(FOLDS[name](rows=2, length=250), GRID)


@pytest.mark.parametrize("seed", [*RANDOM, *(pytest.param(seed, marks=pytest.mark.slow) for seed in MORE)])
def test_random_folds(seed: int) -> None:
    case = draw(seed)
    assert_right(program(case), inputs=data(case, 0))


def test_a_row_of_which_a_mask_keeps_nothing() -> None:
    func = FOLDS["masked_moments"](rows=3)
    inputs = drawn(func)
    inputs[1][1] = False
    assert_right(func, inputs=inputs)


def test_labels_at_the_ends_of_a_row() -> None:
    func = smoothed_cross_entropy(rows=2)
    x, _ = drawn(func)
    assert_right(func, inputs=[x, np.array([0, 255], "int64")])


def test_numbers_of_float64_keep_their_bits() -> None:
    """TVM's text has fifteen digits after the point."""
    assert "__longlong_as_double" in cuda_source(row_kernel(program(draw(126))).func)[1]


def test_folds_of_other_layouts_take_a_schedule() -> None:
    compiled = tvm_cascade.compile(channels_last_norm(), target={"kind": "cuda", "arch": "sm_90a"})
    (report,) = compiled.report.functions
    assert "lie apart in memory" in report.lowering and "S-TIR schedule" in report.lowering
