"""The cost model: what is fused by default and what is declined, on every workload; and what makes the difference."""

from __future__ import annotations

import pytest

from tvm_cascade.algebra.verdict import Verdict
from tvm_cascade.bench import suites
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_function import Decision, fuse_function

DECLINED = {
    "layernorm_gemm 512x1024x1024": "three products instead of one",
    "layernorm_gemm 32x48x192": "three products instead of one",
    "L1 2x4x96x64x16": "keys that all heads share are packed for each block of heads",
    "L7 1x4x96x64x16": "keys that all heads share are packed for each block of heads",
    "mla 1x4x96x64x16": "keys that all heads share are packed for each block of heads",
    "R1 32x192x32x1": "tokens are packed for a product of few columns",
    "V3 4x4096": "three sums over rows that a cache holds, instead of two",
    "variance 4x4096": "three sums over rows that a cache holds, instead of two",
    "covariance 4x4096": "five sums over rows that a cache holds, instead of three",
    "third_moment 4x4096": "four sums over rows that a cache holds, instead of two",
    "softmax 4x4096": "exponentials computed twice, of rows that a cache holds",
}
"""Rows of the suite `cpu` that are slower fused, as measured, and why."""

REFUSED = {"Q1 32x48x192": "a rounding to float8 that is not allowed to move"}


def decision(entry: suites.Entry) -> Decision:
    (found,) = fuse_function(entry.workload.build(), FuseOptions()).decisions
    return found


@pytest.mark.parametrize("entry", suites.entries("cpu"), ids=lambda entry: entry.label)
def test_the_choice_for_every_workload(entry: suites.Entry) -> None:
    verdict = decision(entry).reason.verdict
    table = ((Verdict.DECLINED, DECLINED), (Verdict.REFUSED, REFUSED))
    assert verdict is next((v for v, labels in table if entry.label in labels), Verdict.FUSED)
