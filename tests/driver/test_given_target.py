"""What is built and explained is for the target that is given, whatever TVM's current one is."""

from __future__ import annotations

import contextlib

import pytest
import tvm
import tvm_ffi
from tvm import s_tir
from tvm.target import Target
from tvm.tirx.transform import BindTarget

import tvm_cascade
from corpus import workloads
from tvm_cascade.driver.compilation import compile_unfused
from tvm_cascade.driver.targets import resolve_target

CPU = Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "haswell", "num-cores": 2})
GPU = Target({"kind": "cuda", "arch": "sm_90a"})


def program() -> tvm.tirx.PrimFunc:
    """Worth fusing on a CPU, in tiles that a GPU would cut otherwise."""
    return workloads.get("softmax_stats").cpu.build()


@pytest.mark.parametrize("build", [tvm_cascade.compile, compile_unfused], ids=["fused", "unfused"])
def test_a_program_for_the_cpu_is_the_same_inside_the_scope_of_a_gpu(build) -> None:  # type: ignore[no-untyped-def]
    outside = build(program(), CPU).mod
    with GPU:
        inside = build(program(), CPU).mod
    tvm.ir.assert_structural_equal(inside, outside)


def test_a_program_for_a_gpu_is_the_same_inside_the_scope_of_a_cpu() -> None:
    outside = tvm_cascade.compile(program(), GPU).mod
    with CPU:
        inside = tvm_cascade.compile(program(), GPU).mod
    tvm.ir.assert_structural_equal(inside, outside)


@pytest.mark.parametrize("around", [None, CPU, GPU], ids=["no scope", "CPU scope", "GPU scope"])
@pytest.mark.parametrize("target", [CPU, GPU], ids=["CPU", "GPU"])
def test_explain_tells_of_what_compile_builds(target: Target, around: Target | None) -> None:
    with contextlib.nullcontext() if around is None else around:
        told = tvm_cascade.explain(program(), target)
        built = tvm_cascade.compile(program(), target)
    assert str(told) == str(built.report)


def test_explain_without_a_target_is_of_this_machine_s_cpu() -> None:
    with GPU:
        told = tvm_cascade.explain(program())
    built = tvm_cascade.compile(program()).report
    assert list(map(str, told.groups)) == list(map(str, built.groups)) and told.functions[0].lowering == ""


def test_the_pass_cuts_for_the_function_s_own_target_before_the_current_one() -> None:
    plain, fuse = tvm.IRModule({"main": program()}), s_tir.transform.FuseCascadedReductions(force=True)
    for_cpu = fuse(plain)["main"]
    with GPU:
        for_gpu, own = fuse(plain)["main"], fuse(BindTarget(CPU)(plain))["main"]
    assert not tvm_ffi.structural_equal(for_gpu, for_cpu)
    tvm.ir.assert_structural_equal(own.without_attr("target"), for_cpu)


@pytest.mark.parametrize("tag", ["nvidia/nvidia-h100", "nvidia/nvidia-a100"])
def test_a_tag_states_its_architecture(tag: str) -> None:
    assert resolve_target(tag).attrs["arch"] == Target(tag).attrs["arch"]


@pytest.mark.parametrize(("name", "kind"), [("sm_90a", "cuda"), ("gfx942", "rocm")])
def test_an_architecture_names_a_gpu(name: str, kind: str) -> None:
    target = resolve_target(name)
    assert target.kind.name == kind and name in (target.attrs.get("arch"), target.attrs.get("mcpu"))
