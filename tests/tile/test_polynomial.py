"""Powers of two by multiply-adds: as right as special functions, at every exponent, for the share that is asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tvm_cascade.tile.attention.near_zero import EIGHTHS, is_chosen
from tvm_cascade.tile.skeletons.stream.config import StreamConfig

from .checked import assert_attention_right, attention_case, kernel_of
from .emulator.run import compiler, emulate

SMALL = StreamConfig(columns=64, consumers=2, stages=2, optimistic=False, blocks=132)


@pytest.mark.parametrize("share", range(EIGHTHS + 1))
def test_a_share_is_spread_over_every_eight(share: int) -> None:
    chosen = [is_chosen(share, k) for k in range(EIGHTHS)]
    assert sum(chosen) == share
    assert all(abs(sum(chosen[:k]) - share * k / EIGHTHS) < 1 for k in range(EIGHTHS))


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize(("optimistic", "share"), [(False, EIGHTHS), (True, EIGHTHS), (False, 3)])
def test_what_the_polynomial_gives_is_right(optimistic: bool, share: int) -> None:
    """Masked positions have the weight 0; scores that fall along the axis leave the range and are done again."""
    for kind in ("normal", "falling") if optimistic else ("normal",):
        assert_attention_right(attention_case("causal"), replace(SMALL, optimistic=optimistic, polynomial=share), kind)


def _outputs(share: int, change: dict[int, float]) -> np.ndarray:
    case = attention_case("full", queries=64)
    inputs = case.inputs(np.random.default_rng(0))
    for column, value in change.items():
        inputs[1][..., column, :] = value
    found = emulate(kernel_of(case.build(), replace(SMALL, consumers=1, polynomial=share)).func, inputs)
    return np.asarray(found[0], "float64")


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
def test_a_share_is_taken_and_keeps_what_is_no_number() -> None:
    assert not np.array_equal(_outputs(0, {}), _outputs(3, {}))
    assert np.isnan(_outputs(EIGHTHS, {70: np.nan})).all()
