"""Blocks of positions that a table keeps: tiles of others are passed over, by every role alike."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray
from tvm import ir, te, tirx

from tvm_cascade.tile.live import of_whole_tiles
from tvm_cascade.tile.skeletons.stream.config import StreamConfig

from . import folds
from .checked import assert_right, kernel_of
from .emulator.run import compiler, cuda_source
from .test_tile_program import tile_program

ROWS, COLUMNS = 128, 64
QUERIES, KEYS = 300, 500
TABLE = np.array([[1, 0, 0, 1, 0, 0, 0, 1], [0, 0, 1, 0, 0, 0, 0, 0], [0, 1, 1, 0, 0, 0, 1, 0]], bool)
"""The last tile reaches past the end of the axis; some rows visit it and some do not."""

SMALL = StreamConfig(columns=COLUMNS, consumers=2, stages=2, blocks=132)


def masked(causal: bool, block: tuple[int, int], s: folds.Scores) -> list[te.Tensor]:
    """Attention over the positions whose block a table keeps; a row without any is 0."""
    scores = s.at
    kept = te.placeholder((-(-s.queries // block[0]), -(-s.keys // block[1])), "bool", name="kept")

    def condition(i: ir.Expr, j: ir.Expr) -> ir.Expr:
        of_block = kept[tirx.floordiv(i, block[0]), tirx.floordiv(j, block[1])]
        return tirx.And(of_block, j <= i + 200) if causal else of_block

    s.at = te.compute(
        scores.shape,
        lambda i, j: tirx.if_then_else(condition(i, j), scores[i, j], tirx.const(-np.inf, "float32")),
        name="masked",
    )
    _, total, weight = folds._softmax(s)
    zero = tirx.const(0.0, "float32")

    def guarded(i: ir.Expr, j: ir.Expr) -> ir.Expr:
        return tirx.if_then_else(total[i] == zero, zero, weight(i, j))

    found = [s.narrow(s.weigh("out", guarded, s.tensor("v")))]
    s.inputs.append(kept)
    return found


def program_of(causal: bool = False, block: tuple[int, int] = (ROWS, COLUMNS)) -> tirx.PrimFunc:
    return folds.program(partial(masked, causal, block), "float16", queries=QUERIES, keys=KEYS)


def data(table: NDArray[np.bool_]) -> list[NDArray[np.generic]]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((n, folds.DEPTH)).astype("float16") for n in (QUERIES, KEYS, KEYS)] + [table]


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize(
    ("causal", "config"),
    [
        (True, SMALL),
        pytest.param(False, SMALL, marks=pytest.mark.slow),
        pytest.param(
            True,
            StreamConfig(columns=COLUMNS, consumers=2, stages=3, left_stages=2, blocks=1, own_staging=True),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            False,
            StreamConfig(columns=COLUMNS, consumers=2, stages=2, blocks=132, ping_pong=True, optimistic=True),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_positions_of_other_blocks_count_for_nothing(causal: bool, config: StreamConfig) -> None:
    assert_right(program_of(causal), data(TABLE), config, length=KEYS)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("empty", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_rows_that_visit_nothing_are_zero(empty: int) -> None:
    table = TABLE.copy()
    table[empty] = False
    assert_right(program_of(), data(table), SMALL, length=KEYS)


def of_kinds(s: folds.Scores) -> list[te.Tensor]:
    """Of blocks of kind 1 those positions count whose documents are the same, of kind 2 all, of kind 0 none."""
    scores, kinds = s.at, te.placeholder((3, 8), "int32", name="kinds")
    documents = te.placeholder((s.keys,), "int32", name="documents")

    def kept(i: ir.Expr, j: ir.Expr) -> ir.Expr:
        kind, alike = kinds[tirx.floordiv(i, ROWS), tirx.floordiv(j, COLUMNS)], tirx.EQ(documents[i], documents[j])
        return tirx.all(kind > 0, j <= i + 200, tirx.Or(kind > 1, alike))

    lowest = tirx.const(-np.inf, "float32")
    s.at = te.compute(scores.shape, lambda i, j: tirx.if_then_else(kept(i, j), scores[i, j], lowest), name="masked")
    _, _, weight = folds._softmax(s)
    found = [s.narrow(s.weigh("out", weight, s.tensor("v")))]
    s.inputs += [kinds, documents]
    return found


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("optimistic", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_masks_of_what_is_loaded_are_asked_where_a_block_is_not_full(optimistic: bool) -> None:
    func = folds.program(of_kinds, "float16", queries=QUERIES, keys=KEYS)
    config = replace(SMALL, optimistic=optimistic)
    kinds = TABLE.astype("int32")
    kinds[0, 3], kinds[1, 2], kinds[2, 1] = 2, 2, 2
    documents = np.arange(KEYS, dtype="int32") // 90
    kinds[:, 0] = np.maximum(kinds[:, 0], [1, 0, 0])
    assert_right(func, [*data(TABLE)[:-1], kinds, documents], config, length=KEYS)
    assert "of_tile" in cuda_source(kernel_of(func, config).func)[1]


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
def test_blocks_that_are_no_tiles_are_masks() -> None:
    """Of 32 rows and 16 positions: tiles have some of both."""
    table = np.random.default_rng(1).random((-(-QUERIES // 32), -(-KEYS // 16))) < 0.3
    assert_right(program_of(block=(32, 16)), data(table), SMALL, length=KEYS)


def test_tiles_are_passed_over_where_blocks_are_made_of_them() -> None:
    for block, asked in (((ROWS, COLUMNS), True), ((2 * ROWS, 4 * COLUMNS), True), ((ROWS // 2, COLUMNS), False)):
        func = program_of(block=block)
        text = cuda_source(kernel_of(func, SMALL).func)[1]
        assert ("passing_tile" in text) is asked
        program = tile_program(func)
        (of_blocks,) = program.needed
        stream = program.stream
        assert bool(of_whole_tiles([of_blocks], stream.row, ROWS, stream.position, COLUMNS)) is asked
