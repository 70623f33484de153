"""The times of a kernel's levels: what the function moves, at the card's rates, and never more than the estimate."""

from __future__ import annotations

import json
from functools import cache

import pytest
from tvm import te, tirx

import tvm_cascade
from tvm_cascade.devices.device import Gpu
from tvm_cascade.devices.read import device_of
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.report.group import StepReport
from tvm_cascade.te import attention, softmax

HOPPER = {"kind": "cuda", "arch": "sm_90a"}


def tensors(names: str, *shape: int) -> list[te.Tensor]:
    return [te.placeholder(shape, "float16", name=name) for name in names]


def softmax_of_rows() -> tirx.PrimFunc:
    (x,) = tensors("x", 8192, 4096)
    return te.create_prim_func([x, softmax(x)])


def self_attention() -> tirx.PrimFunc:
    q, k, v = tensors("qkv", 4, 16, 2048, 128)
    return te.create_prim_func([q, k, v, attention(q, k, v)])


def decoding() -> tirx.PrimFunc:
    (q,), (k, v) = tensors("q", 16, 32, 1, 128), tensors("kv", 16, 8, 8192, 128)
    return te.create_prim_func([q, k, v, attention(q, k, v)])


def product() -> tirx.PrimFunc:
    a, b = tensors("ab", 4096, 4096)
    k = te.reduce_axis((0, 4096), "k")
    c = te.compute((4096, 4096), lambda i, j: te.sum((a[i, k] * b[k, j]).astype("float16"), axis=k), name="c")
    return te.create_prim_func([a, b, c])


PROGRAMS = {one.__name__: one for one in (softmax_of_rows, self_attention, decoding, product)}
BOUND_BY = {
    "softmax_of_rows": "memory",
    "self_attention": "tensor cores",
    "decoding": "memory",
    "product": "tensor cores",
}


@cache
def only_step(name: str) -> StepReport:
    explained = tvm_cascade.explain(PROGRAMS[name](), target=HOPPER)
    ((step,),) = (function.plan for function in explained.functions)
    told = json.loads(explained.to_json())["functions"][0]["plan"][0]["levels"]
    assert [(one["name"], one["microseconds"]) for one in told] == [(one.name, one.microseconds) for one in step.levels]
    for line in step.by_level:
        assert f"    {line}" in str(explained)
    return step


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_longest_level_is_what_bounds_the_kernel(name: str) -> None:
    step = only_step(name)
    longest = max(step.levels, key=lambda one: one.microseconds)
    assert longest.name == BOUND_BY[name]
    assert 0.5 * step.microseconds < longest.microseconds <= step.microseconds


@pytest.mark.parametrize("name", PROGRAMS)
def test_memory_is_told_by_the_bytes_of_the_step_and_the_rate_of_the_card(name: str) -> None:
    step = only_step(name)
    memory = step.levels[0]
    assert memory.name == "memory" and abs(memory.amount - step.bytes) < 0.01 * step.bytes
    card = device_of(resolve_target(HOPPER))
    assert isinstance(card, Gpu)
    on_paper = memory.amount / card.memory_bytes_per_second * 1e6
    assert on_paper <= memory.microseconds <= 1.5 * on_paper
