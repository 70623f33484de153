"""Static tile schedules: each tile of rows once, and balanced blocks."""

from __future__ import annotations

import numpy as np
import pytest

from corpus import workloads
from tvm_cascade.chunks.part import over_a_part
from tvm_cascade.devices.cards import H100
from tvm_cascade.tile.attention.tile_schedule import NOTHING, live_shares, schedule_tiles, visited_tiles
from tvm_cascade.tile.skeletons.stream.config import StreamConfig
from tvm_cascade.tile.skeletons.stream.pieces.config import is_ragged

from ..chunks.test_part import rows
from .test_masks import program_of
from .test_tile_program import attention_of, tile_program

BLOCKS = 132


def _triangle(row_tiles: int) -> np.ndarray:
    return np.arange(1, row_tiles + 1) + 0.5


@pytest.mark.parametrize(
    ("row_tiles", "places"), [(3, 1024), (4, 512), (11, 256), (16, 64), (64, 32), (86, 32), (256, 4)]
)
def test_every_tile_is_scheduled_once(row_tiles: int, places: int) -> None:
    items = schedule_tiles(_triangle(row_tiles), places, BLOCKS, uneven=True).items
    assert items is not None
    assert sorted(items[items != NOTHING]) == list(range(row_tiles * places))
    ended = items == NOTHING
    assert (ended[:, 1:] >= ended[:, :-1]).all()  # a block that is done stays so


@pytest.mark.parametrize(("row_tiles", "places"), [(3, 1024), (11, 256), (64, 32), (86, 32), (256, 32)])
def test_all_blocks_end_together(row_tiles: int, places: int) -> None:
    costs = _triangle(row_tiles)
    found = schedule_tiles(costs, places, BLOCKS, uneven=True)
    assert found.span < 1.02 * costs.sum() * places / BLOCKS
    assert found.items is not None
    work = np.where(found.items == NOTHING, 0, costs[found.items % row_tiles]).sum(axis=1)
    assert work.max() == found.span  # halves, which add up exactly


def test_what_the_formula_balances_as_well_needs_no_list() -> None:
    assert schedule_tiles(_triangle(8), BLOCKS, BLOCKS, uneven=True).items is None  # four pairs for each block
    assert schedule_tiles(np.ones(7), 60, BLOCKS, uneven=False).items is None


@pytest.mark.parametrize(
    ("variant", "visited"), [("causal", [2, 4, 6, 8, 10, 12]), ("full", [12] * 6), ("window", [2, 4, 5, 5, 5, 5])]
)
def test_what_masks_leave_is_counted(variant: str, visited: list[int]) -> None:
    shape = {"window": 192} if variant == "window" else {}
    program = tile_program(attention_of(variant, queries=768, keys=768, **shape))
    assert list(visited_tiles(program, 128, 64)) == visited


@pytest.mark.parametrize(
    ("variant", "shares"), [("causal", (7 / 12, 1.0)), ("full", (1.0, 1.0)), ("window", (26 / 6 / 12, 5 / 12))]
)
def test_the_shares_of_the_axis_that_are_computed_and_read(variant: str, shares: tuple[float, float]) -> None:
    shape = {"window": 192} if variant == "window" else {}
    found = live_shares(tile_program(attention_of(variant, queries=768, keys=768, **shape)), 128, 64)
    assert found == shares


def test_queries_at_one_position_visit_the_window_and_are_not_ragged() -> None:
    program = tile_program(workloads.get("decode_window").build(keys=1024, window=256))
    assert not is_ragged(program)
    assert live_shares(program, 64, 128) == (2 / 8, 2 / 8)


def test_of_lengths_that_are_data_half_of_the_longest_is_guessed() -> None:
    program = tile_program(workloads.get("decode_lengths").build(keys=1024))
    assert is_ragged(program)
    assert live_shares(program, 64, 128) == (0.5, 0.5)


def test_of_rows_whose_first_one_is_a_number_half_of_the_axis_is_guessed() -> None:
    """All of it may be visited; of the parts of a sequence half is, and its time is half that of all."""
    whole = rows(attention_of("causal", queries=1536, keys=768), "q", 1)
    part, full = (
        tile_program(func) for func in (over_a_part(whole, 768, "i"), attention_of("full", queries=768, keys=768))
    )
    assert list(visited_tiles(part, 128, 64)) == [12] * 6
    assert live_shares(part, 128, 64) == (0.5, 0.5)
    of_part, of_full = (StreamConfig(blocks=BLOCKS).counts(one, H100).steps for one in (part, full))
    assert 0.95 < 2 * of_part / of_full < 1.05


def test_documents_are_visited_by_their_own_rows_alone() -> None:
    """Tiles of 128 rows see from the start of their first row's document to the end of their last row's."""
    program = tile_program(program_of("documents", queries=768, keys=768))
    first, last = (np.arange(0, 768, 128) + inside for inside in (0, 127))
    expected = (last // 48 * 48 + 47) // 64 - first // 48 * 48 // 64 + 1
    assert list(visited_tiles(program, 128, 64)) == list(np.minimum(expected, 12))
