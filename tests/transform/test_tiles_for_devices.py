"""Tiles of the cascade axis: in the caches of a CPU, or in the shared memory of a GPU."""

from __future__ import annotations

import pytest
from tvm import tirx

from tvm_cascade.analysis.frame import Frame
from tvm_cascade.bench import workloads
from tvm_cascade.devices.cards import H200
from tvm_cascade.devices.device import Cpu, Device
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_function import fuse_function
from tvm_cascade.transform.tiling import choose_tiling

KIB = 1024


@pytest.fixture(scope="module")
def frame() -> Frame:
    """Of an attention over 4096 keys."""
    func = workloads.get("attention").build(heads=1, queries=16, keys=4096, head_dim=64)
    (decision,) = fuse_function(func, FuseOptions(force=True)).decisions
    assert decision.candidate.group is not None
    return decision.candidate.group.frame


@pytest.mark.parametrize(("cache", "tile"), [(2048, 512), (512, 256), (64, 128)])
def test_a_tile_of_a_wide_operand_is_a_quarter_of_the_second_level_cache(frame: Frame, cache: int, tile: int) -> None:
    """It has 512 bytes a position, and no tile has fewer than 128 positions or more than 512."""
    device = Cpu(l2_bytes=cache * KIB)
    assert choose_tiling(frame, FuseOptions(), device, True, 4, contracted_bytes=512).tile == tile


@pytest.mark.parametrize(("cache", "tile"), [(32, 2048), (64, 4096), (1, 128)])
def test_a_tile_of_a_row_is_half_of_the_first_level_cache(frame: Frame, cache: int, tile: int) -> None:
    assert choose_tiling(frame, FuseOptions(), Cpu(l1_bytes=cache * KIB), False, 8).tile == tile


@pytest.mark.parametrize(("device", "lanes"), [(Cpu(), 64), (H200, 1)], ids=["CPU", "GPU"])
def test_lanes_are_for_vectors(frame: Frame, device: Device, lanes: int) -> None:
    assert choose_tiling(frame, FuseOptions(), device, True, 4).lanes == lanes


@pytest.mark.parametrize("options", [FuseOptions(tile=1, segments=7), FuseOptions(tile=4, segments=16)], ids=str)
def test_no_segment_is_empty(options: FuseOptions) -> None:
    """Merging takes the least of where segments stand, and an empty one stands nowhere."""
    outer, inner = tirx.Var("i", "int32"), tirx.Var("j", "int32")
    for length in range(1, 70):
        tiling = choose_tiling(Frame((outer, inner), (), {outer: 3, inner: length}), options, Cpu(), False, 4)
        starts = [segment * tiling.tiles for segment in range(tiling.segments)]
        assert starts == [start for start in starts if start < tiling.total]


@pytest.mark.parametrize(
    ("length", "tile", "lanes"),
    [
        (600, 600, 8),  # the whole row, in fewer lanes
        (1000, 1000, 8),
        (2000, 2000, 16),
        (777, 448, 64),  # as few tiles as are small, as long as each other
        (1500, 512, 64),
        (5003, 512, 64),
        (1024, 1024, 64),
    ],
)
def test_tiles_of_a_row_that_no_vector_divides(length: int, tile: int, lanes: int) -> None:
    axis = tirx.Var("j", "int32")
    tiling = choose_tiling(Frame((axis,), (), {axis: length}), FuseOptions(), Cpu(l1_bytes=32 * KIB), False, 4)
    assert (tiling.tile, tiling.lanes) == (tile, lanes)
