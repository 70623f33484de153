"""Tiles of the cascade axis: in the caches of a CPU, or in the shared memory of a GPU."""

from __future__ import annotations

import math

import pytest
from tvm import tirx

from corpus import workloads
from tvm_cascade.analysis.frame import Frame
from tvm_cascade.devices.cards import H200
from tvm_cascade.devices.device import Cpu, Device
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_function import fuse_function
from tvm_cascade.transform.tiling import Streams, choose_tiling

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
    assert choose_tiling(frame, FuseOptions(), device, True, Streams(4), contracted_bytes=512).tile == tile


@pytest.mark.parametrize(("cache", "tile"), [(32, 2048), (64, 4096), (1, 128)])
def test_a_tile_of_a_row_is_half_of_the_first_level_cache(frame: Frame, cache: int, tile: int) -> None:
    assert choose_tiling(frame, FuseOptions(), Cpu(l1_bytes=cache * KIB), False, Streams(8)).tile == tile


@pytest.mark.parametrize(("device", "lanes"), [(Cpu(), 64), (H200, 1)], ids=["CPU", "GPU"])
def test_lanes_are_for_vectors(frame: Frame, device: Device, lanes: int) -> None:
    assert choose_tiling(frame, FuseOptions(), device, True, Streams(4)).lanes == lanes


@pytest.mark.parametrize("options", [FuseOptions(tile=1, segments=7), FuseOptions(tile=4, segments=16)], ids=str)
def test_no_segment_is_empty(options: FuseOptions) -> None:
    """Merging takes the least of where segments stand, and an empty one stands nowhere."""
    outer, inner = tirx.Var("i", "int32"), tirx.Var("j", "int32")
    for length in range(1, 70):
        tiling = choose_tiling(Frame((outer, inner), (), {outer: 3, inner: length}), options, Cpu(), False, Streams(4))
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
    tiling = choose_tiling(Frame((axis,), (), {axis: length}), FuseOptions(), Cpu(l1_bytes=32 * KIB), False, Streams(4))
    assert (tiling.tile, tiling.lanes) == (tile, lanes)


@pytest.mark.parametrize(
    ("streams", "length", "tile", "lanes"),
    [
        (Streams(4, 4, 33 << 20, functions=True), 8192, 1024, 32),  # a page
        (Streams(8, 4, 33 << 20, functions=True), 8192, 1024, 32),  # a page of each input
        (Streams(16, 12, 33 << 20, functions=True), 8192, 256, 32),  # of the widest
        (Streams(4, 4, 33 << 20), 8192, 256, 32),  # what half of the registers hold
        (Streams(4, 4, 31 << 20), 8192, 4096, 64),  # cached: half of the first-level cache
        (Streams(4, 4, 33 << 20), 1000, 1000, 8),  # where no short tile divides the row, it stays whole
    ],
)
def test_rows_that_come_from_memory_are_cut_into_what_is_fetched_ahead(
    streams: Streams, length: int, tile: int, lanes: int
) -> None:
    axis = tirx.Var("j", "int32")
    device = Cpu("", 1, 64, 32, 32 * KIB, 1024 * KIB, ((1e6, 128.0), (32 * KIB * KIB, 60.0), (math.inf, 20.0)))
    tiling = choose_tiling(Frame((axis,), (), {axis: length}), FuseOptions(), device, False, streams)
    assert (tiling.tile, tiling.lanes) == (tile, lanes)
