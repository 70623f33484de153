"""One merge at every level: lanes, warps, blocks of a cluster and of a grid, with empty segments and remainders.

The emulator runs blocks and threads in two orders and asks for the same bits.
"""

from __future__ import annotations

import pytest

from tvm_cascade.testing.fuzz.grammar import draw
from tvm_cascade.testing.fuzz.program import data, program
from tvm_cascade.tile.row.config import RowConfig, Team

from .emulator.run import compiler
from .row_programs import PROGRAMS
from .test_row_kernels import assert_right

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

LEVELS = {
    "lanes": RowConfig(Team.WARP, 128, 1, 1),
    "warps": RowConfig(Team.BLOCK, 128, 1, 1),
    "blocks of a cluster": RowConfig(Team.CLUSTER, 128, 1, 1, segments=4),
    "blocks of a grid": RowConfig(Team.GRID, 128, 1, 1, segments=5),
}
SEED = 180
"""Sums at a reference that an input of the row moves."""


@pytest.mark.parametrize(
    ("level", "name"),
    [*((level, "softmax_stats") for level in LEVELS), ("warps", "variance"), ("warps", "argmax_of_softmax")],
)
def test_folds_of_a_length_that_nothing_divides(level: str, name: str) -> None:
    assert_right(PROGRAMS[name](dtype="float32", rows=2, length=331), LEVELS[level])


@pytest.mark.parametrize("level", LEVELS)
def test_a_random_fold(level: str) -> None:
    case = draw(SEED)
    assert_right(program(case), LEVELS[level], inputs=data(case, 0))


@pytest.mark.parametrize("level", ["blocks of a cluster", "blocks of a grid"])
@pytest.mark.parametrize("name", ["softmax_stats", "variance", "argmax_of_softmax"])
def test_segments_of_nothing_are_the_identity(level: str, name: str) -> None:
    """Three positions: most threads, warps and segments have none."""
    assert_right(PROGRAMS[name](dtype="float32", rows=2, length=3), LEVELS[level])


@pytest.mark.parametrize("level", LEVELS)
def test_states_far_apart(level: str) -> None:
    """The greatest element is in one segment's last position; in another all are −inf."""
    for kind in ("late_spike", "neg_inf_first_segment"):
        assert_right(PROGRAMS["softmax_stats"](dtype="float32", rows=1, length=331), LEVELS[level], kind)
