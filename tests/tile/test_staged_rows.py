"""Rows that bulk copies bring to shared memory: shares, pieces, tails, rows in turn; what may not be left out."""

from __future__ import annotations

import re

import pytest

from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.row.config import RowConfig, Team

from .emulator.run import EmulationError, compiler, emulate
from .gradient_programs import TE_GRADIENTS
from .row_programs import PROGRAMS
from .test_row_kernels import assert_right, drawn, row_kernel

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

BLOCK = RowConfig(Team.BLOCK, 128, 4, 2, staged=True)
CLUSTER = RowConfig(Team.CLUSTER, 128, 4, 1, segments=2, staged=True)
IN_TURN = RowConfig(Team.BLOCK, 128, 4, 2, staged=True, rows=5, stages=2)
CLUSTER_IN_TURN = RowConfig(Team.CLUSTER, 128, 4, 1, segments=2, staged=True, rows=2, stages=2)
"""Of two rows: the emulator keeps what blocks leave to each other last."""

CONFIGS = {
    "block": BLOCK,
    "cluster": CLUSTER,
    "rows in turn": IN_TURN,
    "rows of a cluster in turn": CLUSTER_IN_TURN,
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("name", ["softmax", "inertia"])
def test_rows_with_a_last_piece_of_their_own(name: str, config: RowConfig) -> None:
    """Seven rows of 1608 positions: neither teams nor pieces divide them."""
    assert_right(PROGRAMS[name](dtype="float32", rows=7, length=1608), config)


@pytest.mark.parametrize("config", [BLOCK, IN_TURN, CLUSTER_IN_TURN], ids=["block", "in turn", "cluster in turn"])
def test_what_all_rows_share_is_brought_once(config: RowConfig) -> None:
    assert_right(TE_GRADIENTS["layer_norm"](dtype="float32", rows=3, length=1600), config)


def test_rows_with_numbers_of_their_own() -> None:
    """Labels and gradients of losses are read for the row at hand, not for the next that is under way."""
    assert_right(TE_GRADIENTS["cross_entropy"](dtype="float32", rows=7, length=1600), IN_TURN)


def test_explain_says_how_rows_are_brought() -> None:
    assert "brought to shared memory by bulk copies, 5 rows one after the other, 2 at hand" in str(IN_TURN)


@pytest.mark.parametrize(("length", "config"), [(1001, BLOCK), (1604, CLUSTER), (1601, CLUSTER)])
def test_rows_that_bulk_copies_cannot_bring_are_refused(length: int, config: RowConfig) -> None:
    """Halves: rows of 2002 bytes, shares of 1604 bytes, and no shares of one length."""
    with pytest.raises(Unfit, match=r"multiples of 16 bytes|shares of one length"):
        row_kernel(PROGRAMS["softmax"](dtype="float16", rows=3, length=length), config)


FAULTS = {
    "pieces_not_waited_for": (r"tvm_builtin_cuda_mbarrier_wait\([^;]*;", "arrivals where 0 are missing"),
    "stage_filled_while_it_is_read": (r"tvm_builtin_cuda_cta_sync\(\);(?![\s\S]*cta_sync)", "order of threads"),
    "barriers_not_fenced": (r"tvm_builtin_ptx_fence_proxy[^;]*;", "initialised without a fence"),
    "bytes_not_announced": (r"tvm_builtin_ptx_mbarrier_arrive_expect[^;]*;", "more than their barrier expects"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_left_out_is_found(name: str) -> None:
    pattern, message = FAULTS[name]
    func = PROGRAMS["softmax"](dtype="float32", rows=5, length=1024)

    def change(text: str) -> str:
        start = text.rindex('extern "C"')
        assert re.search(pattern, text[start:])
        return text[:start] + re.sub(pattern, ";", text[start:])

    with pytest.raises(EmulationError, match=message):
        emulate(row_kernel(func, IN_TURN).func, drawn(func), change)
