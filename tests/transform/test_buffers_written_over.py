"""Buffers that stand for several values in turn: what is read between two writes stays between them."""

from __future__ import annotations

from typing import Any

import pytest
from numpy.typing import NDArray
from tvm import tirx
from tvm.script import tirx as T

import tvm_cascade
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_function import fuse_function

from .running import assert_same_after, drawn

Array = NDArray[Any]
ROWS, LENGTH, FEATURES, AT = 4, 37, 8, 5


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
