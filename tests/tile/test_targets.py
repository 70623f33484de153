"""CUDA targets: which architecture is meant, what a GPU asks of the pass, and how TVM is asked to compile."""

from __future__ import annotations

import pytest
import tvm
from tvm.s_tir import dlight
from tvm.target import Target

import tvm_cascade
from tvm_cascade.devices.cards import H200
from tvm_cascade.driver.backend import Goal
from tvm_cascade.driver.gpu import gpu_options, lower_gpu
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.errors import InputError
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.skeleton import Kernel
from tvm_cascade.transform.fuse_function import fuse_function

from .test_tile_program import attention_of


def test_what_a_user_names_is_meant_and_what_a_device_reports_is_all_that_it_has() -> None:
    for arch in ("sm_80", "sm_90", "sm_90a", "sm_120"):
        for stated in (arch, {"kind": "cuda", "arch": arch}):
            target = resolve_target(stated)
            assert target.attrs["arch"] == arch and target.host.kind.name == "llvm"
            assert resolve_target(target).attrs["arch"] == arch
    assert resolve_target(Target({"kind": "cuda", "arch": "sm_90"})).attrs["arch"] == "sm_90a"


@pytest.mark.parametrize("arch", ["sm_42", "sm_80a", "sm_90f", "sm_9999"])
def test_an_architecture_that_no_card_has(arch: str) -> None:
    with pytest.raises(InputError, match=f"(?s)architecture of a card.*{arch}.*sm_90a"):
        resolve_target({"kind": "cuda", "arch": arch})


@pytest.mark.skipif(tvm.cuda(0).exist, reason="there is a GPU to ask")
def test_without_a_gpu_the_architecture_has_to_be_named() -> None:
    with pytest.raises(InputError, match="the architecture to compile for"):
        tvm_cascade.compile(attention_of("full"), target="cuda")


def test_a_gpu_splits_rows_by_its_threads() -> None:
    options = gpu_options(FuseOptions(segments=3, lanes=4))
    assert options.segments == 1 and options.lanes == 1


@pytest.mark.parametrize("tensor_cores", [True, False], ids=["a kernel of a skeleton", "an S-TIR schedule"])
def test_dlight_leaves_our_kernels_as_they_are(tensor_cores: bool) -> None:
    """It knows of no asynchronous copies, and raises where it meets one."""
    target, options = (
        resolve_target({"kind": "cuda", "arch": "sm_90a"}),
        gpu_options(FuseOptions(tensor_cores=tensor_cores)),
    )
    with target:
        lowered = lower_gpu(fuse_function(attention_of("full"), options, H200), "main", Goal(target, H200, options))
        mod = tvm.IRModule({"main": lowered.func})
        after = dlight.ApplyDefaultSchedule(dlight.gpu.Reduction(), dlight.gpu.Fallback())(mod)
    assert isinstance(lowered.chosen, Kernel) == tensor_cores
    assert after["main"].same_as(lowered.func)
