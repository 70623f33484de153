"""Gradients of attention by what is added to its scores: slopes of heads, biases, a captured number."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import cache

import pytest

import tvm_cascade
from tvm_cascade.tile.skeleton import Kernel

from ..reverse.scores import SHAPES, Extents, biased
from ..tiers import slow_but
from .backward import assert_backward_right, plan_of
from .emulator.run import compiler

LONG = Extents(2, 16, 2048, 2048, 64, "bfloat16")
SMALL = Extents(1, 2, 130, 200, 64)


@cache
def gradient_of(name: str, extents: Extents, wrt: Sequence[str] = ("q", "k", "v", "p")) -> tvm_cascade.Gradient:
    return tvm_cascade.gradient(biased(name, extents, causal=extents is LONG), wrt=wrt)


ROWS = ["slopes", "a number", "of keys"]
"""What is added once for a row of queries or of keys: sums along these are left by a fold that has scores."""


@pytest.mark.parametrize("name", slow_but(["slopes", "of keys", "of queries and keys", "of distances"], SHAPES))
def test_no_sum_over_scores_is_without_a_kernel(name: str) -> None:
    plan = plan_of(gradient_of(name, LONG).backward)
    assert all(isinstance(step.chosen, Kernel) for step in plan.steps)
    scores = LONG.batch * LONG.heads * LONG.queries * LONG.keys
    sizes = [math.prod(int(extent) for extent in buffer.ty.shape) for buffer in plan.temporaries]
    if name in ROWS:
        folds = [step.chosen.skeleton.name for step in plan.steps if step.chosen.skeleton.name != "row"]
        assert len(folds) == 3 and set(folds) <= {"stream", "folded"} and len(plan.steps) == 5
        assert max(sizes) == LONG.batch * LONG.heads * LONG.queries
    else:  # which has as many elements as scores, but for the batch and heads
        assert sizes.count(scores) <= (3 if name == "of all" else 2) and len(plan.steps) <= 7


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", slow_but(["slopes", "of keys"], ROWS))
def test_kernels_of_gradients_by_rows(name: str, dtype: str) -> None:
    """d_k and d_v, d_q, and the sums along rows: each reads scores that it computes itself."""
    assert_backward_right(gradient_of(name, dataclasses.replace(SMALL, dtype=dtype)), kernels=3)
