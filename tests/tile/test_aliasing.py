"""Kernels that choose between an array which they write and another one are not compiled as without aliases."""

import re

import tvm
from tvm.script import tirx as T

import tvm_cascade
from tvm_cascade.tile.launch.pipeline import chooses_from_written

CARD = {"kind": "cuda", "arch": "sm_90a"}


@T.prim_func(s_tir=True)
def best_and_place(
    x: T.Buffer((64, 100), "float32"), best: T.Buffer((64,), "float32"), place: T.Buffer((64,), "int32")
):
    for i, k in T.grid(64, 100):
        with T.sblock("best"):
            vi, vl = T.axis.remap("SR", [i, k])
            T.reads(x[vi, vl])
            T.writes(best[vi], place[vi])
            with T.init():
                best[vi] = T.min_value("float32")
                place[vi] = -1
            taken: T.let[T.bool] = best[vi] >= x[vi, vl]
            best_next: T.let[T.float32] = T.Select(taken, best[vi], x[vi, vl])
            place_next: T.let[T.int32] = T.Select(taken, place[vi], vl)
            best[vi] = best_next
            place[vi] = place_next


@T.prim_func(s_tir=True)
def doubled(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
    for i in T.serial(64):
        with T.sblock("doubled"):
            vi = T.axis.spatial(64, i)
            y[vi] = T.if_then_else(x[vi] > T.float32(0.0), x[vi] * T.float32(2.0), T.float32(0.0))


def kernels_of(func: tvm.tirx.PrimFunc) -> dict[str, str]:
    """Kernel name → its parameters in the CUDA text."""
    built = tvm_cascade.compile(func, CARD, row_kernels=False, tensor_cores=False)
    (device,) = built.runtime_module.mod.imports
    return dict(re.findall(r"__launch_bounds__\(\d+\) (\w+)\((.*?)\) {", device.inspect_source()))


def test_choice_between_written_and_read_array_has_no_restrict() -> None:
    assert any("__restrict__" not in parameters for parameters in kernels_of(best_and_place).values())


def test_kernel_that_only_writes_is_restrict() -> None:
    assert all("__restrict__" in parameters for parameters in kernels_of(doubled).values())


@T.prim_func(s_tir=True)
def kernel(p: T.handle("float32", "global"), q: T.handle("float32", "global"), k: T.handle("float32", "global")):
    P = T.decl_buffer((8,), data=p)
    Q = T.decl_buffer((8,), data=q)
    K = T.decl_buffer((8,), data=k)
    for i in range(8):
        P[i] = T.float32(0.0)
        P[i] = T.if_then_else(K[i] > T.float32(0.0), P[i], Q[i])


@T.prim_func(s_tir=True)
def kernel_of_constants(p: T.handle("float32", "global"), k: T.handle("float32", "global")):
    P = T.decl_buffer((8,), data=p)
    K = T.decl_buffer((8,), data=k)
    for i in range(8):
        P[i] = T.if_then_else(K[i] > T.float32(0.0), P[i], T.float32(0.0))


def test_only_choices_between_two_arrays_count() -> None:
    assert chooses_from_written(kernel)
    assert not chooses_from_written(kernel_of_constants)
