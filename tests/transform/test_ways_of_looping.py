"""Loops, views, starts and layouts that say the same as the plain form: read, fused, and right on hard data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import tirx
from tvm.s_tir import Schedule

import tvm_cascade
from tvm_cascade.analysis.bindings import plainly_bound
from tvm_cascade.evaluate import inputs
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_function import fuse_function

from ..analysis.programs import softmax_stats
from .running import assert_same_after, drawn

ROWS, LENGTH = 6, 24
KINDS = (inputs.normal, inputs.large_offset, inputs.late_spike, inputs.ties, inputs.neg_inf_first_segment)

HEAD = """
@T.prim_func(s_tir=True)
def main(x: T.Buffer((6, 24), "float32"), o: T.Buffer((6,), "float32")):
    m = T.sblock_alloc_buffer((6,))
"""
START_M, START_O = 'm[v_i] = T.min_value("float32")', "o[v_i] = T.float32(0)"
STEP_M, STEP_O = "m[v_i] = T.max(m[v_i], x[v_i, v_j])", "o[v_i] = o[v_i] + T.exp(x[v_i, v_j] - m[v_i])"
PLAIN = 'v_i, v_j = T.axis.remap("SR", [i, j])'


def nest(name: str, start: str, step: str, loops: str = "i, j in T.grid(6, 24)", axes: str = PLAIN) -> str:
    """One reduction; without a start, what its steps say is all."""
    init = ["with T.init():", f"    {start}"] if start else []
    lines = [*axes.splitlines(), *init, *step.splitlines()]
    body = "\n".join(f"            {line}" for line in lines)
    return f'    for {loops}:\n        with T.sblock("{name}"):\n{body}\n'


TOP, TOTAL = nest("m", START_M, STEP_M), nest("s", START_O, STEP_O)


def total(loops: str, *axes: str) -> str:
    """The function with its sum in other loops."""
    return HEAD + TOP + nest("s", START_O, STEP_O, loops, "\n".join(axes))


def top(start: str, *steps: str) -> str:
    """The function with its maximum started otherwise."""
    return HEAD + nest("m", start, "\n".join(steps)) + TOTAL


SPATIAL, REDUCED = "v_i = T.axis.spatial(6, i)", "v_j = T.axis.reduce(24, j)"
LOOPS = {
    "a split axis": total("i, j, k in T.grid(6, 3, 8)", SPATIAL, "v_j = T.axis.reduce(24, j * 8 + k)"),
    "a split axis with a rest": total(
        "i, j, k in T.grid(6, 4, 7)", SPATIAL, "v_j = T.axis.reduce(24, j * 7 + k)", "T.where(j * 7 + k < 24)"
    ),
    "split rows with a rest": total(
        "h, i, j in T.grid(2, 4, 24)", "v_i = T.axis.spatial(6, h * 4 + i)", REDUCED, "T.where(h * 4 + i < 6)"
    ),
    "tiles of rows around the axis": total(
        "h, j, i in T.grid(2, 24, 3)", "v_i = T.axis.spatial(6, h * 3 + i)", REDUCED
    ),
    "one fused loop": total(
        "f in T.serial(144)", "v_i = T.axis.spatial(6, f // 24)", "v_j = T.axis.reduce(24, f % 24)"
    ),
    "a loop from 3": total("i in range(6):\n      for j in range(3, 27)", SPATIAL, "v_j = T.axis.reduce(24, j - 3)"),
    "rows from 2": total("i in range(2, 8):\n      for j in range(24)", "v_i = T.axis.spatial(6, i - 2)", REDUCED),
    "loops of one iteration": total("u, i, w, j in T.grid(1, 6, 1, 24)", SPATIAL, "v_j = T.axis.reduce(24, j + w)"),
    "an axis from 3": HEAD
    + nest("m", START_M, STEP_M.replace("v_j", "v_j - 3"), axes=f"{SPATIAL}\nv_j = T.axis.reduce((3, 27), j + 3)")
    + TOTAL,
    "the first half": total("i in range(6):\n      for j in range(12)", SPATIAL, REDUCED),
}
STARTS = {
    "at the first position": top("", f"if v_j == 0:\n    {START_M}", STEP_M),
    "by the first element": top("", "if v_j == 0:\n    m[v_i] = x[v_i, 0]", STEP_M),
    "or goes on": top("", "if v_j == 0:\n    m[v_i] = x[v_i, v_j]\nelse:\n    " + STEP_M),
    "inside the step": HEAD
    + TOP
    + nest("s", "", "o[v_i] = T.if_then_else(v_j == 0, T.float32(0.5), o[v_i]) + T.exp(x[v_i, v_j] - m[v_i])"),
    "where the caller left it": HEAD + TOP + nest("s", "", STEP_O),
}
UNIT = f"v_b = T.axis.spatial(1, 0)\n            {PLAIN}"
PART = "y = T.match_buffer(x[v_i, 0:24], (24,), offset_factor=1)"
ELEMENT = "y = T.match_buffer(x[v_i, v_j], (), offset_factor=1)"
OUTER = """
    for h in range(2):
        with T.sblock("outer"):
            v_h = T.axis.spatial(2, h)
            for i in range(3):
                with T.sblock("inner"):
                    v_i = T.axis.spatial(3, i)
                    o[v_h * 3 + v_i] = T.log(s[v_h * 3 + v_i]) + m[v_h * 3 + v_i]
"""
DECLARED = {
    "a temporary as a statement": HEAD.replace("sblock_alloc_buffer", "alloc_buffer") + TOP + TOTAL,
    "a temporary in a loop": HEAD.replace("    m = T.sblock_alloc_buffer((6,))\n", "")
    + "    for i in range(6):\n        m = T.alloc_buffer((1,))\n"
    + "".join(
        "    " + line.replace("m[v_i]", "m[0]").replace("i, j in T.grid(6, 24)", "j in range(24)") + "\n"
        for line in (TOP + TOTAL).splitlines()
    ),
    "a part by name": HEAD
    + nest("m", START_M, STEP_M.replace("x[v_i, v_j]", "y[v_j]"), axes=PLAIN + "\n" + PART)
    + TOTAL,
    "an element by name": HEAD
    + nest("m", START_M, STEP_M.replace("x[v_i, v_j]", "y[()]"), axes=PLAIN + "\n" + ELEMENT)
    + TOTAL,
    "a tiled result": HEAD.replace("m = T.sblock_alloc_buffer((6,))", "m = T.sblock_alloc_buffer((2, 3))")
    + (TOP + TOTAL).replace("m[v_i]", "m[v_i // 3, v_i % 3]"),
    "a batch of one": HEAD.replace("(6,)", "(1, 6)")
    + (TOP + TOTAL).replace(PLAIN, UNIT).replace("m[v_i]", "m[v_b, v_i]").replace("o[v_i]", "o[v_b, v_i]"),
    "a tiled result in a batch of one": HEAD.replace("alloc_buffer((6,))", "alloc_buffer((1, 2, 3))")
    + (TOP + TOTAL).replace(PLAIN, UNIT).replace("m[v_i]", "m[v_b, v_i // 3, v_i % 3]"),
    "a tiled argument": HEAD.replace("(6, 24)", "(6, 3, 8)")
    + (TOP + TOTAL).replace("x[v_i, v_j]", "x[v_i, v_j // 8, v_j % 8]"),
    "a block in a block": HEAD
    + "    s = T.sblock_alloc_buffer((6,))\n"
    + TOP
    + TOTAL.replace("o[v_i]", "s[v_i]")
    + OUTER,
    "rows beside others": HEAD.replace("o: T.Buffer((6,)", "o: T.Buffer((9,)")
    + TOP
    + TOTAL.replace("o[v_i]", "o[v_i + 2]"),
}
GROUPS = {"loops": LOOPS, "starts": STARTS, "declared": DECLARED}
FORMS = {f"{group}: {name}": text for group, forms in GROUPS.items() for name, text in forms.items()}


@pytest.mark.parametrize("name", FORMS)
def test_another_way_of_writing_is_fused_and_leaves_what_it_leaves_unfused(name: str) -> None:
    func = tvm.script.from_source(FORMS[name])
    before = func.script()
    compiled = tvm_cascade.compile(func, force=True)
    assert func.script() == before
    if name != "loops: the first half":  # which is another axis, and a reason of its own
        assert compiled.report.groups[0].reason.code == "fold", str(compiled.report)
    else:
        assert [group.reason.code for group in compiled.report.groups] == ["axis_mismatch"]
    rng = np.random.default_rng(0)
    for kind in KINDS:
        given = drawn(func)
        given[0] = kind(rng, given[0].shape, "float32").astype("float32")
        assert_same_after(compiled, func, given, length=LENGTH)


def edited(work: Callable[[Schedule], object]) -> tirx.PrimFunc:
    """Softmax statistics after TVM's own primitives."""
    sch = Schedule(softmax_stats(rows=ROWS, length=LENGTH))
    work(sch)
    return sch.mod["main"]


def loops(sch: Schedule) -> list[object]:
    return list(sch.get_loops(sch.get_sblock("row_sum")))


EDITS: dict[str, Callable[[Schedule], object]] = {
    "split": lambda s: s.split(loops(s)[1], [None, 7]),
    "fuse": lambda s: s.fuse(*loops(s)),
    "add_unit_loop": lambda s: s.add_unit_loop(s.get_sblock("row_sum")),
    "transform_layout": lambda s: s.transform_layout(s.get_sblock("row_max"), ("write", 0), lambda i: [i // 2, i % 2]),
}


@pytest.mark.parametrize("name", EDITS)
def test_what_serial_primitives_leave_is_fused(name: str) -> None:
    func = edited(EDITS[name])
    compiled = tvm_cascade.compile(func, force=True)
    assert [group.reason.code for group in compiled.report.groups] == ["fold"], str(compiled.report)
    assert_same_after(compiled, func, drawn(func), length=LENGTH)


ORDERED = """
@T.prim_func(s_tir=True)
def main(x: T.Buffer((24,), "float32"), o: T.Buffer((6,), "float32")):
    for h, j, i in T.grid(2, 4, 3):
        with T.sblock("o"):
            v = T.axis.spatial(6, h * 3 + i)
            w = T.axis.spatial(4, j)
            o[v] = {stored}
"""


@pytest.mark.parametrize("stored", ["x[v * 4 + w]", "o[v] * T.float32(0.5) + x[v * 4 + w]"])
def test_the_order_of_stores_into_one_element_is_kept(stored: str) -> None:
    """Tiles of v around w cannot be loops over v and w where the last store, or each store in turn, counts."""
    func = tvm.script.from_source(ORDERED.format(stored=stored))
    root = func.body.block.body
    assert plainly_bound(root).same_as(root)
    assert not fuse_function(func, FuseOptions(force=True)).fused


def test_a_layout_that_is_no_box_stays_as_it_is() -> None:
    """TVM's affine maps take (v + 1) // 2 and (v + 1) % 2 for v // 2 and v % 2."""
    text = HEAD.replace("o: T.Buffer((6,)", "o: T.Buffer((4, 2)") + TOP + TOTAL
    func = tvm.script.from_source(text.replace("o[v_i]", "o[(v_i + 1) // 2, (v_i + 1) % 2]"))
    compiled = tvm_cascade.compile(func, force=True)
    assert [group.reason.code for group in compiled.report.groups] == ["unsupported_shape"]
    assert_same_after(compiled, func, drawn(func), length=LENGTH)
