"""Masks as bits: conditions that bound the position, tensors of booleans, and both at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from tvm import ir, te, tirx

from tvm_cascade.analysis.tir import same
from tvm_cascade.tile.attention.masks import Pass, passes_of
from tvm_cascade.tile.attention.program import TileProgram
from tvm_cascade.tile.live import solved_for
from tvm_cascade.tile.skeletons.stream.config import StreamConfig

from . import folds
from .checked import assert_right, kernel_of
from .emulator.run import compiler, cuda_source
from .test_tile_program import attention_of, tile_program

Keeps = Callable[[ir.Expr, ir.Expr], ir.Expr]


def masked(keeps: Keeps | None, booleans: bool, s: folds.Scores) -> list[te.Tensor]:
    """Attention over the positions that a condition and a tensor of booleans keep."""
    scores, kept = s.at, te.placeholder((s.queries, s.keys), "bool", name="kept")

    def condition(i: ir.Expr, j: ir.Expr) -> ir.Expr:
        parts = [keeps(i, j)] if keeps is not None else []
        parts += [kept[i, j]] if booleans else []
        return parts[0] if len(parts) == 1 else tirx.And(*parts)

    s.at = te.compute(
        scores.shape,
        lambda i, j: tirx.if_then_else(condition(i, j), scores[i, j], tirx.const(-np.inf, "float32")),
        name="masked",
    )
    _, _, weight = folds._softmax(s)
    found = [s.narrow(s.weigh("out", weight, s.tensor("v")))]
    if booleans:
        s.inputs.append(kept)
    return found


def documents(i: ir.Expr, j: ir.Expr) -> ir.Expr:
    """Documents of 48 positions see themselves alone."""
    return tirx.EQ(tirx.floordiv(i, 48), tirx.floordiv(j, 48))


def band(i: ir.Expr, j: ir.Expr) -> ir.Expr:
    """From 70 before to 20 after."""
    return tirx.And(j <= i + 20, j > i - 70)


MASKS: dict[str, tuple[Keeps | None, bool]] = {
    "documents": (documents, False),
    "band": (band, False),
    "booleans": (None, True),
    "documents_of_booleans": (lambda i, j: tirx.floordiv(j, 48) <= tirx.floordiv(i, 48), True),
}


def program_of(name: str, **extents: int) -> tirx.PrimFunc:
    return folds.program(partial(masked, *MASKS[name]), "float16", **extents)


def passes(program: TileProgram, columns: int = 64) -> list[Pass]:
    return passes_of(program.element.masks, program.stream.position, columns)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize(
    ("name", "columns", "keys"),
    [
        ("documents_of_booleans", 128, 200),
        pytest.param("documents", 128, 200, marks=pytest.mark.slow),
        pytest.param("band", 176, 200, marks=pytest.mark.slow),
        pytest.param("booleans", 64, 199, marks=pytest.mark.slow),  # rows of booleans that are no whole words
    ],
)
def test_masked_positions_count_for_nothing(name: str, columns: int, keys: int) -> None:
    func, rng = program_of(name, keys=keys), np.random.default_rng(0)
    inputs = [rng.standard_normal((n, folds.DEPTH)).astype("float16") for n in (folds.QUERIES, keys, keys)]
    inputs += [rng.random((folds.QUERIES, keys)) < 0.7] if MASKS[name][1] else []
    assert_right(func, inputs, StreamConfig(columns=columns, consumers=2, stages=2, blocks=132), length=keys)


def alternating(score: ir.Expr, i: ir.Expr, j: ir.Expr) -> ir.Expr:
    """Doubled and halved in turn, as the squares of a board."""
    return tirx.if_then_else(tirx.EQ(tirx.floormod(i - j, 2), 0), score * tirx.const(2.0, "float32"), score * 0.5)


def less_by_distance(score: ir.Expr, i: ir.Expr, j: ir.Expr) -> ir.Expr:
    return score - tirx.Select(i - j >= 0, i - j, j - i).astype("float32") * tirx.const(0.05, "float32")


def less_by_distance_below(score: ir.Expr, i: ir.Expr, j: ir.Expr) -> ir.Expr:
    """No absolute value: positions after a row count double."""
    return score - tirx.Select(i - j >= 0, i - j, (j - i) * 2).astype("float32") * tirx.const(0.05, "float32")


def of_scores(change: Callable[[ir.Expr, ir.Expr, ir.Expr], ir.Expr], s: folds.Scores) -> list[te.Tensor]:
    scores = s.at
    s.at = te.compute(scores.shape, lambda i, j: change(scores[i, j], i, j), name="changed")
    _, _, weight = folds._softmax(s)
    return [s.narrow(s.weigh("out", weight, s.tensor("v")))]


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize(
    ("change", "magnitudes"), [(alternating, False), (less_by_distance, True), (less_by_distance_below, False)]
)
def test_maps_of_scores_read_the_place(change: Callable[..., ir.Expr], magnitudes: bool) -> None:
    """Distances are converted once, not for each position; their absolute value takes no selection."""
    config = StreamConfig(columns=64, consumers=2, stages=2, blocks=132)
    func, rng = folds.program(partial(of_scores, change), "float16", keys=200), np.random.default_rng(0)
    inputs = [rng.standard_normal((n, folds.DEPTH)).astype("float16") for n in (folds.QUERIES, 200, 200)]
    assert ("fabsf" in cuda_source(kernel_of(func, config).func)[1]) is magnitudes
    assert_right(func, inputs, config, length=200)


def test_conditions_of_one_value_are_applied_together() -> None:
    (both,) = passes(tile_program(attention_of("window_softcap", window=64)))
    assert len(both.bounds) == 2 and not both.loads
    (both,) = passes(tile_program(program_of("documents_of_booleans")))
    assert len(both.bounds) == 1 and len(both.loads) == 1


def test_booleans_are_read_four_at_a_time_where_their_rows_are_whole_words() -> None:
    config = StreamConfig(columns=64, consumers=2, stages=2, blocks=132)
    for keys, words in ((200, True), (199, False)):
        text = cuda_source(kernel_of(program_of("booleans", keys=keys), config).func)[1]
        assert ("ld.global.b32" in text) is words
        assert bool(passes(tile_program(program_of("booleans", keys=keys)))[0].loads) is words


def test_a_quotient_of_the_position_is_solved_for_the_position() -> None:
    program = tile_program(program_of("documents"))
    position, row = program.stream.position, program.stream.row
    first, last = sorted((solved_for(slack, position) for slack in program.skip), key=str, reverse=True)
    assert first is not None and last is not None and (first[0], last[0]) == (1, -1)
    place = tirx.floordiv(row, 48) * 48
    assert same(first[1], -place) or same(first[1], (0 - tirx.floordiv(row, 48)) * 48)
    assert same(last[1], place + 48 - 1)
