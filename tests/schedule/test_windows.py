"""Products that read an operand through windows: right numbers, and products of contiguous lanes in register tiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir, te, tirx
from tvm.target import Target

from tvm_cascade.devices.read import cpu_of
from tvm_cascade.driver.compilation import compile_fused, compile_unfused
from tvm_cascade.evaluate import tolerance
from tvm_cascade.options import FuseOptions
from tvm_cascade.schedule.microkernel import find_contraction
from tvm_cascade.schedule.nests import plan_alone
from tvm_cascade.schedule.roles import OPERAND
from tvm_cascade.schedule.windows import windows_copied
from tvm_cascade.transform.nest import ROLE

TARGET = Target({"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2})
CPU = cpu_of(TARGET)


@dataclass(frozen=True)
class Windows:
    """x[batch, channels, *image] in windows of `size`, moved by `stride`, and as many outputs as `outputs`."""

    image: tuple[int, ...]
    size: tuple[int, ...]
    stride: int = 1
    channels: int = 5
    outputs: int = 12
    batch: int = 1

    @property
    def result(self) -> tuple[int, ...]:
        return tuple((n - w) // self.stride + 1 for n, w in zip(self.image, self.size, strict=True))

    def function(self) -> tirx.PrimFunc:
        x = te.placeholder((self.batch, self.channels, *self.image), "float32", name="x")
        w = te.placeholder((self.outputs, self.channels, *self.size), "float32", name="w")
        channel = te.reduce_axis((0, self.channels), "channel")
        offsets = [te.reduce_axis((0, extent), f"offset{k}") for k, extent in enumerate(self.size)]

        def element(b: tirx.Var, f: tirx.Var, *at: tirx.Var) -> tirx.Var:
            where = [i * self.stride + o for i, o in zip(at, offsets, strict=True)]
            return te.sum(x(b, channel, *where) * w(f, channel, *offsets), axis=[channel, *offsets])

        y = te.compute((self.batch, self.outputs, *self.result), element, name="y")
        return te.create_prim_func([x, w, y]).with_attr("global_symbol", "main")

    def exact(self, x: np.ndarray, w: np.ndarray, dtype: str = "float64") -> np.ndarray:
        axes = tuple(range(2, 2 + len(self.image)))
        seen = np.lib.stride_tricks.sliding_window_view(x.astype(dtype), self.size, axis=axes)
        seen = seen[(slice(None), slice(None), *(slice(None, None, self.stride) for _ in axes))]
        letters, offsets = "ij"[: len(axes)], "pq"[: len(axes)]
        return np.einsum(f"bc{letters}{offsets},fc{offsets}->bf{letters}", seen, w.astype(dtype))


COPIED = {
    "strided rows": Windows((70,), (3,), stride=2),
    "patches": Windows((32, 32), (4, 4), stride=4),
    "points": Windows((16, 16), (1, 1), channels=24),
    "small image": Windows((18, 18), (3, 3), batch=2),
    "odd image": Windows((23, 29), (5, 3), stride=2),
}
IN_PLACE = {"long rows": Windows((66,), (3,)), "wide image": Windows((6, 66), (3, 3))}


def product_of(func: tirx.PrimFunc) -> str:
    """The name of the block that reduces."""
    (name,) = [plan.name for plan in plan_alone(func) if plan.reduce]
    return name


def copies_in(func: tirx.PrimFunc) -> list[s_tir.SBlock]:
    blocks: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, blocks.append))
    return [block for block in blocks if block.annotations.get(ROLE) == OPERAND]


@pytest.mark.parametrize("case", [*COPIED, *IN_PLACE])
def test_windows_are_multiplied_right(case: str) -> None:
    windows = {**COPIED, **IN_PLACE}[case]
    draw = np.random.default_rng(0)
    x = draw.standard_normal((windows.batch, windows.channels, *windows.image)).astype("float32")
    w = draw.standard_normal((windows.outputs, windows.channels, *windows.size)).astype("float32")
    out = tvm.runtime.tensor(np.full((windows.batch, windows.outputs, *windows.result), np.nan, "float32"))
    compile_unfused(windows.function())(tvm.runtime.tensor(x), tvm.runtime.tensor(w), out)
    exact, length = windows.exact(x, w), w[0].size
    tolerance.assert_close(out.numpy(), exact, windows.exact(x, w, "float32"), length=length, dtype="float32")
    assert tolerance.rejects(exact, length, "float32") == []


@pytest.mark.parametrize("case", COPIED)
def test_what_is_not_contiguous_is_copied_with_its_lanes_side_by_side(case: str) -> None:
    func = windows_copied(COPIED[case].function(), CPU)
    assert len(copies_in(func)) == 1
    (plan,) = [plan for plan in plan_alone(func) if plan.name == product_of(func)]
    contraction = find_contraction(plan)
    assert contraction is not None and not contraction.packed
    assert plan.extents[contraction.lanes] == np.prod(COPIED[case].result), "all positions are lanes"


@pytest.mark.parametrize("case", IN_PLACE)
def test_windows_along_long_rows_are_read_where_they_lie(case: str) -> None:
    func = IN_PLACE[case].function()
    assert windows_copied(func, CPU).same_as(func)


def test_a_window_that_several_outputs_share_with_their_weights_is_no_product_of_matrices() -> None:
    """Each channel has a weight of its own: nothing is read for several outputs, and nothing is copied."""
    x = te.placeholder((8, 34, 34), "float32", name="x")
    w = te.placeholder((8, 3, 3), "float32", name="w")
    p, q = te.reduce_axis((0, 3), "p"), te.reduce_axis((0, 3), "q")
    y = te.compute((8, 16, 16), lambda c, i, j: te.sum(x[c, 2 * i + p, 2 * j + q] * w[c, p, q], axis=[p, q]), name="y")
    func = te.create_prim_func([x, w, y])
    assert windows_copied(func, CPU).same_as(func)


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
    windows: Callable[[], tirx.PrimFunc] = {**COPIED, **IN_PLACE}[case].function
    lowered = compile_unfused(windows(), TARGET).mod["main"]
    assert max(vectors_of(lowered, "y")) >= CPU.lanes("float32") // 2
    cells: list[str] = []
    tvm_ffi.structural_walk(
        lowered.body, (s_tir.SBlock, lambda b: cells.extend(str(buffer.name) for buffer in b.alloc_buffers))
    )
    assert any(cell.endswith("_local") for cell in cells)


def each_channel(padding: int) -> tirx.PrimFunc:
    """Sums of a padded image in windows of 3 × 3, with weights of each channel's own."""
    x = te.placeholder((8, 24, 24), "float32", name="x")
    w = te.placeholder((8, 3, 3), "float32", name="w")
    wide = 24 + 2 * padding
    p, q = te.reduce_axis((0, 3), "p"), te.reduce_axis((0, 3), "q")

    def inside(c: tirx.Var, i: tirx.Var, j: tirx.Var) -> tirx.Var:
        i, j = i - padding, j - padding
        return tirx.if_then_else(tirx.all(i >= 0, i < 24, j >= 0, j < 24), x[c, i, j], tirx.const(0, "float32"))

    padded = te.compute((8, wide, wide), inside, name="padded")
    shape = (8, wide - 2, wide - 2)
    y = te.compute(shape, lambda c, i, j: te.sum(padded[c, i + p, j + q] * w[c, p, q], axis=[p, q]), name="y")
    return te.create_prim_func([x, w, y]).with_attr("global_symbol", "main")


def test_short_windows_of_each_channel_run_in_vectors_along_the_image() -> None:
    lowered = compile_unfused(each_channel(1), TARGET).mod["main"]
    assert vectors_of(lowered, "y") == {8}, "24 positions, not three of a window"
    assert vectors_of(lowered, "padded") == set(), "LLVM masks what lies outside"


def test_short_windows_of_each_channel_are_right() -> None:
    draw = np.random.default_rng(0)
    x, w = (draw.standard_normal(shape).astype("float32") for shape in ((8, 24, 24), (8, 3, 3)))
    out = tvm.runtime.tensor(np.full((8, 24, 24), np.nan, "float32"))
    compile_unfused(each_channel(1))(tvm.runtime.tensor(x), tvm.runtime.tensor(w), out)
    seen = np.lib.stride_tricks.sliding_window_view(
        np.pad(np.float64(x), ((0, 0), (1, 1), (1, 1))), (3, 3), axis=(1, 2)
    )
    exact = np.einsum("cijpq,cpq->cij", seen, np.float64(w))
    tolerance.assert_close(out.numpy(), exact, length=9, dtype="float32")
    assert tolerance.rejects(exact, 9, "float32") == []


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
    built = compile_fused(normed(), TARGET, FuseOptions(force=True))
    made = str(built.report)
    assert "the fused loop" in made and "y: a product in register tiles" in made, made
