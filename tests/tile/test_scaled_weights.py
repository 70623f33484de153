"""Weights that float16 may not hold are multiplied relative to the largest of their row."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx
from tvm.ir import Expr

from tvm_cascade.evaluate.oracle import evaluate
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.skeletons.stream.config import StreamConfig

from ..analysis.programs import array, fold, maximum, program, total
from .checked import kernel_of
from .emulator.run import Array, compiler, emulate
from .fold_programs import wide
from .split_stream import SPLIT, SplitStreamSkeleton
from .test_tile_program import tile_program

ROWS, KEYS, DEPTH = 130, 333, 64
SMALL = StreamConfig(columns=64, consumers=2, stages=2, blocks=2)

emulated = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


def weighted(weight: Callable[[te.Tensor, Expr, Expr], Expr], dtype: str = "float16") -> tirx.PrimFunc:
    """q, k, v -> out[i, f] = Σ_j weight(q·kᵀ)[i, j]·v[j, f], in float32."""
    q, k, v = (array(name, count, DEPTH, dtype=dtype) for name, count in (("q", ROWS), ("k", KEYS), ("v", KEYS)))
    score = fold("score", lambda i, j, d: wide(q[i, d]) * wide(k[j, d]), total, DEPTH, (ROWS, KEYS))
    out = fold("out", lambda i, f, j: weight(score, i, j) * wide(v[j, f]), total, KEYS, (ROWS, DEPTH))
    return program(q, k, v, out)


WEIGHTS: dict[str, Callable[[te.Tensor, Expr, Expr], Expr]] = {
    "scores": lambda s, i, j: s[i, j],
    "masked cubes": lambda s, i, j: tirx.if_then_else(j <= i, s[i, j] * s[i, j] * s[i, j], tirx.const(0, "float32")),
}


def drawn(seed: int = 0) -> list[Array]:
    """Rows of sizes that are powers of two, from 2⁻²⁰ to 2⁸, in no order, and one of zeros."""
    generator = np.random.default_rng(seed)
    q, k, v = (generator.standard_normal((count, DEPTH)) for count in (ROWS, KEYS, KEYS))
    q *= 2.0 ** generator.integers(-20, 9, (ROWS, 1))
    q[7] = 0
    return [np.asarray(one, "float16") for one in (q, k * 2.0 ** np.linspace(-4, 4, KEYS)[:, None], v)]


KERNELS: dict[str, Any] = {
    "stream": {"config": SMALL},
    "segments": {"config": SPLIT, "skeleton": SplitStreamSkeleton()},
}


@emulated
@pytest.mark.parametrize(("name", "kernel"), [("scores", "stream"), ("scores", "segments"), ("masked cubes", "stream")])
def test_rows_of_any_size(name: str, kernel: str) -> None:
    """The largest weight of a row moves from tile to tile, or between segments, and each row has its own."""
    func, inputs = weighted(WEIGHTS[name]), drawn()
    (found,) = emulate(kernel_of(func, **KERNELS[kernel]).func, inputs)
    (exact,) = evaluate(func, inputs).values()
    sizes = np.linalg.norm(exact, axis=-1)
    errors = np.linalg.norm(found - exact, axis=-1)
    assert not found[7].any() and (errors <= 2.0**-11 * sizes).all()
    assert sizes.max() > 2.0**20 and 0 < np.sort(sizes)[1] < 2.0**-5


def grown(first: float, later: float) -> list[Array]:
    """Weights that grow along the order in which tiles are visited, which is from the last one on."""
    generator = np.random.default_rng(2)
    q, k, v, w = (generator.standard_normal((count, DEPTH)) for count in (ROWS, KEYS, KEYS, KEYS))
    rise = np.where(np.arange(KEYS) < KEYS // 2, later, first)[:, None]
    return [np.asarray(one, "float16") for one in (q, k * rise, v, w * rise)]


def two_scores() -> tirx.PrimFunc:
    """q, k, v, w -> out[i, f] = Σ_j (q·kᵀ)[i, j]·(q·wᵀ)[i, j]·v[j, f]."""
    q, k, v, w = (
        array(name, n, DEPTH, dtype="float16") for name, n in zip("qkvw", (ROWS, KEYS, KEYS, KEYS), strict=True)
    )
    score = fold("score", lambda i, j, d: wide(q[i, d]) * wide(k[j, d]), total, DEPTH, (ROWS, KEYS))
    other = fold("other", lambda i, j, d: wide(q[i, d]) * wide(w[j, d]), total, DEPTH, (ROWS, KEYS))
    out = fold("out", lambda i, f, j: score[i, j] * other[i, j] * wide(v[j, f]), total, KEYS, (ROWS, DEPTH))
    return program(q, k, v, w, out)


STAYS = re.compile(r"tvm_builtin_cuda_any_sync\([^;]*?\) == 0\)")


def never_moved(text: str) -> str:
    """The kernel without what it does where weights do not fit."""
    changed, count = STAYS.subn("true)", text)
    assert count
    return changed


@emulated
@pytest.mark.parametrize(("first", "later"), [(1.0, 4.0), (2.0**-6, 2.0**8), (0.0, 2.0**-9)])
def test_scales_stay_until_a_weight_does_not_fit(first: float, later: float) -> None:
    """Rows of zeros so far, too, move at their first weight; and what moves is needed."""
    func, inputs = two_scores(), grown(first, later)
    kernel = kernel_of(func, SMALL)
    (exact,) = evaluate(func, inputs).values()
    sizes = np.linalg.norm(exact, axis=-1)

    def right(found: Array) -> bool:
        return bool((np.linalg.norm(found - exact, axis=-1) <= 2.0**-11 * sizes).all())

    assert kernel.program.standing is not None and right(emulate(kernel.func, inputs)[0])
    assert right(emulate(kernel.func, inputs, never_moved)[0]) == (first == 1.0)


@emulated
def test_an_infinite_weight_is_infinite_alone() -> None:
    func, inputs = weighted(WEIGHTS["scores"]), drawn()
    inputs[0][3, 0], inputs[1][70] = np.inf, 1
    (found,) = emulate(kernel_of(func, SMALL).func, inputs)
    (exact,) = evaluate(func, inputs).values()
    others = [row for row in range(ROWS) if row != 3]
    assert np.isfinite(found[others]).all() and not np.isfinite(found[3]).any() and not np.isfinite(exact[3]).any()


@pytest.mark.parametrize(("dtype", "scaled"), [("float16", True), ("bfloat16", False)])
def test_a_dtype_with_the_range_of_float32_needs_none(dtype: str, scaled: bool) -> None:
    assert bool(tile_program(weighted(WEIGHTS["scores"], dtype)).stream.fold.references) == scaled


def test_what_the_program_itself_rounds_is_left_as_it_is() -> None:
    func = weighted(lambda s, i, j: wide(s[i, j].astype("float16")))
    assert not tile_program(func).stream.fold.references


def test_masked_tiles_are_skipped_as_before() -> None:
    kept = tile_program(weighted(WEIGHTS["masked cubes"]))
    assert kept.uneven and [str(one) for one in kept.skip] == [
        str(one) for one in tile_program(weighted(WEIGHTS["masked cubes"], "bfloat16")).skip
    ]


def test_weights_at_a_reference_that_moves_are_refused() -> None:
    """exp(s − m)·s has no bound, and moves with the maximum already."""
    q, k, v = (array(name, count, DEPTH, dtype="float16") for name, count in (("q", ROWS), ("k", KEYS), ("v", KEYS)))
    score = fold("score", lambda i, j, d: wide(q[i, d]) * wide(k[j, d]), total, DEPTH, (ROWS, KEYS))
    most = fold("most", lambda i, j: score[i, j], maximum, KEYS, (ROWS,))
    out = fold(
        "out", lambda i, f, j: te.exp(score[i, j] - most[i]) * score[i, j] * wide(v[j, f]), total, KEYS, (ROWS, DEPTH)
    )
    with pytest.raises(Unfit, match="may leave the range of float16"):
        tile_program(program(q, k, v, out))
