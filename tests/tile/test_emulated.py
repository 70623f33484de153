"""Every index, mask, barrier and register of a kernel for Hopper, checked on the CPU against the float64 oracle."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tvm_cascade.evaluate.oracle import signature
from tvm_cascade.tile.config import StreamConfig

from . import folds
from .checked import assert_attention_right, assert_right, attention_case
from .emulator.run import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

SMALL = StreamConfig(columns=64, consumers=2, stages=2)
"""Several tiles of a short axis."""

PERSISTENT = StreamConfig(columns=64, consumers=2, stages=3, left_stages=2, blocks=1, own_staging=True)
"""One block does everything, with copies for the next rows under way."""


def test_lengths_that_are_no_multiples_of_a_tile() -> None:
    assert_attention_right(attention_case("full"), SMALL)


def test_configuration_of_its_own_choice() -> None:
    assert_attention_right(attention_case("full", "bfloat16", heads=2, head_dim=128))


def test_last_tile_is_whole() -> None:
    assert_attention_right(attention_case("full", queries=128, keys=192), SMALL)


def test_few_rows_and_one_tile() -> None:
    assert_attention_right(attention_case("full", "bfloat16", queries=3, keys=5), SMALL)


@pytest.mark.parametrize("variant", ["causal", "window_softcap", "mask", "causal_alibi"])
def test_masks_and_score_maps(variant: str) -> None:
    window = {"window": 70} if "window" in variant else {}
    assert_attention_right(attention_case(variant, **window), SMALL)


def test_persistent_block_does_several_tiles_of_rows() -> None:
    assert_attention_right(attention_case("causal", "bfloat16", heads=2, queries=200), PERSISTENT)


def test_three_consumers() -> None:
    config = StreamConfig(columns=80, consumers=3, stages=2, left_stages=2, blocks=1, own_staging=True)
    assert_attention_right(attention_case("full", heads=2, queries=300), config)


def test_grouped_queries_in_a_batch() -> None:
    assert_attention_right(attention_case("causal", batch=2, heads=4, kv_heads=2, queries=70, keys=130), SMALL)


def test_rows_that_are_no_multiple_of_a_box() -> None:
    assert_attention_right(attention_case("full", "bfloat16", head_dim=80), SMALL)


FOLDS = {
    "log_sum_exp": (folds.log_sum_exp, "float16"),
    "entropy": (folds.entropy, "bfloat16"),
    "variance": (folds.variance, "float16"),
    "sigmoid": (folds.sigmoid, "float16"),
    "normalised": (folds.normalised, "bfloat16"),
    "centred": (folds.centred, "bfloat16"),
    "two_values": (folds.two_values, "float16"),
}


@pytest.mark.parametrize("name", FOLDS)
def test_folds_that_nobody_wrote_kernels_for(name: str) -> None:
    fold, dtype = FOLDS[name]
    func, rounded = folds.program(fold, dtype), folds.program(fold, dtype, rounded=True)
    rng = np.random.default_rng(0)
    inputs = [
        rng.standard_normal([int(n) for n in param.ty.shape]).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
        for param in signature(func).inputs
    ]
    assert_right(func, inputs, SMALL, length=folds.KEYS, unfused=rounded)
