"""Folds of two products of the same rows and positions: gradients of attention, and feed-forward layers with gates."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from tvm import te, tirx
from tvm.ir import Expr

import tvm_cascade
from corpus.programs.attention import VARIANTS, attention
from corpus.programs.chain import Chain, chain
from corpus.programs.program import Precision
from tvm_cascade.devices.cards import H200, RTX5090
from tvm_cascade.tile.select import ranked_kernels
from tvm_cascade.tile.skeletons.stream.config import StreamConfig
from tvm_cascade.transform.fuse_function import fuse_function

from ..analysis.programs import array, each, fold, number, program, total
from ..tiers import slow_but
from ..transform.running import numpy_dtype
from .backward import OPTIONS, assert_backward_right, folds_of, plan_of, values_of
from .checked import assert_right, kernel_of
from .emulator.run import compiler
from .fold_programs import wide
from .test_compiled_kernels import instructions_of, text_of

LONG = {"heads": 16, "queries": 4096, "keys": 4096}

emulated = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


@cache
def gradient_of(variant: str, dtype: str = "bfloat16", **sizes: int) -> tvm_cascade.Gradient:
    """The gradient of an attention by its queries, keys and values."""
    shape = {"batch": 1, "heads": 1, "head_dim": 64, "window": 64, **sizes}
    func = attention(VARIANTS[variant])(shape, Precision(dtype, "float32")).prim_func()
    return tvm_cascade.gradient(func, wrt=("q", "k", "v"))


def test_a_gradient_of_attention_is_three_kernels_without_large_temporaries() -> None:
    plan = plan_of(gradient_of("causal", **LONG, head_dim=128).backward)
    assert [step.chosen.skeleton.name for step in plan.steps] == ["row", "stream", "stream"]
    stored = [sum(output.buffer.name.startswith("d_") for output in k.program.stream.outputs) for k in folds_of(plan)]
    assert stored == [2, 1] and [buffer.name for buffer in plan.temporaries] == ["d_row_max_sum"]


def test_a_tile_of_keys_is_a_score_and_a_value() -> None:
    """Of d_k and d_v, queries and d_out come once; numbers of rows come with them, where rows are keys."""
    first, second = (kernel.program for kernel in folds_of(plan_of(gradient_of("causal", **LONG).backward)))
    assert [product.tile for product in first.stream.products] == [0, 1]
    assert [product.tile for product in second.stream.products] == [0]
    assert sorted(map(str, first.rows_along)) == ["d_row_max_sum", "log_row_sum"] and not second.rows_along
    text = str(first)
    assert "mask      r = 0, r_1 = 0 unless j <= i" in text and first.uneven
    assert "accumulate d_v_sum_0 = d_v_sum_0 + r @ d_out[b, h, i, d] of bfloat16" in text


def test_wide_heads_have_a_kernel_for_each_gradient() -> None:
    plan = plan_of(gradient_of("causal", **LONG, head_dim=192).backward)
    assert [step.chosen.skeleton.name for step in plan.steps] == ["row", "stream", "stream", "stream"]


def test_heads_that_share_keys_are_summed_by_rows_of_memory() -> None:
    plan = plan_of(gradient_of("causal", **LONG, kv_heads=4).backward)
    assert [step.chosen.skeleton.name for step in plan.steps] == ["row", "stream", "stream", "row", "row"]
    assert all("a thread for 4 neighbouring rows" in str(step.chosen) for step in plan.steps[3:])


EMULATED = {
    "fewer queries than keys": ("full", {"queries": 130, "keys": 200}),
    "causal, with a soft cap": ("causal_softcap", {"queries": 128, "keys": 128}),
    "rows of no whole copies": ("causal_alibi", {"queries": 99, "keys": 131}),
    "a window": ("window", {"queries": 200, "keys": 216}),
    "two heads of 128": ("softcap", {"heads": 2, "queries": 192, "keys": 192, "head_dim": 128}),
    "heads of 72": ("mask", {"queries": 130, "keys": 130, "head_dim": 72}),
}


@emulated
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", slow_but(list(EMULATED)[:3], EMULATED))
def test_gradients_of_attention(name: str, dtype: str) -> None:
    variant, sizes = EMULATED[name]
    assert_backward_right(gradient_of(variant, dtype, **sizes))


@emulated
def test_outputs_take_turns_in_the_memory_of_the_left_operands() -> None:
    """The second is written where the first is copied from, once that copy has read it."""
    config = StreamConfig(columns=64, stages=2, blocks=1, own_staging=False)
    assert_backward_right(gradient_of("full", queries=128, keys=256), config=config)


SIZES = {
    "weights beyond float16": {"q": 2.0**-7, "k": 2.0**-7, "v": 2048.0, "d_out": 4096.0},
    "adjoints that float16 barely has": {"q": 64.0, "k": 2.0**-4, "v": 1.0, "d_out": 2.0**-18},
}


@emulated
@pytest.mark.parametrize("name", SIZES)
def test_gradients_of_any_size(name: str) -> None:
    """Results are ordinary numbers; weights d_s that are rounded to float16 as they are would be infinite, or zero."""
    found = gradient_of("full", "float16", queries=130, keys=100)
    values = values_of(found, SIZES[name])
    assert_backward_right(found, values)
    q, k, v, d_out, out, lse = (
        values[n][0, 0].astype("float64") for n in ("q", "k", "v", "d_out", "out", "log_row_sum")
    )
    weights = np.exp(q @ k.T / 8 - lse[:, None]) * (d_out @ v.T - (d_out * out).sum(-1, keepdims=True)) / 8
    if "beyond" in name:
        assert np.abs(weights).max() > 65504
    else:
        assert np.median(np.abs(weights)) < 2.0**-21


HARD = {
    "large adjoints": ({"d_out": 1e3, "v": 2048.0, "q": 0.125, "k": 0.125}, 1.0),
    "tiny adjoints": ({"d_out": 1e-4}, 1.0),
    "an outlier": ({"d_out": 1e-4}, 1e5),
}


@emulated
@pytest.mark.parametrize("variant", ["full", "causal"])
@pytest.mark.parametrize("name", HARD)
def test_each_row_of_a_gradient_has_its_own_digits(name: str, variant: str) -> None:
    """Relative to float64's row: rounded as they are, tiny weights would be lost, and those beside an outlier too."""
    sizes, outlier = HARD[name]
    found = gradient_of(variant, "float16", queries=272, keys=272)  # tiles enough for scales to stay
    d_out = np.random.default_rng(1).standard_normal((1, 1, 272, 64)) * sizes["d_out"]
    d_out[0, 0, 100] *= outlier
    values = values_of(found, sizes, {"d_out": np.asarray(d_out, "float16")})
    assert_backward_right(found, values)


def test_weights_of_float16_are_relative_to_the_largest() -> None:
    """A probability is at most 1, but all of a key's may be far below what float16 has."""
    found = folds_of(plan_of(gradient_of("full", "float16", **LONG).backward))
    for kernel, scaled in zip(found, (["d_v", "d_k"], ["d_q"]), strict=True):
        largest = [str(reference.tracks) for reference in kernel.program.stream.fold.references]
        assert largest == [f"largest_{name}_sum_0" for name in scaled]
        assert all(f"finish    {name}_sum = c_{name}_sum_0*{name}_sum_0" in str(kernel.program) for name in scaled)
    wide = folds_of(plan_of(gradient_of("full", **LONG).backward))
    assert not any(kernel.program.stream.fold.references for kernel in wide)


@emulated
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_gated_layer_reads_its_rows_once(dtype: str) -> None:
    """out = (silu(x·gate)·(x·up))·down of many rows: x is the left operand of both, no hidden value is stored."""
    sizes = {"m": 100, "k": 64, "n": 200, "l": 64}
    func = chain(Chain("silu", gated=True))(sizes, Precision(dtype, "float32")).prim_func()
    stream = kernel_of(func).program.stream
    assert len(stream.scores) == 2 and [left.buffer.name for left in stream.lefts] == ["x"]
    assert not stream.shares_tiles
    generator = np.random.default_rng(0)
    inputs = [
        (generator.standard_normal([int(extent) for extent in param.ty.shape]) / 4).astype(numpy_dtype(dtype))
        for param in func.params[:-1]
    ]
    assert_right(func, inputs, length=sizes["n"])


REFUSED = {
    "as many registers as products": (3, 1, "3 elements are computed from 2 products"),
    "three products": (1, 3, "3 inner reductions feed the fold; the shape has one or 2"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    results, products, reason = REFUSED[name]
    kernels = ranked_kernels(fuse_function(_products(results, products), OPTIONS, H200), "main", H200, OPTIONS)
    assert isinstance(kernels, str) and reason in kernels


def _products(results: int, products: int) -> tirx.PrimFunc:
    """Sums over columns of maps of several products with one left operand, times as many values."""
    rows, columns, depth = 256, 256, 64
    x = array("x", rows, depth, dtype="bfloat16")
    weights = [array(f"w{k}", columns, depth, dtype="bfloat16") for k in range(max(products, 2))]
    values = [array(f"v{k}", columns, depth, dtype="bfloat16") for k in range(results)]

    scores = [fold(f"s{k}", partial(_score, x, w), total, depth, (rows, columns)) for k, w in enumerate(weights)]
    sums = [
        fold(f"o{k}", partial(_share, scores, k + 1, v), total, columns, (rows, depth)) for k, v in enumerate(values)
    ]
    stored = [each(f"out{k}", partial(_rounded, one), rows, depth) for k, one in enumerate(sums)]
    return program(x, *weights, *values, *stored)


def _score(x: te.Tensor, w: te.Tensor, i: Expr, j: Expr, d: Expr) -> Expr:
    return wide(x[i, d]) * wide(w[j, d])


def _share(scores: Sequence[te.Tensor], rate: int, value: te.Tensor, i: Expr, f: Expr, j: Expr) -> Expr:
    found = te.exp(scores[0][i, j] * number(rate))
    for score in scores[1:]:
        found = found * score[i, j]
    return found * wide(value[j, f])


def _rounded(x: te.Tensor, i: Expr, f: Expr) -> Expr:
    return x[i, f].astype("bfloat16")


COMPILED = [("full", 128, dtype) for dtype in ("bfloat16", "float16")] + [
    ("full", 64, "bfloat16"), *((variant, width, "float16") for variant, width in (("full", 64), ("causal", 64))),
    ("causal", 128, "float16"),
]  # fmt: skip


@pytest.mark.parametrize(("variant", "head_dim", "dtype"), slow_but(COMPILED[:2], COMPILED))
def test_a_gradient_compiles_without_spills(variant: str, head_dim: int, dtype: str, tmp_path: Path) -> None:
    for kernel in folds_of(plan_of(gradient_of(variant, dtype, **LONG, head_dim=head_dim).backward)):
        assert "HGMMA" in {name.split(".")[0] for name in instructions_of(text_of(kernel), tmp_path)}


@emulated
def test_another_family_multiplies_as_well() -> None:
    """By mma.sync, whose products are done where they stand."""
    assert_backward_right(gradient_of("causal", queries=128, keys=128), gpu=RTX5090)
