"""The same cascade, Σ exp(x − max x), in ways in which people write it: all are one loop, and right."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T

import tvm_cascade
from benchmarks.judge.power import rejects
from tvm_cascade.analysis.canonical import canonical
from tvm_cascade.evaluate import tolerance
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_function import fuse_function

from ..analysis.programs import softmax_stats

ROWS, LENGTH, SHORT = 4, 37, 30

TEMPLATE = """
@T.prim_func(s_tir=True)
def main(x: T.Buffer((4, 37), "float32"), b: T.Buffer((4,), "float32"), s: T.Buffer((4,), "float32")):
    t = T.sblock_alloc_buffer((4,))
{outer}{pad}for i, j in T.grid({rows}37):
{pad}    with T.sblock("t"):
{pad}        i, j = T.axis.remap("SR", [{row}, j])
{pad}        with T.init():
{pad}            t[i] = {start}
{top}
{pad}for i, j in T.grid({rows}37):
{pad}    with T.sblock("s"):
{pad}        i, j = T.axis.remap("SR", [{row}, j])
{pad}        with T.init():
{pad}            s[i] = {zero}
{total}
"""

LOWEST = 'T.min_value("float32")'


@dataclass(frozen=True)
class Way:
    """Lines of the two updates and their starts; `floor` is what the maximum starts from, `kept` the positions."""

    top: str = "t[i] = T.max(t[i], x[i, j])"
    total: str = "s[i] = s[i] + T.exp(x[i, j] - t[i])"
    start: str = LOWEST
    zero: str = "T.float32(0)"
    floor: float = -np.inf
    plus: float = 0.0
    kept: int = LENGTH
    nested: bool = False

    @property
    def func(self) -> tirx.PrimFunc:
        pad = " " * (8 if self.nested else 4)
        loops = {"outer": "    for i in range(4):\n" if self.nested else "", "rows": "" if self.nested else "4, "}
        body = {"top": self.top, "total": self.total}
        lines = {k: "\n".join(f"{pad}        {line}" for line in v.splitlines()) for k, v in body.items()}
        text = TEMPLATE.format(pad=pad, row="i", start=self.start, zero=self.zero, **loops, **lines)
        if self.nested:
            text = text.replace("for i, j in T.grid(37)", "for j in range(37)")
        text = text.replace("i, j = T.axis.remap", "v_i, v_j = T.axis.remap")
        renamed = text.replace("[i, j]", "[v_i, v_j]").replace("t[i]", "t[v_i]").replace("s[i]", "s[v_i]")
        renamed = renamed.replace('remap("SR", [v_i, v_j])', 'remap("SR", [i, j])').replace("b[i]", "b[v_i]")
        return tvm.script.from_source(renamed.replace("j < 30", "v_j < 30"))


WAYS: dict[str, Way] = {
    "from minus 1e30": Way(start="T.float32(-1e30)", floor=-1e30),
    "from zero": Way(start="T.float32(0)", floor=0.0),
    "from a value of the row": Way(start="b[i]", floor=0.5),
    "a sum from an epsilon": Way(zero="T.float32(0.25)", plus=0.25),
    "several terms": Way(total="s[i] = T.exp(x[i, j] - t[i]) + s[i] - x[i, j] + x[i, j]"),
    "a difference": Way(total="s[i] = s[i] - (T.float32(0) - T.exp(x[i, j] - t[i]))"),
    "a comparison": Way(top="t[i] = T.if_then_else(x[i, j] > t[i], x[i, j], t[i])"),
    "a comparison the other way": Way(top="t[i] = T.Select(t[i] < x[i, j], x[i, j], t[i])"),
    "a comparison of what is kept": Way(top="t[i] = T.Select(t[i] >= x[i, j], t[i], x[i, j])"),
    "updates under a condition": Way(
        top="if j < 30:\n    t[i] = T.max(t[i], x[i, j])",
        total="s[i] = T.if_then_else(j < 30, s[i] + T.exp(x[i, j] - t[i]), s[i])",
        kept=SHORT,
    ),
    "a branch with an else": Way(
        total="if j < 30:\n    s[i] = s[i] + T.exp(x[i, j] - t[i])\nelse:\n    s[i] = s[i]", kept=SHORT
    ),
    "a let": Way(total="d: T.let[T.float32] = x[i, j] - t[i]\ns[i] = s[i] + T.exp(d)"),
    "under one loop over rows": Way(nested=True),
}


@pytest.mark.parametrize("name", WAYS)
def test_every_way_of_writing_a_cascade_fuses_and_is_right(name: str) -> None:
    way = WAYS[name]
    func = way.func
    before = func.script()
    compiled = tvm_cascade.compile(func, force=True)
    assert func.script() == before
    assert [group.reason.code for group in compiled.report.groups] == ["fold"], str(compiled.report)
    x = np.random.default_rng(0).standard_normal((ROWS, LENGTH)).astype("float32")
    base, found = np.full(ROWS, 0.5, "float32"), np.full(ROWS, np.nan, "float32")
    compiled(x, base, found)
    exact = x.astype("float64")
    top = np.maximum((exact[:, :SHORT] if "if j" in way.top else exact).max(1, keepdims=True), way.floor)
    expected = np.exp(exact[:, : way.kept] - top).sum(1) + way.plus
    tolerance.assert_close(found, expected, length=LENGTH, dtype="float32")
    assert rejects(expected, LENGTH, "float32") == []


def test_what_is_in_canonical_form_stays_as_it_is() -> None:
    func = softmax_stats()
    assert canonical(func) is func or canonical(func).same_as(func)


def carried(read: str) -> tirx.PrimFunc:
    """for i: {a[i] = f(b[...]); b[i] = a[i]}."""
    return tvm.script.from_source(f"""
@T.prim_func(s_tir=True)
def main(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.sblock("first"):
            v = T.axis.spatial(8, i)
            a[v] = b[{read}] + T.float32(1)
        with T.sblock("second"):
            v = T.axis.spatial(8, i)
            b[v] = a[v] * T.float32(2)
""")


def test_a_loop_is_taken_apart_only_where_no_iteration_reads_what_another_writes() -> None:
    kept = carried("T.max(v - 1, 0)")
    assert canonical(kept).same_as(kept)
    assert fuse_function(kept, FuseOptions(force=True)).decisions[0].reason.code == "carried"
    apart = carried("v")
    assert len(canonical(apart).body.block.body.seq) == 2


@T.prim_func(s_tir=True)
def two_sums_in_a_block(x: T.Buffer((4, 37), "float32"), s: T.Buffer((4,), "float32"), w: T.Buffer((4,), "float32")):
    """All blocks have one name, and the last of them holds two sums."""
    t = T.sblock_alloc_buffer((4,))
    for i, j in T.grid(4, 37):
        with T.sblock("b"):
            v_i, v_j = T.axis.remap("SR", [i, j])
            with T.init():
                t[v_i] = T.min_value("float32")
            t[v_i] = T.max(t[v_i], x[v_i, v_j])
    for i, j in T.grid(4, 37):
        with T.sblock("b"):
            v_i, v_j = T.axis.remap("SR", [i, j])
            with T.init():
                s[v_i] = T.float32(0)
                w[v_i] = T.float32(0)
            s[v_i] = s[v_i] + T.exp(x[v_i, v_j] - t[v_i])
            w[v_i] = w[v_i] + T.exp(x[v_i, v_j] - t[v_i]) * x[v_i, v_j]


def test_sums_that_share_a_block_are_sums_of_their_own() -> None:
    compiled = tvm_cascade.compile(two_sums_in_a_block, force=True)
    assert {group.reason.code for group in compiled.report.groups} == {"fold"}
    x = np.random.default_rng(0).standard_normal((ROWS, LENGTH)).astype("float32")
    found = [np.full(ROWS, np.nan, "float32") for _ in range(2)]
    compiled(x, *found)
    weights = np.exp(x.astype("float64") - x.max(1, keepdims=True))
    for one, expected in zip(found, (weights.sum(1), (weights * x).sum(1)), strict=True):
        tolerance.assert_close(one, expected, length=LENGTH, dtype="float32")


@T.prim_func(s_tir=True)
def one_name(x: T.Buffer((4, 37), "float32"), y: T.Buffer((4, 37), "float32"), z: T.Buffer((4, 37), "float32")):
    for i, j in T.grid(4, 37):
        with T.sblock("b"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            y[v_i, v_j] = T.exp(x[v_i, v_j])
    for i, j in T.grid(4, 37):
        with T.sblock("b"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            z[v_i, v_j] = y[v_i, v_j] * x[v_i, v_j]


def test_blocks_of_one_name_are_told_apart_by_schedules() -> None:
    compiled = tvm_cascade.compile(one_name)
    x = np.random.default_rng(0).standard_normal((ROWS, LENGTH)).astype("float32")
    y, z = np.full_like(x, np.nan), np.full_like(x, np.nan)
    compiled(x, y, z)
    tolerance.assert_close(z, np.exp(x.astype("float64")) * x, length=1, dtype="float32")
