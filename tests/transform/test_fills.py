"""A reduction as two blocks, a fill and an accumulation that goes on from it: one where nothing is between them."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import tirx

import tvm_cascade
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_function import fuse_function

from .running import assert_same_after, drawn

TEMPLATE = """
@T.prim_func(s_tir=True)
def main(x: T.Buffer((4, 37), "float32"), b: T.Buffer((4,), "float32"), s: T.Buffer((4,), "float32")):
    t = T.sblock_alloc_buffer((4,))
    u = T.sblock_alloc_buffer((4,))
{fill}
{before}
    for i, j in T.grid({rows}, {length}):
        with T.sblock("top"):
            v_i, v_j = T.axis.remap("{kinds}", [i, j])
            {top}
{between}
    for i, j in T.grid(4, 37):
        with T.sblock("total"):
            v_i, v_j = T.axis.remap("{kinds}", [i, j])
            {total}
"""


def over(loop: str, *stores: str, name: str = "start", rows: int = 4) -> str:
    """A nest with some stores at v_i."""
    body = "".join(f"\n            {store}" for store in stores)
    return f'    for i in {loop}:\n        with T.sblock("{name}"):\n            v_i = T.axis.spatial({rows}, i){body}'


ROWS = "range(4)"
LOWEST = 't[v_i] = T.min_value("float32")'
NONE = "s[v_i] = T.float32(0)"


def program(**parts: str) -> tirx.PrimFunc:
    given = {
        "fill": over(ROWS, LOWEST, NONE),
        "before": "",
        "between": "",
        "kinds": "SR",
        "rows": "4",
        "length": "37",
        "top": "t[v_i] = T.max(t[v_i], x[v_i, v_j])",
        "total": "s[v_i] = s[v_i] + T.exp(x[v_i, v_j] - t[v_i])",
    }
    return tvm.script.from_source(TEMPLATE.format(**{**given, **parts}))


JOINED = {
    "both in one block": {},
    "each in its own": {"fill": over(ROWS, NONE) + "\n" + over(ROWS, LOWEST, name="floor")},
    "just before the sum": {"fill": over(ROWS, LOWEST), "between": over(ROWS, NONE, name="zero")},
    "the infinity": {"fill": over(ROWS, 't[v_i] = T.float32("-inf")', NONE)},
    "other constants": {"fill": over(ROWS, "t[v_i] = T.float32(0.5)", "s[v_i] = T.float32(0.25)")},
    "a bias": {"fill": over(ROWS, LOWEST, "s[v_i] = b[v_i] * T.float32(2)")},
    "a function of the row": {"fill": over(ROWS, LOWEST, 's[v_i] = T.Cast("float32", v_i)')},
    "axes that are called spatial": {"kinds": "SS"},
    "updates under a condition": {
        "top": "if v_j < 30:\n                t[v_i] = T.max(t[v_i], x[v_i, v_j])",
        "total": "if v_j > v_i:\n                s[v_i] = s[v_i] + T.exp(x[v_i, v_j] - t[v_i])",
    },
    "what is read between is another": {"between": over(ROWS, "u[v_i] = t[v_i]", name="copy")},
    "an update of every element": {
        "before": over(ROWS, "s[v_i] = s[v_i] + b[v_i]", name="biased"),
    },
}


@pytest.mark.parametrize("name", JOINED)
def test_a_fill_is_the_start_of_what_goes_on_from_it(name: str) -> None:
    func = program(**JOINED[name])
    before = func.script()
    compiled = tvm_cascade.compile(func, force=True)
    assert func.script() == before
    assert [group.reason.code for group in compiled.report.groups] == ["fold"], str(compiled.report)
    assert_same_after(compiled, func, drawn(func), length=37)


def test_where_all_is_masked_the_fill_remains() -> None:
    """x is −inf in one row, and b tells from where on positions count: in the last row there are none."""
    func = program(
        fill=over(ROWS, 't[v_i] = T.float32("-inf")', "s[v_i] = b[v_i]"),
        top='if T.Cast("float32", v_j) >= b[v_i]:\n                t[v_i] = T.max(t[v_i], x[v_i, v_j])',
        total='if T.Cast("float32", v_j) >= b[v_i]:\n                s[v_i] = s[v_i] + T.exp(x[v_i, v_j] - t[v_i])',
    )
    compiled = tvm_cascade.compile(func, force=True)
    assert compiled.report.fused
    given = drawn(func)
    given[1][:] = 0, 3, 36, 37
    assert_same_after(compiled, func, given, length=37)


HANDED_ON = """    with T.sblock("call"):
        T.reads(s[0:4])
        T.writes(s[0:4])
        T.evaluate(T.call_packed("kernel", s.data))"""
UNREAD = {"opaque_block", "overwritten"}
ADDED_TO = {"fold", "overwritten"}
"""What is accumulated is a cascade, and is added to what is there then."""

KEPT = {
    "read between": (over(ROWS, "b[v_i] = s[v_i]", name="peek"), {}, ADDED_TO),
    "part of it filled": ("", {"fill": over(ROWS, LOWEST) + "\n" + over("range(2)", NONE)}, ADDED_TO),
    "other elements filled": ("", {"fill": over(ROWS, LOWEST, "s[3 - v_i] = T.float32(0)")}, ADDED_TO),
    "filled where a condition holds": (
        "",
        {"fill": over(ROWS, LOWEST, "if v_i < 3:\n                s[v_i] = T.float32(0)")},
        {"opaque_block", *ADDED_TO},
    ),
    "filled from what changes between": (
        over(ROWS, "b[v_i] = T.float32(7)", name="change"),
        {"fill": over(ROWS, LOWEST, "s[v_i] = b[v_i]")},
        ADDED_TO,
    ),
    "not filled": ("", {"fill": over(ROWS, LOWEST)}, ADDED_TO),
    "handed on between": (HANDED_ON, {}, {"extern", *ADDED_TO}),
    "a running sum": (
        "",
        {"fill": over(ROWS, LOWEST, NONE), "total": "s[v_i] = s[v_i] * s[v_i] + x[v_i, v_j]"},
        UNREAD,
    ),
    "fewer rows accumulated": ("", {"rows": "2"}, UNREAD),
    "fewer rows filled": ("", {"fill": over(ROWS, LOWEST) + "\n" + over("range(2)", NONE, rows=2)}, ADDED_TO),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_fill_that_is_not_the_start_stays_a_block(name: str) -> None:
    between, parts, codes = KEPT[name]
    func = program(between=between, **parts)
    outcome = fuse_function(func, FuseOptions(force=True))
    assert outcome.func.same_as(func) != ("fold" in codes)
    assert {decision.reason.code for decision in outcome.decisions} == codes
    if between != HANDED_ON:
        assert_same_after(tvm_cascade.compile(func, force=True), func, drawn(func), length=37)


def test_of_two_fills_the_last_one_counts() -> None:
    func = program(between=over(ROWS, "s[v_i] = b[v_i]", name="again"))
    compiled = tvm_cascade.compile(func, force=True)
    assert compiled.report.fused
    assert_same_after(compiled, func, drawn(func), length=37)


def test_over_a_length_that_may_be_none_a_fill_stays_a_block() -> None:
    """Nothing is accumulated there, and the fill is what remains."""
    func = tvm.script.from_source("""
@T.prim_func(s_tir=True)
def main(a: T.handle, s: T.Buffer((4,), "float32")):
    n = T.int32()
    x = T.match_buffer(a, (4, n))
    for i in range(4):
        with T.sblock("start"):
            v_i = T.axis.spatial(4, i)
            s[v_i] = T.float32(0)
    for i, j in T.grid(4, n):
        with T.sblock("total"):
            v_i, v_j = T.axis.remap("SR", [i, j])
            s[v_i] = s[v_i] + x[v_i, v_j]
""")
    compiled = tvm_cascade.compile(func, force=True)
    total = tvm.runtime.tensor(np.full(4, np.nan, "float32"))
    compiled(tvm.runtime.empty((4, 0), "float32"), total)
    np.testing.assert_array_equal(total.numpy(), 0)
