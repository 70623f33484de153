"""Products that read an operand through windows: right numbers, and products of contiguous lanes in register tiles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir, te, tirx
from tvm.target import Target

from benchmarks.judge.power import rejects
from tvm_cascade.devices.read import cpu_of
from tvm_cascade.driver.compilation import compile_for, compile_unfused
from tvm_cascade.driver.compiled import Compiled
from tvm_cascade.evaluate import tolerance
from tvm_cascade.options import FuseOptions
from tvm_cascade.schedule.microkernel import find_contraction
from tvm_cascade.schedule.nests import BlockPlan, plan_alone
from tvm_cascade.schedule.windows import windows_as_offsets

TARGET = Target({"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2})
CPU = cpu_of(TARGET)


@dataclass(frozen=True)
class Windows:
    """x[batch, channels, *image] in windows of `size`, moved by `stride`, and as many outputs as `outputs`.

    Attributes
    ----------
    apart : elements from one of a window to the next.
    groups : of channels, each with outputs of its own.
    padding : zeros before and after each row of the image.
    """

    image: tuple[int, ...]
    size: tuple[int, ...]
    stride: int = 1
    channels: int = 5
    outputs: int = 12
    batch: int = 1
    apart: int = 1
    groups: int = 1
    padding: tuple[int, int] = (0, 0)

    @property
    def result(self) -> tuple[int, ...]:
        sizes = zip(self.image, self.size, strict=True)
        return tuple((n + sum(self.padding) - (w - 1) * self.apart - 1) // self.stride + 1 for n, w in sizes)

    @property
    def weights(self) -> tuple[int, ...]:
        return (self.outputs, self.channels // self.groups, *self.size)

    def function(self, batch: int | tirx.Var | None = None) -> tirx.PrimFunc:
        batch, (before, after) = self.batch if batch is None else batch, self.padding
        x = te.placeholder((batch, self.channels, *self.image), "float32", name="x")
        w = te.placeholder(self.weights, "float32", name="w")
        channel = te.reduce_axis((0, self.weights[1]), "channel")
        offsets = [te.reduce_axis((0, extent), f"offset{k}") for k, extent in enumerate(self.size)]

        def inside(b: tirx.Var, c: tirx.Var, *at: tirx.Var) -> tirx.Var:
            within = [(i >= before, i < n + before) for i, n in zip(at, self.image, strict=True)]
            moved = x(b, c, *(i - before for i in at))
            return tirx.if_then_else(
                tirx.all(*(one for pair in within for one in pair)), moved, tirx.const(0, "float32")
            )

        shape = (batch, self.channels, *(n + before + after for n in self.image))
        padded = te.compute(shape, inside, name="padded") if before + after else x

        def element(b: tirx.Var, f: tirx.Var, *at: tirx.Var) -> tirx.Var:
            where = [i * self.stride + o * self.apart for i, o in zip(at, offsets, strict=True)]
            first = f // (self.outputs // self.groups) * self.weights[1] if self.groups > 1 else 0
            return te.sum(padded(b, first + channel, *where) * w(f, channel, *offsets), axis=[channel, *offsets])

        y = te.compute((batch, self.outputs, *self.result), element, name="y")
        return te.create_prim_func([x, w, y]).with_attr("global_symbol", "main")

    def exact(self, x: np.ndarray, w: np.ndarray, dtype: str = "float64") -> np.ndarray:
        axes = tuple(range(2, 2 + len(self.image)))
        padded = np.pad(x.astype(dtype), [(0, 0), (0, 0), *[self.padding] * len(axes)])
        reach = [(n - 1) * self.apart + 1 for n in self.size]
        seen = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=axes)
        every = [slice(None, None, self.stride)] * len(axes) + [slice(None, None, self.apart)] * len(axes)
        seen = seen[(slice(None), slice(None), *every)]
        seen = seen.reshape(seen.shape[0], self.groups, -1, *seen.shape[2:])
        weights = w.astype(dtype).reshape(self.groups, -1, *w.shape[1:])
        letters, offsets = "ij"[: len(axes)], "pq"[: len(axes)]
        found = np.einsum(f"bgc{letters}{offsets},gfc{offsets}->bgf{letters}", seen, weights)
        return found.reshape(found.shape[0], self.outputs, *self.result)


IMAGES = {
    "strided rows": Windows((70,), (3,), stride=2),
    "patches": Windows((32, 32), (4, 4), stride=4),
    "points": Windows((16, 16), (1, 1), channels=24),
    "points far apart": Windows((15, 14), (1, 1), stride=3),
    "small image": Windows((18, 18), (3, 3), batch=3),
    "odd image": Windows((23, 29), (5, 3), stride=2, padding=(2, 1)),
    "windows with holes": Windows((19, 13), (3, 2), stride=2, apart=3, padding=(0, 3)),
    "one window": Windows((5, 7), (5, 7), outputs=5),
    "groups": Windows((9, 11), (3, 3), channels=6, outputs=9, groups=3, padding=(1, 1)),
    "weights of each channel's own": Windows(
        (7, 7), (7, 7), channels=13, outputs=13, groups=13, padding=(3, 3), batch=2
    ),
    "long rows of each channel": Windows((9, 37), (5, 3), channels=3, outputs=3, groups=3, padding=(1, 2)),
    "many outputs": Windows((15, 15), (3, 3), stride=2, channels=3, outputs=256, padding=(1, 1)),
    "two outputs of each channel": Windows((11, 9), (3, 3), stride=2, channels=5, outputs=10, groups=5),
}
IN_PLACE = {"long rows": Windows((66,), (3,)), "wide image": Windows((6, 66), (3, 3))}


def reduction_of(func: tirx.PrimFunc) -> BlockPlan:
    (plan,) = [plan for plan in plan_alone(func) if plan.reduce]
    return plan


def assert_right(windows: Windows, built: Compiled) -> None:
    draw = np.random.default_rng(0)
    x = draw.standard_normal((windows.batch, windows.channels, *windows.image)).astype("float32")
    w = draw.standard_normal(windows.weights).astype("float32")
    out = tvm.runtime.tensor(np.full((windows.batch, windows.outputs, *windows.result), np.nan, "float32"))
    built(tvm.runtime.tensor(x), tvm.runtime.tensor(w), out)
    exact, length = windows.exact(x, w), w[0].size
    tolerance.assert_close(out.numpy(), exact, windows.exact(x, w, "float32"), length=length, dtype="float32")
    assert rejects(exact, length, "float32") == []


@pytest.mark.parametrize("case", [*IMAGES, *IN_PLACE])
def test_windows_are_multiplied_right(case: str) -> None:
    windows = {**IMAGES, **IN_PLACE}[case]
    assert_right(windows, compile_unfused(windows.function()))


def test_windows_of_any_number_of_images_are_multiplied_right() -> None:
    windows = IMAGES["odd image"]
    func = windows.function(tirx.Var("batch", "int32"))
    assert not windows_as_offsets(func, CPU).same_as(func)
    assert_right(windows, compile_unfused(func))


@pytest.mark.parametrize("case", IMAGES)
def test_all_positions_of_an_image_are_lanes_in_whole_vectors(case: str) -> None:
    plan = reduction_of(windows_as_offsets(IMAGES[case].function(), CPU))
    last = plan.last_axis()
    assert last is not None and plan.lies_beside(last)
    wanted = IMAGES[case].batch * IMAGES[case].outputs * np.prod(IMAGES[case].result)
    assert np.prod([int(plan.extents[axis]) for axis in plan.spatial]) >= wanted and int(plan.extents[last]) % 16 == 0


@pytest.mark.parametrize("case", ["small image", "groups", "points far apart"])
def test_windows_that_several_outputs_share_are_multiplied_in_register_tiles(case: str) -> None:
    contraction = find_contraction(reduction_of(windows_as_offsets(IMAGES[case].function(), CPU)))
    assert contraction is not None and not contraction.packed


def test_an_image_that_windows_reach_over_lies_in_one_piece() -> None:
    """In panels, of which the tiles of many outputs would read each many times, vectors of windows cross their ends."""
    lowered = compile_unfused(IMAGES["many outputs"].function(), TARGET).mod["main"]
    (image,) = (one for one in lowered.body.block.alloc_buffers if "image" in one.name)
    assert int(image.ty.shape[-1]) >= 8 * 9, "all positions of a row, each with what windows reach"


@pytest.mark.parametrize("case", IN_PLACE)
def test_windows_along_long_rows_are_read_where_they_lie(case: str) -> None:
    func = IN_PLACE[case].function()
    assert windows_as_offsets(func, CPU).same_as(func)


def test_what_is_read_once_is_not_copied() -> None:
    x = te.placeholder((3, 14, 14), "float32", name="x")
    p, q = te.reduce_axis((0, 2), "p"), te.reduce_axis((0, 2), "q")
    y = te.compute((3, 7, 7), lambda c, i, j: te.max(x[c, 2 * i + p, 2 * j + q], axis=[p, q]), name="y")
    func = te.create_prim_func([x, y])
    assert windows_as_offsets(func, CPU).same_as(func)


def test_products_of_matrices_have_no_windows() -> None:
    a, b = (te.placeholder(shape, "float32", name=name) for shape, name in (((2, 9, 20), "a"), ((2, 20, 17), "b")))
    k = te.reduce_axis((0, 20), "k")
    y = te.compute((2, 9, 17), lambda n, i, j: te.sum(a[n, i, k] * b[n, k, j], axis=k), name="y")
    func = te.create_prim_func([a, b, y])
    assert windows_as_offsets(func, CPU).same_as(func)


def test_a_reduction_that_depends_on_where_a_window_is_has_none() -> None:
    x = te.placeholder((3, 20), "float32", name="x")
    k = te.reduce_axis((0, 5), "k")
    y = te.compute((3, 16), lambda n, j: te.sum(x[n, j + k] * te.if_then_else(j < k, 0.0, 1.0), axis=k), name="y")
    func = te.create_prim_func([x, y])
    assert windows_as_offsets(func, CPU).same_as(func)


def vectors_of(func: tirx.PrimFunc, name: str) -> set[int]:
    """Extents of the vectorised loops around blocks of a name."""
    found: set[int] = set()

    def visit(loop: tirx.For) -> None:
        inside: list[s_tir.SBlock] = []
        tvm_ffi.structural_walk(loop, (s_tir.SBlock, inside.append))
        if loop.kind == tirx.ForKind.VECTORIZED and any(block.name_hint.startswith(name) for block in inside):
            found.add(int(loop.extent))

    tvm_ffi.structural_walk(func.body, (tirx.For, visit))
    return found


@pytest.mark.parametrize("case", ["strided rows", "points", "wide image"])
def test_the_product_runs_in_vectors_and_its_sums_stay_in_registers(case: str) -> None:
    lowered = compile_unfused({**IMAGES, **IN_PLACE}[case].function(), TARGET).mod["main"]
    assert max(vectors_of(lowered, "y")) >= CPU.lanes("float32") // 2
    cells: list[str] = []
    tvm_ffi.structural_walk(
        lowered.body, (s_tir.SBlock, lambda b: cells.extend(str(buffer.name) for buffer in b.alloc_buffers))
    )
    assert any(cell.endswith("_local") for cell in cells)


def test_windows_of_each_channel_run_in_vectors_along_the_image() -> None:
    lowered = compile_unfused(IMAGES["weights of each channel's own"].function(), TARGET).mod["main"]
    assert max(vectors_of(lowered, "y")) >= 16, "not the seven positions of a row"


def normed() -> tirx.PrimFunc:
    """Products of strided windows, each position's divided by their sum over the outputs, of exponentials."""
    x = te.placeholder((4, 16, 16), "float32", name="x")
    w = te.placeholder((32, 4, 3, 3), "float32", name="w")
    c, p, q, f, g = (te.reduce_axis((0, extent), name) for extent, name in zip((4, 3, 3, 32, 32), "cpqfg", strict=True))
    y = te.compute(
        (32, 7, 7), lambda f, i, j: te.sum(x[c, 2 * i + p, 2 * j + q] * w[f, c, p, q], axis=[c, p, q]), name="y"
    )
    most = te.compute((49,), lambda n: te.max(y[f, n // 7, n % 7], axis=f), name="most")
    total = te.compute((49,), lambda n: te.sum(te.exp(y[g, n // 7, n % 7] - most[n]), axis=g), name="total")
    return te.create_prim_func([x, w, total]).with_attr("global_symbol", "main")


def test_windows_beside_a_fused_loop_run_in_register_tiles_as_those_alone_do() -> None:
    built = compile_for(normed(), TARGET, FuseOptions(force=True))
    made = str(built.report)
    assert "the fused loop" in made and "y: a product in register tiles" in made, made


def test_rows_of_each_channel_whose_windows_meet_are_computed_together() -> None:
    """What is read for one row of the result is at hand for the next ones, in as few loads."""
    lowered = compile_unfused(IMAGES["long rows of each channel"].function(), TARGET).mod["main"]
    loops: list[tirx.For] = []
    tvm_ffi.structural_walk(lowered.body, (tirx.For, loops.append))
    assert {5, 4} <= {int(loop.extent) for loop in loops if loop.kind == tirx.ForKind.UNROLLED}


def test_an_image_of_each_channel_and_what_is_read_of_it_are_one_task() -> None:
    lowered = compile_unfused(IMAGES["weights of each channel's own"].function(), TARGET).mod["main"]
    loops: list[tirx.For] = []
    tvm_ffi.structural_walk(lowered.body, (tirx.For, loops.append))
    assert [int(loop.extent) for loop in loops if loop.kind == tirx.ForKind.PARALLEL] == [2 * 13]
