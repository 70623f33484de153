"""Devices: what a target says of a CPU, and which row a GPU gets."""

from __future__ import annotations

import dataclasses

import pytest
from tvm import tirx
from tvm.target import Target

from tvm_cascade.devices import cards
from tvm_cascade.devices.device import Cpu, Gpu, Instructions
from tvm_cascade.devices.read import ANY_CPU, cpu_of, device_of, given_target


@pytest.mark.parametrize(
    ("mcpu", "lanes", "registers"), [("skylake-avx512", 16, 32), ("haswell", 8, 16), ("nehalem", 4, 16)]
)
def test_a_cpu_has_the_vectors_of_its_features(mcpu: str, lanes: int, registers: int) -> None:
    cpu = cpu_of(Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": mcpu, "num-cores": 3}))
    assert (cpu.name, cpu.cores, cpu.lanes("float32"), cpu.vector_registers) == (mcpu, 3, lanes, registers)


@pytest.mark.parametrize(("mcpu", "l2_kib", "cached"), [("znver4", 1024, 32e6), ("skylake-avx512", 2048, 200e6)])
def test_a_cpu_has_the_caches_of_its_row(mcpu: str, l2_kib: int, cached: float) -> None:
    """One without a row has those of any CPU."""
    cpu = cpu_of(Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": mcpu}))
    assert (cpu.l2_bytes, cpu.cached_bytes) == (l2_kib * 1024, cached)


def test_a_target_that_says_nothing_is_one_core() -> None:
    assert device_of(Target("c")) == ANY_CPU and ANY_CPU.cores == 1


@pytest.mark.parametrize(("arch", "card"), [("sm_90a", cards.H200), ("sm_90", cards.HOPPER), ("sm_120", cards.RTX5090)])
def test_the_first_card_of_an_architecture_stands_for_it(arch: str, card: Gpu) -> None:
    """Without the suffix of Hopper's own instructions its code has those of all cards since."""
    assert device_of(Target({"kind": "cuda", "arch": arch})) == card


def test_a_model_names_another_card_of_the_architecture() -> None:
    assert device_of(Target({"kind": "cuda", "arch": "sm_90a", "model": cards.H100.name})) == cards.H100


def test_a_card_without_a_row_is_any_of_its_kind() -> None:
    found = device_of(Target({"kind": "cuda", "arch": "sm_61"}))
    assert found == dataclasses.replace(cards.ANY_CUDA, arch="sm_61")
    assert isinstance(found, Gpu) and Instructions.WGMMA not in found.instructions and not found.has_clusters


def test_a_target_restricts_the_card_s_blocks() -> None:
    """TVM's own tags give the memory that a block may declare, of which it may ask for more at launch."""
    target = {"kind": "cuda", "arch": "sm_90a", "max_num_threads": 128, "max_shared_memory_per_block": 32768}
    found = device_of(Target(target))
    assert found == dataclasses.replace(cards.H200, max_threads=128, static_shared_bytes=32768)
    assert device_of(Target("nvidia/nvidia-h100")) == cards.H200


def test_a_gpu_of_a_kind_that_nothing_is_known_of_is_no_cpu() -> None:
    assert isinstance(device_of(Target("opencl")), Gpu)
    assert isinstance(device_of(Target("llvm")), Cpu)


def test_a_function_s_own_target_comes_before_the_current_one() -> None:
    own, current = Target("llvm"), Target({"kind": "cuda", "arch": "sm_90a"})
    func = tirx.PrimFunc([], tirx.Evaluate(0))
    assert given_target(func) is None
    with current:
        assert given_target(func).same_as(current)
        assert given_target(func.with_attr("target", own)).same_as(own)
