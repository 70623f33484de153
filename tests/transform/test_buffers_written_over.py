"""Buffers that stand for several values in turn: what is read between two writes stays between them."""

from __future__ import annotations

from typing import Any

import pytest
from numpy.typing import NDArray
from tvm import tirx
from tvm.script import from_source
from tvm.script import tirx as T

import tvm_cascade
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_function import fuse_function

from .running import assert_same_after, drawn

Array = NDArray[Any]
ROWS, LENGTH, FEATURES, AT = 4, 37, 8, 5

NAMED_AGAIN = """
@T.prim_func(s_tir=True)
def main(x: T.Buffer((4, 37), "float32"), total: T.Buffer((4,), "float32")):
    top = T.sblock_alloc_buffer((4,), "float32")
    c = T.sblock_alloc_buffer((4, 37), "float32")
    side = T.sblock_alloc_buffer((4,), "float32")
    for i, j in T.grid(4, 37):
        with T.sblock("c"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            c[v_i, v_j] = x[v_i, v_j] * T.float32(2)
    DECLARED
    for i, j in T.grid(4, 37):
        with T.sblock("top"):
            v_i, v_j = T.axis.remap("SR", [i, j])
            with T.init():
                top[v_i] = T.min_value("float32")
            top[v_i] = T.max(top[v_i], FIRST)
    for a in range(4):
        with T.sblock("between"):
            v_a = T.axis.spatial(4, a)
            BETWEEN
    for i, j in T.grid(4, 37):
        with T.sblock("total"):
            v_i, v_j = T.axis.remap("SR", [i, j])
            with T.init():
                total[v_i] = T.float32(0)
            total[v_i] = total[v_i] + T.exp(SECOND - top[v_i])
"""
"""A cascade, and a block between its reductions; the test says by what names they use memory."""

VIEW, BY_VIEW, OWN = 'view = T.decl_buffer((148,), "float32", data={}.data)', "view[v_i * 37 + v_j]", "x[v_i, v_j]"
MATCHED = """T.reads()
            T.writes(x[v_a, 2:6])
            part = T.match_buffer(x[v_a, 2:6], (4,), "float32", offset_factor=1)
            part[0] = T.float32(-5)
            part[3] = T.float32(3)"""
GIVEN = """T.reads()
            T.writes({})
            T.evaluate(T.call_extern("int32", "memset", {}, 0, 16))"""
CALLED = 'T.call_extern("float32", "modff", T.float32(-5.5), T.address_of(x[v_a, 0]))'
INSIDE = GIVEN.format("top[v_a]", "top.data").replace("\n", "\n    ")
POINTER = "pointer: T.let = x.data"


def named_again(declared: str, first: str, between: str, second: str) -> tirx.PrimFunc:
    parts = {"DECLARED": declared, "FIRST": first, "BETWEEN": between, "SECOND": second}
    source = NAMED_AGAIN
    for key, part in parts.items():
        source = source.replace(key, part)
    return from_source(source)


ONE_MEMORY = {
    "written by a view": (VIEW.format("x"), OWN, "view[v_a * 37] = T.float32(-5)", OWN),
    "read by a view": (VIEW.format("x"), BY_VIEW, "x[v_a, 0] = T.float32(-5)", BY_VIEW),
    "read by both names": (VIEW.format("x"), OWN, "x[v_a, 0] = T.float32(-5)", BY_VIEW),
    "a view of a temporary": (VIEW.format("c"), "c[v_i, v_j]", "view[v_a * 37] = T.float32(-5)", "c[v_i, v_j]"),
    "a view by a pointer": (f"{POINTER}\n    {VIEW.format('x')}".replace("x.data)", "pointer)"), OWN,
                            "view[v_a * 37] = T.float32(-5)", OWN),
    "a part that is matched": ("", OWN, MATCHED, OWN),
    "an element's address": ("", OWN, GIVEN.format("x[v_a, 0:4]", "T.address_of(x[v_a, 0])"), OWN),
    "an address without regions": ("", OWN, GIVEN.format("", "T.address_of(x[v_a, 0])"), OWN),
    "the data": ("", OWN, GIVEN.format("x[0, 0:4]", "x.data"), OWN),
    "the data of a result": ("", OWN, GIVEN.format("top[0:4]", "top.data"), OWN),
    "the data of a result, in a block in a block": ("", OWN, f'with T.sblock("inner"):\n                {INSIDE}', OWN),
    "the address of a result": ("", OWN, GIVEN.format("top[v_a]", "T.address_of(top[0])"), OWN),
    "a result by access_ptr": ("", OWN, GIVEN.format("top[0:4]", 'top.access_ptr("w")'), OWN),
    "a pointer": (POINTER, OWN, GIVEN.format("x[0, 0:4]", "pointer"), OWN),
    "a call in a store": ("", OWN, f"side[v_a] = {CALLED}", OWN),
}  # fmt: skip


@T.prim_func(s_tir=True)
def softmax_in_place(x: T.Buffer((4, 37), "float32")):
    top = T.sblock_alloc_buffer((4,))
    total = T.sblock_alloc_buffer((4,))
    for i, j in T.grid(4, 37):
        with T.sblock("top"):
            v_i, v_j = T.axis.remap("SR", [i, j])
            with T.init():
                top[v_i] = T.min_value("float32")
            top[v_i] = T.max(top[v_i], x[v_i, v_j])
    for i, j in T.grid(4, 37):
        with T.sblock("total"):
            v_i, v_j = T.axis.remap("SR", [i, j])
            with T.init():
                total[v_i] = T.float32(0)
            total[v_i] = total[v_i] + T.exp(x[v_i, v_j] - top[v_i])
    for i, j in T.grid(4, 37):
        with T.sblock("norm"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            x[v_i, v_j] = T.exp(x[v_i, v_j] - top[v_i]) / total[v_i]


@T.prim_func(s_tir=True)
def keys_appended(
    at: T.int64,
    key: T.Buffer((8,), "float32"),
    keys: T.Buffer((37, 8), "float32"),
    query: T.Buffer((8,), "float32"),
    total: T.Buffer((1,), "float32"),
):
    """One row of the keys is new, all others are the caller's."""
    scores = T.sblock_alloc_buffer((37,))
    top = T.sblock_alloc_buffer((1,))
    for d in range(8):
        with T.sblock("append"):
            v_d = T.axis.spatial(8, d)
            keys[at, v_d] = key[v_d]
    for j, d in T.grid(37, 8):
        with T.sblock("scores"):
            v_j, v_d = T.axis.remap("SR", [j, d])
            with T.init():
                scores[v_j] = T.float32(0)
            scores[v_j] = scores[v_j] + query[v_d] * keys[v_j, v_d]
    for i, j in T.grid(1, 37):
        with T.sblock("top"):
            v_i, v_j = T.axis.remap("SR", [i, j])
            with T.init():
                top[v_i] = T.min_value("float32")
            top[v_i] = T.max(top[v_i], scores[v_j])
    for i, j in T.grid(1, 37):
        with T.sblock("total"):
            v_i, v_j = T.axis.remap("SR", [i, j])
            with T.init():
                total[v_i] = T.float32(0)
            total[v_i] = total[v_i] + T.exp(scores[v_j] - top[v_i])


@T.prim_func(s_tir=True)
def scale_replaced(x: T.Buffer((4, 37), "float32"), scale: T.Buffer((4,), "float32"), total: T.Buffer((4,), "float32")):
    """The scale that is read is the caller's; the one that is left behind is the new one."""
    scaled = T.sblock_alloc_buffer((4, 37))
    top = T.sblock_alloc_buffer((4,))
    for i, j in T.grid(4, 37):
        with T.sblock("scaled"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            scaled[v_i, v_j] = x[v_i, v_j] * scale[v_i]
    for i, j in T.grid(4, 37):
        with T.sblock("top"):
            v_i, v_j = T.axis.remap("SR", [i, j])
            with T.init():
                top[v_i] = T.min_value("float32")
            top[v_i] = T.max(top[v_i], scaled[v_i, v_j])
    for i, j in T.grid(4, 37):
        with T.sblock("total"):
            v_i, v_j = T.axis.remap("SR", [i, j])
            with T.init():
                total[v_i] = T.float32(0)
            total[v_i] = total[v_i] + T.exp(scaled[v_i, v_j] - top[v_i])
    for i in range(4):
        with T.sblock("replace"):
            v_i = T.axis.spatial(4, i)
            scale[v_i] = top[v_i]


@T.prim_func(s_tir=True)
def scale_replaced_between(
    x: T.Buffer((4, 37), "float32"), scale: T.Buffer((4,), "float32"), total: T.Buffer((4,), "float32")
):
    """The maximum is taken under the old scale, the sum under the new one: no loop reads both."""
    top = T.sblock_alloc_buffer((4,))
    for i, j in T.grid(4, 37):
        with T.sblock("top"):
            v_i, v_j = T.axis.remap("SR", [i, j])
            with T.init():
                top[v_i] = T.min_value("float32")
            top[v_i] = T.max(top[v_i], x[v_i, v_j] + scale[v_i])
    for i in range(4):
        with T.sblock("replace"):
            v_i = T.axis.spatial(4, i)
            scale[v_i] = T.float32(2)
    for i, j in T.grid(4, 37):
        with T.sblock("total"):
            v_i, v_j = T.axis.remap("SR", [i, j])
            with T.init():
                total[v_i] = T.float32(0)
            total[v_i] = total[v_i] + T.exp(x[v_i, v_j] + scale[v_i] - top[v_i])


@pytest.mark.parametrize("schedule", [True, False])
@pytest.mark.parametrize("func", [softmax_in_place, keys_appended, scale_replaced], ids=lambda f: f.__name__)
def test_a_cascade_fuses_beside_a_block_that_writes_over_what_is_read(func: tirx.PrimFunc, schedule: bool) -> None:
    compiled = tvm_cascade.compile(func, force=True, schedule=schedule)
    assert [group.reason.code for group in compiled.report.groups] == ["fold", "overwritten"]
    assert_same_after(compiled, func, drawn(func, at=AT), length=LENGTH)


def test_a_block_that_must_come_between_two_of_a_cascade_keeps_them_apart() -> None:
    outcome = fuse_function(scale_replaced_between, FuseOptions(force=True))
    assert outcome.func.same_as(scale_replaced_between)
    assert {decision.reason.code for decision in outcome.decisions} == {"overwritten"}
    assert "total needs scale: block replace writes scale after it was read" in outcome.decisions[0].reason.detail


def test_such_a_function_compiles_for_a_gpu_too() -> None:
    compiled = tvm_cascade.compile(keys_appended, {"kind": "cuda", "arch": "sm_90a"})
    assert compiled.report.fused


@pytest.mark.parametrize("way", ["written by a view", "a view by a pointer", "a pointer"])
def test_no_kernel_is_cut_off_from_a_name_that_it_uses(way: str) -> None:
    compiled = tvm_cascade.compile(named_again(*ONE_MEMORY[way]), {"kind": "cuda", "arch": "sm_90a"})
    assert not compiled.report.fused
    assert len(compiled.mod.functions) == 1


@pytest.mark.parametrize("way", ONE_MEMORY)
def test_memory_has_one_order_whatever_it_is_called(way: str) -> None:
    func = named_again(*ONE_MEMORY[way])
    outcome = fuse_function(func, FuseOptions(force=True))
    assert outcome.func.same_as(func)
    assert {decision.reason.code for decision in outcome.decisions} <= {"extern", "overwritten", "opaque_block"}
    assert_same_after(tvm_cascade.compile(func, force=True), func, drawn(func), length=LENGTH)


@pytest.mark.parametrize(
    "way",
    [
        (VIEW.format("x"), OWN, "side[v_a] = x[v_a, 0]", BY_VIEW),
        (VIEW.format("c"), OWN, "view[v_a * 37] = T.float32(-5)", OWN),
        ("", OWN, GIVEN.format("side[0:4]", "side.data"), OWN),
    ],
    ids=["a view of what nobody writes", "a view of other memory", "the address of other memory"],
)
def test_other_names_of_memory_that_is_not_in_between_do_no_harm(way: tuple[str, str, str, str]) -> None:
    func = named_again(*way)
    compiled = tvm_cascade.compile(func, force=True)
    assert compiled.report.fused
    assert_same_after(compiled, func, drawn(func), length=LENGTH)
