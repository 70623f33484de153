"""Products of windows of an image, which copies of boxes read in place, against the float64 oracle."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from tvm import ir, te, tirx

from corpus import workloads
from tvm_cascade.tile.machine.mma import MMA
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.product.boxes import boxed_line
from tvm_cascade.tile.product.lines import Line
from tvm_cascade.tile.skeletons.product.config import ProductConfig
from tvm_cascade.tile.work import GROUP_ROWS

from ..nvcc import nvcc
from ..plan.run import assert_plan_right, plan_of, skeletons
from ..plan.run import emulated as on_the_emulator
from ..tiers import slow_but
from .emulator.run import emulate
from .product_programs import Windows, inputs_of
from .test_compiled_kernels import text_of
from .test_products import CLUSTERS, SMALL, SPLIT, assert_right, emulated, kernel_of

ODD = Windows(9, 11, images=3, channels=96, columns=136)
"""Boxes that end outside of the image along both of its sides, and channels and columns that end within a tile."""

WINDOWS = {
    "one image": Windows(7, 7),
    "odd": ODD,
    "few channels": replace(ODD, channels=32, columns=72),
    "every other place": replace(ODD, step=2),
    "every other place of one": replace(ODD, side=1, step=2, edge=0),
    "every third of a wide window": Windows(17, 16, side=5, step=3, edge=2, across=True),
    "neighbours apart": Windows(15, 13, far=2, edge=2),
    "no zeros": Windows(8, 8, images=2, edge=0, dtype="bfloat16"),
    "columns of 40 bytes": Windows(9, 9, images=2, channels=24, columns=20),
}

CONFIGS = {
    "alone": SMALL,
    "one box": replace(SMALL, rows=64, consumers=1),
    "four boxes": replace(SMALL, rows=256),
    "clusters": CLUSTERS,
    "split": SPLIT,
    "by mma.sync": replace(SMALL, family=MMA),
}


@emulated
@pytest.mark.parametrize("name", slow_but(["odd", "every other place", "no zeros", "columns of 40 bytes"], WINDOWS))
def test_windows_are_read_in_place(name: str) -> None:
    case = WINDOWS[name]
    assert_right(case.build(), length=case.summed)


@emulated
@pytest.mark.parametrize("name", slow_but(["four boxes"], CONFIGS))
@pytest.mark.parametrize("step", [1, 2])
def test_tiles_are_some_boxes(name: str, step: int) -> None:
    case = replace(ODD, step=step)
    assert_right(case.build(), CONFIGS[name], length=case.summed)


@emulated
@pytest.mark.parametrize("step", [1, 2])
def test_the_launch_alone_may_know_how_many_images_there_are(step: int) -> None:
    case = replace(ODD, step=step)
    kernel = kernel_of(replace(case, images=tirx.Var("images", "int32")).build())
    for images in (1, 3):
        assert_right(replace(case, images=images).build(), length=case.summed, kernel=kernel)


@emulated
def test_the_launch_alone_may_know_how_high_an_image_is() -> None:
    case = replace(ODD, images=1)
    kernel = kernel_of(replace(case, height=tirx.Var("height", "int32")).build())
    for height in (1, 10):
        assert_right(replace(case, height=height).build(), length=case.summed, kernel=kernel)


def test_nothing_is_stored_before_a_product_of_windows() -> None:
    """Nor is what borders the image."""
    assert skeletons(plan_of(ODD.build())) == ["product"]


@emulated
def test_places_of_a_window_are_told_apart() -> None:
    """An image with one element gives a window of the weights, which shows which place reads which neighbour."""
    case = Windows(6, 5, channels=8, columns=8)
    x, w, b = inputs_of(case.build())
    x[:], b[:] = 0, 0
    x[0, 2, 3, 1] = 1
    (out,) = emulate(kernel_of(case.build()).func, [x, w, b])
    for p, q in [(1, 2), (2, 4), (3, 3)]:
        assert (out[0, p, q] == w[:, 3 - p, 4 - q, 1].clip(0)).all()
    assert not out[0, 4:].any() and not out[0, :, :2].any()


@pytest.mark.parametrize(
    ("extents", "boxes"),
    [((56, 56), 49), ((7, 7), 1), ((28, 28), 14), ((32, 28, 28), 392), ((32, 7, 7), 28), ((1,), 1)],
)
def test_boxes_are_as_few_as_can_be(extents: tuple[int, ...], boxes: int) -> None:
    parts = tuple(tirx.Var(name, "int32") for name in "npq"[: len(extents)])
    line = boxed_line(Line(parts[0], parts, extents))
    assert line is not None
    assert line.extent == boxes * GROUP_ROWS >= math.prod(extents)
    assert math.prod(line.counts) <= GROUP_ROWS


def _asked(program: tirx.PrimFunc) -> str:
    with pytest.raises(Unfit) as refusal:
        kernel_of(program)
    return str(refusal.value)


def test_what_copies_of_boxes_do_not_bring_is_refused() -> None:
    assert "in multiples of 16 bytes" in _asked(replace(ODD, channels=3).build())
    assert "no one dimension runs along" in _asked(replace(ODD, images=1, step=5, edge=0).build())
    of_width = replace(ODD, images=1, width=tirx.Var("width", "int32"), edge=0)
    assert "no one dimension runs along" in _asked(of_width.build())


def test_zeros_that_are_no_border_are_refused() -> None:
    """Where the zeros end within the image, copies would bring what is there."""
    x, w = te.placeholder((16, 64), "float16", name="x"), te.placeholder((64, 3, 64), "float16", name="w")
    i, c = te.reduce_axis((0, 3), "i"), te.reduce_axis((0, 64), "c")

    def element(p: tirx.Var, m: tirx.Var) -> ir.Expr:
        one = tirx.if_then_else(tirx.all(p + i >= 2, p + i < 17), x(p + i - 1, c), tirx.const(0.0, "float16"))
        return te.sum(one.astype("float32") * w(m, i, c).astype("float32"), axis=[i, c])

    assert "no product of two tensors" in _asked(te.create_prim_func([x, w, te.compute((16, 64), element, "out")]))


def test_nothing_spills(tmp_path: Path) -> None:
    source = tmp_path / "windows.cu"
    source.write_text(text_of(kernel_of(ODD.build(), ProductConfig(blocks=132))))
    told = nvcc("-cubin", "-Xptxas", "-v", "-o", tmp_path / "windows.cubin", source)
    assert "0 bytes spill stores, 0 bytes spill loads" in told


def _chain(second: int) -> tirx.PrimFunc:
    """Windows of what is made of windows, with relu between."""
    shape = {"batch": 2, "height": 9, "width": 7, "k": 64, "n": 64, "l": 72, "first": 3, "second": second}
    return workloads.get("chain_convolved").with_shape(**shape).build()


@emulated
@pytest.mark.parametrize("second", [1, 3])
def test_chains_are_two_products_with_nothing_between(second: int) -> None:
    func = _chain(second)
    plan = plan_of(func)
    assert skeletons(plan) == ["product", "product"]
    assert_plan_right(func, plan, on_the_emulator, length=64 * 9)
