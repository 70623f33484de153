"""Nests whose iterations depend on each other stay serial, on CPUs and GPUs, beside others that do not."""

from __future__ import annotations

import numpy as np
import pytest
import tvm_ffi
from tvm import s_tir, te, tirx, topi
from tvm.script import tirx as T

import tvm_cascade
from tvm_cascade.analysis.order import independent
from tvm_cascade.driver.compilation import compile_unfused
from tvm_cascade.schedule import nest_schedule

from ..transform.running import after, assert_same_after, drawn

CUDA = {"kind": "cuda", "arch": "sm_90a"}


@T.prim_func(s_tir=True)
def overlapping(a: T.Buffer((4096, 16), "float32"), o: T.Buffer((512, 16), "float32")) -> None:
    for i, j in T.grid(4096, 16):
        with T.sblock("o"):
            vi, vj = T.axis.remap("SS", [i, j])
            o[vi // 8, vj] = a[vi, vj]


@T.prim_func(s_tir=True)
def last_one_wins(a: T.Buffer((4096, 16), "float32"), o: T.Buffer((16,), "float32")) -> None:
    for i, j in T.grid(4096, 16):
        with T.sblock("o"):
            vi, vj = T.axis.remap("SS", [i, j])
            o[vj] = a[vi, vj]


@T.prim_func(s_tir=True)
def scattered(a: T.Buffer((4096,), "float32"), at: T.Buffer((4096,), "int32"), o: T.Buffer((4,), "float32")) -> None:
    for i in range(4096):
        with T.sblock("o"):
            vi = T.axis.spatial(4096, i)
            o[at[vi] % 4] = a[vi]


@T.prim_func(s_tir=True)
def cumulative(a: T.Buffer((4096,), "float32"), o: T.Buffer((4097,), "float32")) -> None:
    for i in range(4096):
        with T.sblock("o"):
            vi = T.axis.spatial(4096, i)
            o[vi + 1] = o[vi] + a[vi]


@T.prim_func(s_tir=True)
def started_elsewhere(a: T.Buffer((64, 64), "float32"), o: T.Buffer((64, 64), "float32")) -> None:
    for i, j, k in T.grid(64, 64, 64):
        with T.sblock("o"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                o[vi, vj] = T.float32(0)
            o[vj, vi] = o[vj, vi] + a[vi, vk] * a[vk, vj]


@T.prim_func(s_tir=True)
def moved_along_its_axis(a: T.Buffer((64, 64), "float32"), o: T.Buffer((64, 64), "float32")) -> None:
    for i, k in T.grid(64, 64):
        with T.sblock("o"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                o[vi, vk] = T.float32(0)
            o[vi, vk] = o[vi, vk] + a[vi, vk]


@T.prim_func(s_tir=True)
def counted(a: T.Buffer((64, 16), "float32"), o: T.Buffer((64, 16), "float32")) -> None:
    for i, j in T.grid(64, 16):
        with T.sblock("o"):
            vi, vj = T.axis.remap("SS", [i, j])
            o[vi, vj] = T.call_extern("float32", "fabsf", a[vi, vj])


@T.prim_func(s_tir=True)
def reshaped(a: T.Buffer((64, 16), "float32"), o: T.Buffer((32, 32), "float32")) -> None:
    for i, j in T.grid(64, 16):
        with T.sblock("o"):
            vi, vj = T.axis.remap("SS", [i, j])
            o[(vi * 16 + vj) // 32, (vi * 16 + vj) % 32] = a[vi, vj]


@T.prim_func(s_tir=True)
def second_half(a: T.Buffer((64, 16), "float32"), o: T.Buffer((128, 16), "float32")) -> None:
    for i, j in T.grid(64, 16):
        with T.sblock("o"):
            vi, vj = T.axis.remap("SS", [i, j])
            o[64 + vi, vj] = a[63 - vi, vj]


@T.prim_func(s_tir=True)
def product(a: T.Buffer((64, 64), "float32"), o: T.Buffer((64, 64), "float32")) -> None:
    for i, j, k in T.grid(64, 64, 64):
        with T.sblock("o"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                o[vi, vj] = T.float32(0)
            o[vi, vj] = o[vi, vj] + a[vi, vk] * a[vk, vj]


DEPENDENT = (overlapping, last_one_wins, scattered, cumulative, started_elsewhere, moved_along_its_axis, counted)
INDEPENDENT = (reshaped, second_half, product)


def name_of(func: tirx.PrimFunc) -> str:
    return str(func.attrs["global_symbol"])


def the_block(func: tirx.PrimFunc) -> s_tir.SBlock:
    found: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(func.body.block.body, (s_tir.SBlock, found.append))
    return found[0]


def kinds_of_loops(func: tirx.PrimFunc) -> set[tirx.ForKind]:
    found: list[tirx.For] = []
    tvm_ffi.structural_walk(func.body, (tirx.For, found.append))
    return {loop.kind for loop in found}


@pytest.fixture
def shared_however_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops are tasks however little they do."""
    monkeypatch.setattr(nest_schedule, "TASKS_FROM", 0)


@pytest.mark.usefixtures("shared_however_short")
@pytest.mark.parametrize("func", DEPENDENT, ids=name_of)
def test_what_is_not_shown_to_be_independent_stays_serial(func: tirx.PrimFunc) -> None:
    assert not independent(the_block(func))
    compiled = compile_unfused(func)
    assert kinds_of_loops(compiled.mod[name_of(func)]) == {tirx.ForKind.SERIAL}
    given = [np.arange(4096, dtype="int32") if a.dtype == "int32" else a for a in drawn(func)]
    assert_same_after(compiled[name_of(func)], func, given, 64)


@pytest.mark.usefixtures("shared_however_short")
@pytest.mark.parametrize("func", INDEPENDENT, ids=name_of)
def test_what_stores_to_elements_of_its_own_is_parallel(func: tirx.PrimFunc) -> None:
    assert independent(the_block(func))
    compiled = compile_unfused(func)
    assert tirx.ForKind.PARALLEL in kinds_of_loops(compiled.mod[name_of(func)])
    assert_same_after(compiled[name_of(func)], func, drawn(func), 64)


@pytest.mark.parametrize("func", [overlapping, last_one_wins], ids=name_of)
def test_one_thread_of_a_gpu_runs_a_nest_that_must_stay_serial(func: tirx.PrimFunc) -> None:
    lowered = compile_unfused(func, CUDA).mod[name_of(func)]
    found: list[tirx.For] = []
    tvm_ffi.structural_walk(lowered.body, (tirx.For, found.append))
    assert [int(loop.extent) for loop in found if loop.thread_binding is not None] == [1, 1]


def softmax_beside(overwrite: bool) -> tirx.PrimFunc:
    x = te.placeholder((8, 33), "float32", name="x")
    beside = topi.topk(x, k=4, axis=1, ret_type="values") if overwrite else topi.sort(x, axis=1)
    return te.create_prim_func([x, topi.nn.softmax(x), beside])


@pytest.mark.parametrize("overwrite", [True, False], ids=["topk", "sort"])
def test_inputs_of_an_external_call_beside_a_cascade_are_left_alone(overwrite: bool) -> None:
    func = softmax_beside(overwrite).with_attr("global_symbol", "main")
    given = drawn(func)
    compiled = tvm_cascade.compile(func, force=True)
    assert compiled.report.fused
    np.testing.assert_array_equal(after(compiled["main"], given)[0], given[0])
    assert_same_after(compiled["main"], func, given, 33)
