"""Every index, mask, barrier and register of a kernel for Hopper, checked on the CPU against the float64 oracle."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from tvm import te, tirx

from tvm_cascade.evaluate.oracle import signature
from tvm_cascade.tile.skeletons.stream.config import StreamConfig, tile_schedule

from . import folds
from .checked import assert_attention_right, assert_right, attention_case
from .emulator.run import compiler
from .test_tile_program import tile_program

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

SMALL = StreamConfig(columns=64, consumers=2, stages=2, blocks=132)
"""Several tiles of a short axis."""

PERSISTENT = StreamConfig(columns=64, consumers=2, stages=3, left_stages=2, blocks=1, own_staging=True)
"""One block does everything, with copies for the next rows under way."""


def test_lengths_that_are_no_multiples_of_a_tile() -> None:
    assert_attention_right(attention_case("full"), SMALL)


def test_configuration_of_its_own_choice() -> None:
    assert_attention_right(attention_case("full", "bfloat16", heads=2, head_dim=128))


def test_last_tile_is_whole() -> None:
    assert_attention_right(attention_case("full", queries=128, keys=192), SMALL)


def test_scores_far_below_where_references_start() -> None:
    """An empty state moves to them by nothing: exp of what they are below zero is infinite."""
    case = attention_case("full")
    q, k, v = case.inputs(np.random.default_rng(0), "normal")
    assert_right(case.build(), [q - q.dtype.type(12), k + k.dtype.type(12), v], SMALL, length=200)


def test_few_rows_and_one_tile() -> None:
    assert_attention_right(attention_case("full", "bfloat16", queries=3, keys=5), SMALL)


@pytest.mark.parametrize("variant", ["causal", "window_softcap", "mask", "causal_alibi"])
def test_masks_and_score_maps(variant: str) -> None:
    window = {"window": 70} if "window" in variant else {}
    assert_attention_right(attention_case(variant, **window), SMALL)


@pytest.mark.parametrize("own_staging", [True, False])
def test_persistent_block_does_several_tiles_of_rows(own_staging: bool) -> None:
    """Stores without memory of their own take the left operand's, of which there are two stages."""
    config = replace(PERSISTENT, own_staging=own_staging)
    assert_attention_right(attention_case("causal", "bfloat16", heads=2, queries=200), config)


@pytest.mark.parametrize("blocks", [2, 4])
def test_blocks_that_read_what_they_do_from_a_list(blocks: int) -> None:
    config = replace(PERSISTENT, blocks=blocks)
    case = attention_case("causal", "bfloat16", heads=5, queries=300, keys=300)
    shared_out = tile_schedule(config, tile_program(case.build()))
    assert shared_out is not None and shared_out.items is not None
    assert_attention_right(case, config)


def test_three_consumers() -> None:
    config = StreamConfig(columns=80, consumers=3, stages=2, left_stages=2, blocks=1, own_staging=True)
    assert_attention_right(attention_case("full", heads=2, queries=300), config)


def test_grouped_queries_in_a_batch() -> None:
    assert_attention_right(attention_case("causal", batch=2, heads=2, kv_heads=1, queries=260, keys=130), SMALL)


def test_rows_that_are_no_multiple_of_a_box() -> None:
    assert_attention_right(attention_case("full", "bfloat16", head_dim=80), SMALL)


FOLDS = {
    "log_sum_exp": (folds.log_sum_exp, "float16"),
    "entropy": (folds.entropy, "bfloat16"),
    "variance": (folds.variance, "float16"),
    "sigmoid": (folds.sigmoid, "float16"),
    "normalised": (folds.normalised, "bfloat16"),
    "centred": (folds.centred, "bfloat16"),
    "lowest_mask": (folds.lowest_mask, "float16"),
    "two_values": (folds.two_values, "float16"),
}


@pytest.mark.parametrize("name", FOLDS)
def test_folds_that_nobody_wrote_kernels_for(name: str) -> None:
    assert_fold_right(*FOLDS[name])


@pytest.mark.parametrize("name", [name for name, (_, dtype) in FOLDS.items() if dtype == "float16"])
def test_weights_that_the_program_rounds_itself(name: str) -> None:
    fold, dtype = FOLDS[name]
    assert_fold_right(fold, dtype, compiled=folds.program(fold, dtype, rounded=True))


def test_weights_that_float16_may_not_hold() -> None:
    assert_fold_right(folds.normalised, "float16")


@pytest.mark.parametrize("width", ["int32", "int64"])
def test_lengths_known_at_launch_alone(width: str) -> None:
    extents = {"queries": te.var("m", width), "keys": te.var("n", width)}
    assert_fold_right(folds.log_sum_exp, "float16", compiled=folds.program(folds.log_sum_exp, "float16", **extents))


def test_weights_that_the_program_rounds() -> None:
    rounded = folds.program(folds.log_sum_exp, "float16", rounded=True)
    assert_fold_right(folds.log_sum_exp, "float16", compiled=rounded)


def test_rows_without_a_key() -> None:
    """More queries than keys: the first rows are NaN, as in the unfused program."""
    assert_attention_right(attention_case("window", "bfloat16", queries=200, keys=100, window=40), PERSISTENT)


@pytest.mark.parametrize("kind", ["all_neg_inf_row", "neg_inf_first_segment", "pos_inf", "nan", "denormals"])
def test_classes_of_results(kind: str) -> None:
    assert_attention_right(attention_case("causal", "bfloat16"), SMALL, kind)


@pytest.mark.parametrize("name", ["entropy", "sigmoid", "variance"])
@pytest.mark.parametrize("special", [np.inf, np.nan])
def test_folds_of_special_values(name: str, special: float) -> None:
    assert_fold_right(*FOLDS[name], special=special)


@pytest.mark.parametrize(
    ("variant", "head_dim", "config"),
    [
        ("full", 256, None),
        ("softcap", 96, None),
        ("alibi", 40, StreamConfig(columns=16, consumers=2, stages=2, blocks=132)),
        ("mask", 72, StreamConfig(columns=176, consumers=2, stages=2, blocks=132)),
        ("causal", 64, StreamConfig(columns=64, consumers=1, stages=2, ping_pong=False, blocks=132)),
        ("causal", 128, StreamConfig(columns=64, consumers=2, stages=1, blocks=132)),
    ],
)
def test_widths_and_configurations(variant: str, head_dim: int, config: StreamConfig | None) -> None:
    assert_attention_right(attention_case(variant, heads=2, queries=70, head_dim=head_dim), config)


def assert_fold_right(
    fold: folds.Fold, dtype: str, special: float | None = None, compiled: tirx.PrimFunc | None = None
) -> None:
    """The fold's program over normal values, one of K replaced."""
    func, rounded = folds.program(fold, dtype), folds.program(fold, dtype, rounded=True)
    rng, stored = np.random.default_rng(0), np.dtype(getattr(ml_dtypes, dtype, dtype))
    inputs = [rng.standard_normal([int(n) for n in param.ty.shape]).astype(stored) for param in signature(func).inputs]
    if special is not None:
        inputs[1][3, 5] = special
    assert_right(func, inputs, SMALL, length=folds.KEYS, unfused=rounded, compiled=compiled)
