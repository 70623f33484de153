"""Tensors in which heads, or sequences, are joined with what they hold: [B, S, H·D] and [B·S, H·D]."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from tvm import te, tirx
from tvm.ir import Expr

import tvm_cascade
from tvm_cascade.tile.product.lines import taken_apart

from ..tiers import slow_but
from .checked import assert_right
from .emulator.run import compiler

HEADS, LENGTH = 2, 136
HOPPER = {"kind": "cuda", "arch": "sm_90a"}

Shape = Callable[[int, int], tuple[int, ...]]
At = Callable[..., tuple[Expr, ...]]

LAYOUTS: dict[str, tuple[Shape, At, At]] = {
    "[B, S, H·D]": (
        lambda b, d: (b, LENGTH, HEADS * d),
        lambda d, b, h, i, c: (b, i, h * d + c),
        lambda d, b, i, x: (b, x // d, i, x % d),
    ),
    "[B·S, H·D]": (
        lambda b, d: (b * LENGTH, HEADS * d),
        lambda d, b, h, i, c: (b * LENGTH + i, h * d + c),
        lambda d, n, x: (n // LENGTH, x // d, n % LENGTH, x % d),
    ),
}
"""By name: the shape, where an element of a head is, and which one is at a place."""


def attention(layout: str, batch: int, depth: int = 64, inputs: bool = False, stored: str = "float16") -> tirx.PrimFunc:
    """The output is of a layout; `inputs`: they are, too."""
    shape, place, element = LAYOUTS[layout]
    apart = (batch, HEADS, LENGTH, depth)
    q, k, v = (te.placeholder(shape(batch, depth) if inputs else apart, "float16", name) for name in "qkv")
    inner, *axes = (te.reduce_axis((0, n), "djkl"[at]) for at, n in enumerate((depth, *[LENGTH] * 3)))

    def at(tensor: te.Tensor, *where: Expr) -> Expr:
        return tensor[place(depth, *where) if inputs else where].astype("float32")

    def score(b: Expr, h: Expr, i: Expr, j: Expr) -> Expr:
        return te.sum(at(q, b, h, i, inner) * at(k, b, h, j, inner), axis=inner)

    s = te.compute((*apart[:3], LENGTH), score, "s")
    m = te.compute(apart[:3], lambda b, h, i: te.max(s[b, h, i, axes[0]], axis=axes[0]), "m")
    e = te.compute(s.shape, lambda b, h, i, j: te.exp(s[b, h, i, j] - m[b, h, i]), "e")
    t = te.compute(apart[:3], lambda b, h, i: te.sum(e[b, h, i, axes[1]], axis=axes[1]), "t")
    p = te.compute(s.shape, lambda b, h, i, j: (e[b, h, i, j] / t[b, h, i]).astype("float16"), "p")
    o = te.compute(
        apart,
        lambda b, h, i, c: te.sum(p[b, h, i, axes[2]].astype("float32") * at(v, b, h, axes[2], c), axis=axes[2]),
        "o",
    )
    y = te.compute(shape(batch, depth), lambda *where: o[element(depth, *where)].astype(stored), "y")
    return te.create_prim_func([q, k, v, y])


@pytest.mark.parametrize(
    ("layout", "batch", "inputs"),
    slow_but([("[B, S, H·D]", 1, False), ("[B·S, H·D]", 2, True)], product(LAYOUTS, (1, 2), (False, True))),
)
def test_they_go_to_the_tensor_cores(layout: str, batch: int, inputs: bool) -> None:
    explanation = str(tvm_cascade.explain(attention(layout, batch, inputs=inputs), target=HOPPER))
    assert "the tensor-core kernel `stream`" in explanation


CASES = {
    "one sequence": ("[B, S, H·D]", 1, 64, False, "float16"),
    "several sequences": ("[B, S, H·D]", 2, 64, False, "float16"),
    "inputs too, with rows that are no multiple of a box": ("[B, S, H·D]", 2, 80, True, "float16"),
    "sequences joined as well": ("[B·S, H·D]", 2, 40, True, "float16"),
    "stored element by element": ("[B·S, H·D]", 2, 64, False, "float32"),
}


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("case", CASES)
def test_they_are_right(case: str) -> None:
    func, rng = attention(*CASES[case]), np.random.default_rng(0)
    shapes = [[int(n) for n in param.ty.shape] for param in func.params[:3]]
    inputs = [rng.standard_normal(shape).astype("float16") for shape in shapes]
    assert_right(func, inputs, length=LENGTH)


def test_indices_of_two_widths_are_one() -> None:
    """A symbolic extent of 64 bits beside loops of 32."""
    b, i = tirx.Var("b", "int64"), tirx.Var("i", "int32")
    shape = (tirx.Var("rows", "int64") * 8, tirx.const(64, "int64"))
    found, at = taken_apart(shape, (b * 8 + i.astype("int64"), b), i, 8)
    assert [str(e) for e in found] == ["rows", "T.int64(8)", "T.int64(64)"]
    assert at[0].same_as(b) and at[1].same_as(i)


def test_a_variable_has_a_dimension_of_its_own_where_whole_ranges_of_it_follow_one_another() -> None:
    h, c = (tirx.Var(name, "int64") for name in "hc")
    shape = (tirx.const(4, "int64"), tirx.const(96, "int64"))
    found = taken_apart(shape, (h, h * 32 + c), c, 32)
    assert [str(e) for e in (*found[0], *found[1])] == ["T.int64(4)", "T.int64(3)", "T.int64(32)", "h", "h", "c"]
    for index, extent in ((h * 32 + c, 64), (h * 48 + c * 2, 48), (h * 40 + c, 40)):
        assert taken_apart(shape, (h, index), c, extent)[0] == shape
