"""Programs of a model's head as one kernel: losses, choices and two heads, against the oracle, and the path taken."""

from __future__ import annotations

import numpy as np
import pytest

from corpus import workloads
from tvm_cascade import explain
from tvm_cascade.evaluate.oracle import evaluate
from tvm_cascade.evaluate.tolerance import check
from tvm_cascade.tile.launch.fast_math import is_fast, with_fast_math
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.skeletons.product.folded.config import LongConfig

from ..tiers import slow_but
from . import folded_programs as programs
from .emulator.run import emulate
from .test_folded_products import assert_right, emulated, kernel_of, rows, stretches

HOPPER = {"kind": "cuda", "arch": "sm_90a"}
SMALL = {"tokens": 70, "hidden": 64, "classes": 150}
"""Neither the last tile of a row is full, nor the last tile of rows."""


@emulated
@pytest.mark.parametrize(
    "asked",
    # The best few of stretches are among those of `test_folded_products`.
    slow_but(["training_loss", "sample", "divergence"], ["training_loss", "sample", "best_few", "divergence"]),
)
def test_stretches_of_the_vocabulary(asked: str) -> None:
    """Ignored targets among others; indices of samples are the oracle's."""
    func, config = workloads.get(f"head_{asked}").with_shape(**SMALL), stretches(32, 2)
    given = func.inputs(np.random.default_rng(0))
    kernel = kernel_of(func.build(), config)
    (found,) = emulate(kernel.func, given)
    (exact,) = evaluate(func.build(), given).values()
    (usual,) = evaluate(func.build(), given, rounding=True).values()
    told = check(found, exact, usual, length=SMALL["hidden"], dtype=str(found.dtype))
    assert told.ok, told.message


@emulated
@pytest.mark.parametrize(
    "config", [stretches(64, 1, 128, 128, 2), stretches(32, 2, 128, 128), stretches(48, 2, 128, 128, 2)]
)
def test_two_heads_of_different_widths(config: LongConfig) -> None:
    """In float16: one stretch, two consumers, and several accumulators of a consumer."""
    assert_right(programs.two_heads(130, 150, 64, 192), config, 192)


def test_few_tokens_have_narrow_tiles_of_one_consumer() -> None:
    """As many stretches as blocks; the fold of the last tile is hidden by nothing."""
    config = kernel_of(workloads.get("head_sample").with_shape(tokens=16).build()).config
    assert isinstance(config, LongConfig) and config.stretches == 132
    assert (config.tile.rows, config.tile.consumers) == (64, 1) and config.tile.columns <= 128


@pytest.mark.parametrize(
    ("asked", "tokens"),
    [("cross_entropy", 1), ("training_loss", 1), ("divergence", 1), ("divergence", 4096), ("sample", 4096)],
)
def test_logits_are_in_no_memory(asked: str, tokens: int) -> None:
    func = workloads.get(f"head_{asked}").with_shape(tokens=tokens).build()
    (report,) = explain(func, HOPPER).functions
    assert report.lowering.startswith("the tensor-core kernel `folded`, LongConfig")


@pytest.mark.parametrize(("asked", "fast"), [("training_loss", True), ("sample", False)])
def test_logarithms_of_logarithms_are_exact(asked: str, fast: bool) -> None:
    """Gumbel noise is largest where the inner logarithm is near 0, of which an approximation has few digits."""
    func = workloads.get(f"head_{asked}").with_shape(**SMALL).build()
    assert is_fast(with_fast_math(kernel_of(func, stretches(32, 2)).func)) is fast


def test_operands_that_stages_do_not_share_are_refused() -> None:
    with pytest.raises(Unfit, match="differ in their dtypes, or in what is contiguous"):
        kernel_of(programs.two_heads(70, 150, 64, 64, teacher="bfloat16"), stretches(32, 2))


def test_rows_of_two_products_have_no_room_on_chip() -> None:
    with pytest.raises(Unfit, match="2 products, of which shared memory has room for the rows of one"):
        kernel_of(programs.two_heads(70, 40, 64, 64), rows(48))
