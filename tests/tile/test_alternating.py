"""Two consumers that fold alternate tiles of the same rows, and merge before the piece ends."""

from __future__ import annotations

import pytest

from tvm_cascade.tile.skeletons.stream.pieces.alternating import may_alternate
from tvm_cascade.tile.skeletons.stream.pieces.config import PiecesConfig
from tvm_cascade.tile.skeletons.stream.pieces.patches import Patches

from . import folds
from .checked import assert_attention_right, assert_right, attention_case
from .emulator.run import compiler
from .paged_programs import Paged
from .test_pieces import assert_fold_right
from .test_tile_program import tile_program

emulated = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


def alternating(blocks: int, columns: int = 64, stages: int = 3, cluster: int = 1, widening: int = 0) -> PiecesConfig:
    """A configuration for so many blocks."""
    return PiecesConfig(
        columns, 2, stages, 0, False, blocks, False, False, cluster=cluster, widening=widening, alternating=True
    )


@emulated
@pytest.mark.parametrize(
    ("variant", "extents", "config"),
    [
        ("causal", {"heads": 4, "kv_heads": 1, "queries": 3, "keys": 500}, alternating(3)),
        ("full", {"heads": 2, "queries": 3, "keys": 200, "head_dim": 40}, alternating(16)),
        ("softcap", {"heads": 8, "kv_heads": 1, "queries": 8, "keys": 250}, alternating(132, 32, 2, cluster=2)),
    ],
)
def test_pieces_of_odd_and_even_numbers_of_tiles(variant: str, extents: dict[str, int], config: PiecesConfig) -> None:
    """Also of one tile, of which the second group has none, and with an odd number of stages."""
    assert_attention_right(attention_case(variant, **extents), config)


@emulated
@pytest.mark.parametrize("stored", [None, "float8_e4m3fn"])
def test_sequences_in_pages(stored: str | None) -> None:
    """One of them is empty; tiles of 8 bits are converted for both groups by one."""
    paged = Paged(queries=2, heads=4, kv_heads=2, batch=3, keys=260, stored=stored)
    config = alternating(5, widening=0 if stored is None else 1)
    assert_right(paged.func(), paged.inputs([0, 260, 67]), config, length=paged.keys)


@emulated
def test_a_fold_of_two_values() -> None:
    assert_fold_right("two_values", alternating(3))


@pytest.mark.parametrize(("name", "expected"), [("log_sum_exp", True), ("entropy", True), ("variance", False)])
def test_folds_that_read_how_many_positions_came_before_do_not_alternate(name: str, expected: bool) -> None:
    assert may_alternate(tile_program(folds.program(getattr(folds, name), "float16", queries=3))) is expected


@pytest.mark.parametrize(("rows", "blocks", "width"), [(8, 8, 128), (64, 8, 128), (20, 4, 40), (33, 8, 64), (1, 2, 16)])
def test_every_patch_has_one_block(rows: int, blocks: int, width: int) -> None:
    """Blocks have equal numbers of patches but for one; and the rows of a block's patches are those that it is sent."""
    patches = Patches(rows, blocks)
    spans = -(-width // 16)
    owned = [
        (patches.number(octet * 8, span) % blocks, octet) for span in range(spans) for octet in range(patches.octets)
    ]
    counts = [sum(rank == own for own, _ in owned) for rank in range(blocks)]
    assert counts == [patches.count(spans, rank) for rank in range(blocks)]
    assert max(counts) == patches.most(width) and max(counts) - min(counts) <= 1
    assert all(octet % patches.stride == rank % patches.stride for rank, octet in owned)
