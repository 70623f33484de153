"""Kernels of programs whose maxima start at −inf: rows, columns and products that are −inf in part or whole."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tvm_cascade.evaluate.oracle import evaluate, signature
from tvm_cascade.tile.row.config import RowConfig

from ..analysis.infinite import from_infinity
from ..tiers import slow_but
from . import folds
from .checked import assert_right, attention_case
from .column_programs import COLUMNS
from .emulator.run import compiler
from .row_programs import PROGRAMS as ROWS
from .test_columns import FEW_LANES, MANY, ONE
from .test_emulated import SMALL
from .test_row_kernels import BLOCK, CLUSTER, GRID, WARP, drawn
from .test_row_kernels import assert_right as assert_row_right

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

INF = float("inf")


@pytest.mark.parametrize("kind", ["neg_inf_first_segment", "all_neg_inf_row"])
@pytest.mark.parametrize("name", ["softmax", "softmax_stats", "cross_entropy", "entropy", "modes"])
def test_rows(name: str, kind: str) -> None:
    assert_row_right(from_infinity(ROWS[name](rows=3, length=300)), kind=kind)


@pytest.mark.parametrize("config", [WARP, BLOCK, CLUSTER, GRID], ids=["warp", "block", "cluster", "grid"])
@pytest.mark.parametrize("kind", ["neg_inf_first_segment", "all_neg_inf_row"])
def test_every_level_merges_them(config: RowConfig, kind: str) -> None:
    """Of the first row no position is kept."""
    func = from_infinity(ROWS["masked_sum_exp"](rows=3, length=1000))
    inputs = drawn(func, kind)
    inputs[1][:] = 0, 7, 900
    assert np.isnan(evaluate(func, inputs)["out"][0])
    assert_row_right(func, config, inputs=inputs)


WHERE = {"all": slice(None), "first tile": slice(0, 64), "all but it": slice(64, None)}


@pytest.mark.parametrize(
    ("name", "where"),
    slow_but(
        [("log_sum_exp", "all"), ("two_values", "first tile"), ("entropy", "all but it")],
        product(["log_sum_exp", "entropy", "two_values"], WHERE),
    ),
)
def test_products(name: str, where: str) -> None:
    fold = getattr(folds, name)
    func, rounded = (from_infinity(folds.program(fold, "float16", rounded=r)) for r in (False, True))
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal([int(n) for n in p.ty.shape]).astype("float16") for p in signature(func).inputs]
    inputs[0][:, 0], inputs[1][WHERE[where], 0] = 1, -INF
    assert_right(func, inputs, SMALL, length=folds.KEYS, unfused=rounded)


@pytest.mark.parametrize("config", [ONE, FEW_LANES, MANY], ids=["one", "few lanes", "many blocks"])
def test_columns(config: RowConfig) -> None:
    func = from_infinity(COLUMNS["masked_sum_exp"](rows=36, length=71))
    x, keep = drawn(func)
    x[:, 0], x[:40, 1], x[40:, 2] = -INF, -INF, -INF
    assert_row_right(func, config, inputs=[x, keep])
    assert_row_right(func, config, inputs=[x, np.zeros_like(keep)])


def test_rows_without_a_key() -> None:
    """Of 130 queries, which see 20 keys each, the first are before all 70 keys."""
    case = attention_case("window", "float16", queries=130, keys=70, window=20)
    func, inputs = from_infinity(case.build()), case.inputs(np.random.default_rng(0))
    (out,) = evaluate(func, inputs).values()
    assert np.isnan(out).any() and np.isfinite(out).any()
    assert_right(func, inputs, SMALL, length=70)
