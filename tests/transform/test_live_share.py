"""Masked loops: the share of tiles that masks leave, and the tiles that are chosen and priced by it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tvm
from tvm import ir, te, tirx

from corpus import workloads
from tvm_cascade.devices.device import Cpu
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.assemble import live_stages
from tvm_cascade.transform.fuse_function import fuse_function
from tvm_cascade.transform.layout import Layout, lay_out, plan_loop

CORE = Cpu(l1_bytes=32 << 10, l2_bytes=1 << 20, cores=1)


def layout_of(func: tvm.tirx.PrimFunc, **options: int) -> Layout:
    outcome = fuse_function(func, FuseOptions(**options), CORE)
    group, program = outcome.decisions[0].candidate.group, outcome.program
    assert group is not None and program is not None
    plan = plan_loop(program, group, {stage.name for stage in live_stages(program, [group], [[]])})
    return lay_out(plan, list(group.fold.finish), FuseOptions(**options), CORE)


def attention(length: int, name: str = "attention_causal") -> tvm.tirx.PrimFunc:
    return workloads.get(name).with_shape(heads=1, queries=length, keys=length, head_dim=64).build()


def near(i: tirx.Var, j: tirx.Var, window: int) -> ir.Expr:
    return tirx.abs(i - j) < window


NEAR = {
    "in words": lambda i, j, window: tirx.And(i - j < window, j - i < window),
    "in bits": lambda i, j, window: tirx.bitwise_and(i - j < window, j - i < window),
    "not outside, in words": lambda i, j, window: tirx.Not(tirx.Or(i - j >= window, j - i >= window)),
}
"""Ways to write it."""


def windowed(length: int, window: int, near: Callable[..., ir.Expr] = near) -> tvm.tirx.PrimFunc:
    """Attention of scores that are given, over |i - j| < window."""
    s = te.placeholder((length, length), "float32", name="s")
    v = te.placeholder((length, 64), "float32", name="v")
    a, b, c = (te.reduce_axis((0, length), name) for name in "abc")
    masked = te.compute(
        s.shape,
        lambda i, j: tirx.if_then_else(near(i, j, window), s[i, j], tirx.min_value("float32")),
        name="masked",
    )
    top = te.compute((length,), lambda i: te.max(masked[i, a], axis=a), name="top")
    norm = te.compute((length,), lambda i: te.sum(te.exp(masked[i, b] - top[i]), axis=b), name="norm")
    out = te.compute(
        (length, 64), lambda i, d: te.sum(te.exp(masked[i, c] - top[i]) / norm[i] * v[c, d], axis=c), name="out"
    )
    return te.create_prim_func([s, v, out])


@pytest.mark.parametrize(("tile", "share"), [(64, 36 / 64), (128, 20 / 32), (256, 12 / 16), (512, 1.0)])
def test_of_a_causal_mask_about_half_of_the_tiles_are_visited(tile: int, share: float) -> None:
    live = layout_of(attention(512)).live
    assert live is not None and live.known and live.share(tile, 32) == share


@pytest.mark.parametrize("way", ["by the distance", *NEAR])
def test_of_a_window_those_near_the_diagonal_are_visited(way: str) -> None:
    """A block of 32 rows sees 99 positions on either side."""
    live = layout_of(windowed(1024, 100, NEAR.get(way, near))).live
    assert live is not None and live.known
    rows = [(first - 99, first + 31 + 99) for first in range(0, 1024, 32)]
    assert live.share(64, 32) == sum(min(last // 64, 15) - max(first // 64, 0) + 1 for first, last in rows) / (32 * 16)


def test_without_a_mask_nothing_is_told() -> None:
    assert layout_of(attention(512, "attention")).live is None


@pytest.mark.parametrize(
    ("length", "tile"),
    [(256, 32), (512, 64), (1024, 64), (2048, 128), (4096, 128), (600, 60), (777, 37), (1500, 60)],
)
def test_tiles_of_a_causal_mask_grow_with_the_root_of_the_length(length: int, tile: int) -> None:
    """Half a tile is wasted, and each one takes five positions more: the least of 5/t + t/length."""
    assert layout_of(attention(length)).tiling.tile == tile


@pytest.mark.parametrize(("length", "tile"), [(777, 259), (1100, 275), (1024, 512), (997, 499)])
def test_tiles_without_a_mask_divide_the_axis_where_they_can(length: int, tile: int) -> None:
    assert layout_of(attention(length, "attention")).tiling.tile == tile


def test_a_narrow_window_is_cut_finely() -> None:
    assert layout_of(windowed(4096, 64)).tiling.tile == 32


def test_few_rows_share_the_tiles_of_a_narrow_window() -> None:
    """Of a window of 128, blocks of 32 rows visit 160 positions in tiles of 32, those of 64 rows 192 (measured: 0.8 of
    the time); without a window both take as many tiles of 128, and more rows have less to start."""
    narrow, causal = (layout_of(attention(2048, name)).live for name in ("attention_window", "attention_causal"))
    assert narrow is not None and causal is not None
    assert (narrow.block(32), causal.block(128)) == (32, 64)


def test_the_estimate_counts_what_is_visited() -> None:
    """A causal loop takes little more than half of one without a mask; the unfused form computes all."""
    masked, full = (fuse_function(attention(2048, n), FuseOptions(), CORE) for n in ("attention_causal", "attention"))
    (one, other) = (outcome.decisions[0].estimate for outcome in (masked, full))
    assert one is not None and other is not None
    assert 0.5 < one.ns_after / other.ns_after < 0.65 and one.ns_before >= other.ns_before
