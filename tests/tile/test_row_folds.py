"""Whatever folds along rows: named statistics, losses and norms, and random folds of the grammar, by the emulator."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te

from campaigns.grammar import draw
from campaigns.program import program
from campaigns.program_trial import FUSED, UNFUSED, Judge, compiled
from tvm_cascade.evaluate.oracle import signature

from ..tiers import slow_but
from .emulator.run import compiler, cuda_source, emulate
from .fold_programs import FOLDS, smoothed_cross_entropy
from .test_row_kernels import GRID, assert_right, drawn, row_kernel

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

RANDOM = (42, 64, 110, 126)
"""Seeds: two groups, float16 arithmetic, inputs of no dimension, numbers that text would round."""

FOUND = (990000025,)
"""A product of numbers of 1e21 and 1e-20 in turn, which lanes multiply in another order."""

MORE = (5, 12, 19, 36, 52, 53, 70, 81, 87, 180, 254)
"""Of 180, whose merges read inputs, every level is in test_merge_levels."""


@pytest.mark.parametrize("name", FOLDS)
def test_folds(name: str) -> None:
    assert_right(FOLDS[name]())


@pytest.mark.parametrize("name", ["smoothed_cross_entropy", "masked_moments", "instance_norm", "residues"])
def test_folds_of_half_precision(name: str) -> None:
    assert_right(FOLDS[name](dtype="float16", rows=3))


@pytest.mark.parametrize(
    "name", slow_but(["masked_moments", "deviations"], ["masked_moments", "deviations", "residues"])
)
def test_rows_in_segments(name: str) -> None:
    assert_right(FOLDS[name](rows=2, length=250), GRID)


@pytest.mark.parametrize("seed", [*RANDOM, *FOUND, *(pytest.param(seed, marks=pytest.mark.slow) for seed in MORE)])
def test_random_folds(seed: int) -> None:
    case = draw(seed)
    func = program(case)
    kernel = row_kernel(func)
    inputs = len(signature(func).inputs)

    def on_device(*tensors: tvm.runtime.Tensor) -> None:
        outputs = emulate(kernel.func, [tensor.numpy() for tensor in tensors[:inputs]])
        for tensor, output in zip(tensors[inputs:], outputs, strict=True):
            tensor.copyfrom(output)

    forms = {UNFUSED: compiled({UNFUSED: func})[UNFUSED], FUSED: on_device}
    assert Judge(case, func, forms).objection(FUSED) == ""


def test_a_row_of_which_a_mask_keeps_nothing() -> None:
    func = FOLDS["masked_moments"](rows=3)
    inputs = drawn(func)
    inputs[1][1] = False
    assert_right(func, inputs=inputs)


def test_a_row_whose_length_is_known_at_launch_alone() -> None:
    assert_right(FOLDS["argmax"](rows=3, length=300), compiled=FOLDS["argmax"](rows=3, length=te.var("n", "int64")))


def test_labels_at_the_ends_of_a_row() -> None:
    func = smoothed_cross_entropy(rows=2)
    x, _ = drawn(func)
    assert_right(func, inputs=[x, np.array([0, 255], "int64")])


def test_numbers_of_float64_keep_their_bits() -> None:
    """TVM's text has fifteen digits after the point."""
    assert "__longlong_as_double" in cuda_source(row_kernel(program(draw(126))).func)[1]
