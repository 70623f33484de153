"""Blocks under a predicate (`T.where`): a mask, or a shorter loop, where that is what it says."""

from __future__ import annotations

import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T

import tvm_cascade
from tvm_cascade.analysis.canonical import canonical
from tvm_cascade.analysis.statements import read_nests
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_function import fuse_function

from ..tiers import quick_but
from .running import assert_same_after, drawn

TEMPLATE = """
@T.prim_func(s_tir=True)
def main(
    x: T.Buffer((4, 37), "float32"), mask: T.Buffer((37,), "int32"), n: T.int32,
    t: T.Buffer((4,), "float32"), s: T.Buffer((4,), "float32")
):
    {own}
    for i, j in T.grid({rows}, {loop}):
        with T.sblock("y"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            T.where({seen})
            y[v_i, v_j] = x[v_i, v_j] * T.float32(2)
    {fill}
    for i, j in T.grid({rows}, {loop}):
        with T.sblock("top"):
            v_i = T.axis.spatial(4, i)
            v_j = T.axis.reduce(37, j)
            T.where({where})
            {start_top}
            {top}[v_i] = T.max({top}[v_i], {element})
    for i, j in T.grid({rows}, {loop}):
        with T.sblock("total"):
            v_i = T.axis.spatial(4, i)
            v_j = T.axis.reduce(37, j)
            T.where({where})
            {start_total}
            {total}[v_i] = {total}[v_i] + T.exp({element} - {top}[v_i])
    {copy}
"""
COPY = """for i in range(4):
        with T.sblock("{0}_copy"):
            v_i = T.axis.spatial(4, i)
            T.where({1})
            {0}[v_i] = own_{0}[v_i]
    """
FILL = """for i in range(4):
        with T.sblock("fill"):
            v_i = T.axis.spatial(4, i)
            t[v_i] = T.min_value("float32")
            s[v_i] = T.float32(0)
"""


def program(where: str, seen: str | None = None, own: str = "", fill: bool = False, **parts: object) -> tirx.PrimFunc:
    """Both reductions under one predicate, into buffers of the function's `own` or the caller's, `seen` copied."""
    buffers = {name: f"own_{name}" if name in own else name for name in "ts"}
    start = "with T.init():\n                {} = {}"
    given = {
        "own": "\n    ".join(f"own_{name} = T.sblock_alloc_buffer((4,))" for name in own)
        + "\n    y = T.sblock_alloc_buffer((4, 37))",
        "rows": 4,
        "loop": 37,
        "where": where,
        "seen": where,
        "element": "x[v_i, v_j]",
        "top": buffers["t"],
        "total": buffers["s"],
        "fill": FILL if fill else "",
        "start_top": "" if fill else start.format(f"{buffers['t']}[v_i]", 'T.min_value("float32")'),
        "start_total": "" if fill else start.format(f"{buffers['s']}[v_i]", "T.float32(0)"),
        "copy": "".join(COPY.format(name, seen or "i < 4") for name in own),
    }
    return tvm.script.from_source(TEMPLATE.format(**{**given, **parts}))


READ = {
    "the first positions": program("j < 30"),
    "the first positions, otherwise": program("29 >= j"),
    "a triangle": program("j <= i"),
    "a band": program("j <= i + 8 and j * 2 < 50"),
    "what the element needs": program("j < 30", element="y[v_i, v_j]"),
    "loops beyond the domain": program("i < 4 and j < 37", rows=6, loop=40),
    "loops beyond the domain, and a triangle": program("i < 4 and j < 37 and j <= i", rows=6, loop=40),
    "some rows": program("i < 3"),
    "some rows and positions": program("i < 3 and j < 30"),
    "a length, after a fill": program("j < n", fill=True),
    "the last positions, after a fill": program("j >= 7", fill=True),
    "rows and positions, after a fill": program("i > 1 and j > n - i", fill=True),
    "a mask, after a fill": program("mask[j] > 0", fill=True),
    "of the function's own": program("j < n", own="ts"),
    "rows of the function's own": program("i < n - 8 and j < n", own="ts", seen="i < n - 8"),
}


OTHERS = {
    "rows and positions, after a fill",
    "a length, after a fill",
    "the last positions, after a fill",
    "loops beyond the domain, and a triangle",
}
"""Of a predicate, and after a fill, that others have."""


@pytest.mark.parametrize("name", quick_but(OTHERS, READ))
def test_a_predicate_is_read_as_what_it_leaves_out(name: str) -> None:
    func = READ[name]
    before = func.script()
    compiled = tvm_cascade.compile(func, force=True)
    assert func.script() == before
    codes = [group.reason.code for group in compiled.report.groups]
    assert codes[0] == "fold" and set(codes) <= {"fold", "predicate"}, str(compiled.report)
    assert_same_after(compiled, func, drawn(func, n=11), length=37)


LEFT = {
    "no first position": program("j >= 7"),
    "maybe no first position": program("j < n"),
    "a mask": program("mask[j] > 0"),
    "rows that may be none": program("i < n"),
    "what it accumulates": program("x[i, j] > t[i]"),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_a_predicate_may_leave_unstarted_goes_on_from_what_the_caller_gave(name: str) -> None:
    func = LEFT[name]
    outcome = fuse_function(func, FuseOptions(force=True))
    assert outcome.func.same_as(func)
    assert {decision.reason.code for decision in outcome.decisions} == {"predicate"}
    assert "block top" in outcome.decisions[0].reason.detail
    assert_same_after(tvm_cascade.compile(func, force=True), func, drawn(func, n=11), length=37)


@T.prim_func(s_tir=True)
def longer_than_its_temporary(x: T.Buffer((12, 24), "float32"), s: T.Buffer((10,), "float32")):
    y = T.sblock_alloc_buffer((10, 20))
    t = T.sblock_alloc_buffer((10,))
    for i, j in T.grid(12, 24):
        with T.sblock("y"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            T.where(i < 10 and j < 20)
            y[v_i, v_j] = x[v_i, v_j] * T.float32(2)
    for i, j in T.grid(10, 20):
        with T.sblock("t"):
            v_i, v_j = T.axis.remap("SR", [i, j])
            with T.init():
                t[v_i] = T.min_value("float32")
            t[v_i] = T.max(t[v_i], y[v_i, v_j])
    for i, j in T.grid(10, 20):
        with T.sblock("s"):
            v_i, v_j = T.axis.remap("SR", [i, j])
            with T.init():
                s[v_i] = T.float32(0)
            s[v_i] = s[v_i] + T.exp(y[v_i, v_j] - t[v_i])


def test_what_a_predicate_keeps_out_of_a_buffer_is_never_stored() -> None:
    """Past the end of a row lies the next row, or another buffer."""
    func = longer_than_its_temporary
    stored: list[tirx.IterVar] = []
    for nest in read_nests(canonical(func)):
        if nest.realize.block.name_hint == "y":
            stored += nest.realize.block.iter_vars
    assert [int(iterator.dom.extent) for iterator in stored] == [10, 20]
    compiled = tvm_cascade.compile(func, force=True)
    assert [group.reason.code for group in compiled.report.groups] == ["fold"]
    assert_same_after(compiled, func, drawn(func), length=20)
