"""Scratch that every row uses anew: a cascade is seen through it, unless a row finds there what another one left."""

from __future__ import annotations

import pytest
import tvm
from tvm import tirx

import tvm_cascade
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_function import fuse_function

from .running import assert_same_after, drawn

TEMPLATE = """
@T.prim_func(s_tir=True)
def main(
    x: T.Buffer((4, 37), "float32"), given: T.Buffer((37,), "float32"),
    out: T.Buffer((4,), "float32"), other: T.Buffer((4,), "float32"), both: T.Buffer((4, 3), "float32")
):
    t = T.sblock_alloc_buffer((37,))
    m = T.sblock_alloc_buffer((1,))
    s = T.sblock_alloc_buffer((1,))
{before}
    for i in range(4):
{body}
{after}
"""


def nest(name: str, loops: str, axes: str, *lines: str, pad: int = 8) -> str:
    """A nest around one block, within the loop over rows."""
    loop = f"for {loops}:\n    " if loops else ""
    block = f'with T.sblock("{name}"):' + "".join(f"\n    {line}" for line in (*axes.splitlines(), *lines))
    text = loop + (block.replace("\n", "\n    ") if loops else block)
    return "\n".join(" " * pad + line for line in text.splitlines())


OF_BOTH = "v_k = T.axis.spatial(3, k)"
ROW, POSITION = "v_i = T.axis.spatial(4, i)", "v_j = T.axis.{}(37, j)"
EACH, ALONG = f"{ROW}\n{POSITION.format('spatial')}", f"{ROW}\n{POSITION.format('reduce')}"
WRITE = nest("t", "j in range(37)", EACH, "t[v_j] = x[v_i, v_j] * T.float32(2)")
LOWEST = ("with T.init():", '    m[0] = T.min_value("float32")')
TOP = nest("top", "j in range(37)", POSITION.format("reduce"), *LOWEST, "m[0] = T.max(m[0], t[v_j])")
TOTAL = nest(
    "total",
    "j in range(37)",
    POSITION.format("reduce"),
    "with T.init():",
    "    s[0] = T.float32(0)",
    "s[0] = s[0] + T.exp(t[v_j] - m[0])",
)
OUT = nest("out", "", ROW, "out[v_i] = s[0] + m[0]")
FILLED = "\n".join(
    [
        nest("floor", "", "", 'm[0] = T.min_value("float32")'),
        nest("top", "j in range(37)", POSITION.format("reduce"), "m[0] = T.max(m[0], t[v_j])"),
        nest("none", "", "", "s[0] = T.float32(0)"),
        nest("total", "j in range(37)", POSITION.format("reduce"), "s[0] = s[0] + T.exp(t[v_j] - m[0])"),
    ]
)
AGAIN = "    for i in range(4):\n" + "\n".join([WRITE, TOP, TOTAL, OUT.replace("out[", "other[")])
AGAIN = AGAIN.replace("T.float32(2)", "T.float32(3)")


def program(*body: str, before: str = "", after: str = "") -> tirx.PrimFunc:
    return tvm.script.from_source(TEMPLATE.format(body="\n".join(body), before=before, after=after))


def inner(*body: str) -> str:
    """Nests under one more loop, over k."""
    return "        for k in range(3):\n" + "\n".join("    " + line for part in body for line in part.splitlines())


SCALED = nest("t", "j in range(37)", f"{EACH}\n{OF_BOTH}", 't[v_j] = x[v_i, v_j] * T.Cast("float32", v_k)')
BOTH = nest("both", "", f"{ROW}\n{OF_BOTH}", "both[v_i, v_k] = s[0]")


SEEN = {
    "a row of values": program(WRITE, TOP, TOTAL, OUT),
    "filled and accumulated": program(WRITE, FILLED, OUT),
    "a part of what was written is read": program(WRITE, TOP.replace("37", "30"), TOTAL.replace("37", "30"), OUT),
    "written anew after it was read": program(WRITE, TOP, TOTAL, OUT, WRITE.replace('"t"', '"anew"')),
    "read in another order": program(
        WRITE, TOP.replace("t[v_j]", "t[36 - v_j]"), TOTAL.replace("t[v_j]", "t[36 - v_j]"), OUT
    ),
    "used by two loops": program(WRITE, TOP, TOTAL, OUT, after=AGAIN),
    "used before by another": program(WRITE, TOP, TOTAL, OUT, before=AGAIN),
    "the loop's own variable": program(WRITE, TOP, TOTAL, nest("out", "", "", "out[i] = s[0]")),
    "rows in two loops": program(inner(SCALED, TOP, TOTAL, BOTH)),
    "filled, in two loops": program(inner(SCALED, FILLED, BOTH)),
    "used by the outer and the inner loop": program(WRITE, TOP, TOTAL, OUT, inner(SCALED, TOP, TOTAL, BOTH)),
}


@pytest.mark.parametrize("name", SEEN)
def test_a_cascade_is_seen_through_what_each_row_writes_first(name: str) -> None:
    func = SEEN[name]
    before = func.script()
    compiled = tvm_cascade.compile(func, force=True)
    assert func.script() == before
    codes = [group.reason.code for group in compiled.report.groups]
    assert codes[0] == "fold" and set(codes) <= {"fold", "overwritten"}, str(compiled.report)
    assert_same_after(compiled, func, drawn(func), length=37)


KEPT = {
    "read before it is written": program(TOP, WRITE, TOTAL, OUT),
    "written in part": program(WRITE.replace("37", "30"), TOP, TOTAL, OUT),
    "written at other places": program(WRITE.replace("t[v_j]", "t[(v_j * 2) % 37]"), TOP, TOTAL, OUT),
    "written under a predicate": program(
        WRITE.replace("t[v_j] =", "T.where(j != 3)\n                t[v_j] ="), TOP, TOTAL, OUT
    ),
    "written where a condition holds": program(
        WRITE.replace("t[v_j] =", "if v_j != 3:\n                    t[v_j] ="), TOP, TOTAL, OUT
    ),
    "carried from row to row": program(WRITE, TOP.replace(f"{LOWEST[0]}\n                {LOWEST[1]}", ""), TOTAL, OUT),
    "read after an inner loop": program(inner(SCALED, TOP, TOTAL, BOTH), OUT),
    "read after the loop": program(
        WRITE, TOP, TOTAL, OUT, after=nest("last", "i in range(4)", ROW, "other[v_i] = s[0]", pad=4)
    ),
    "given back to the caller": program(*(part.replace("t[", "given[") for part in (WRITE, TOP, TOTAL)), OUT),
    "written by plain stores": program("        for j in range(37):\n            t[j] = x[i, j]", TOP, TOTAL, OUT),
    "read past what was written": program(WRITE.replace("37", "30"), TOP.replace("37", "31"), TOTAL, OUT),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_a_row_finds_there_of_another_stays_where_it_is(name: str) -> None:
    func = KEPT[name]
    outcome = fuse_function(func, FuseOptions(force=True))
    assert outcome.func.same_as(func)
    code = "tirx" if name == "written by plain stores" else "carried"
    assert [decision.reason.code for decision in outcome.decisions] == [code]
    assert "loop" in outcome.decisions[0].reason.detail
