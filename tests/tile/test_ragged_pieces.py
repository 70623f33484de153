"""Few rows of sequences of different lengths: the device counts live tiles, and shares them out equally."""

from __future__ import annotations

import numpy as np
import pytest

from corpus.programs.attention import VARIANTS, attention
from corpus.programs.caches import RAGGED
from corpus.workload import Workload
from tvm_cascade.devices.cards import H200
from tvm_cascade.tile.attention.pieces import MOST_SEQUENCES
from tvm_cascade.tile.skeletons.stream.pieces.config import PiecesConfig, ranked_pieces, sequences_of

from ..tiers import slow_but
from .checked import assert_right, kernel_of
from .emulator.run import compiler, cuda_source
from .paged_programs import Paged
from .test_tile_program import tile_program

emulated = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


def pieces(blocks: int, columns: int = 64) -> PiecesConfig:
    """A configuration for so many blocks."""
    return PiecesConfig(columns, 1, 2, blocks)


def ragged(variant: str, **extents: int) -> Workload:
    """An attention over contiguous keys up to lengths."""
    shape = {"batch": 3, "heads": 4, "kv_heads": 2, "queries": 2, "keys": 300, "head_dim": 64, "shortest": 2, **extents}
    build = attention(VARIANTS[variant], cache=RAGGED)
    return Workload(variant, "attention", "tests", shape, "float16", "float32", build, ("keys",))


@emulated
@pytest.mark.parametrize("blocks", slow_but([4, 64], [1, 4, 64]))
def test_sequences_of_any_length(blocks: int) -> None:
    """More of them than lanes of a warp, some without a key; their pieces cross from one to the next."""
    case = Paged(batch=37, heads=4, kv_heads=2, queries=1, keys=130)
    lengths = [0, 130, *np.random.default_rng(1).integers(0, 130, 35)]
    assert_right(case.func(), case.inputs(lengths), pieces(blocks), length=case.keys)


@emulated
@pytest.mark.parametrize("size", slow_but([1, 64, 256], [1, 16, 64, 256]))
def test_pages_of_packed_rows(size: int) -> None:
    """Draft tokens of the heads of a group, the last of them at the end of its sequence."""
    case = Paged(size=size, flat=size < 64, causal=True, batch=3, heads=8, kv_heads=2, queries=3, keys=300)
    assert_right(case.func(), case.inputs([300, 64, 3]), pieces(5), length=case.keys)


@emulated
@pytest.mark.parametrize("size", slow_but([1, 4], [1, 4, 16]))
def test_tables_of_any_order(size: int) -> None:
    """One counts down, one has a single page again and again, one shares it; of one key, and of none, too."""
    case = Paged(size=size, batch=5, heads=4, kv_heads=2, queries=1, keys=150)
    inputs = case.inputs([150, 97, 130, 1, 0])
    table = inputs[3]
    table[0] = np.arange(case.table_width)[::-1]
    table[1:3], table[2, 1] = 7, 2
    assert_right(case.func(), inputs, pieces(3), length=case.keys)


@emulated
@pytest.mark.parametrize(("variant", "extents"), [("window", {"window": 70}), ("tree", {"queries": 5, "shortest": 5})])
def test_masks_of_sequences(variant: str, extents: dict[str, int]) -> None:
    """A window's first tile, too, is another one for each sequence; a tree of draft tokens is a tensor of booleans."""
    case = ragged(variant, **extents)
    assert_right(case.build(), list(case.inputs(np.random.default_rng(0), "normal")), pieces(7), length=300)


def test_tiles_are_counted_where_they_differ_alone() -> None:
    alike, differ = (
        kernel_of(case.func(), pieces(4)).func for case in (Paged(queries=1, limited=False), Paged(queries=1))
    )
    assert "origin_sums" in cuda_source(differ)[1]
    assert "origin_sums" not in cuda_source(alike)[1]


@pytest.mark.parametrize("sequences", [64, MOST_SEQUENCES, MOST_SEQUENCES + 1])
def test_what_is_counted_fits_into_shared_memory(sequences: int) -> None:
    """Of more sequences than are counted, shares are of the longest length."""
    case = Paged(batch=sequences, heads=64, kv_heads=8, queries=1, keys=8000, depth=128, stored="float8_e5m2")
    program = tile_program(case.func())
    config = ranked_pieces(program, H200, rows=8)[0]
    counted = sequences_of(program)[1]
    assert counted == (sequences if sequences <= MOST_SEQUENCES else None)
    assert config.shared_bytes(program) <= H200.block_shared_bytes - 1024


def test_context_of_a_tree_needs_no_mask() -> None:
    """Of every tile that draft tokens have no part in, the mask is known without reading the tree."""
    text = cuda_source(kernel_of(ragged("tree").build(), pieces(4)).func)[1]
    assert "whole_end" in text
