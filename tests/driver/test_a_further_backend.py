"""A backend is one row: a kind of GPU that the table lacks gets S-TIR schedules through the public functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
import tvm
from tvm.target import Target

import tvm_cascade
from corpus import workloads
from tvm_cascade.devices.host import host_target
from tvm_cascade.driver.backends import BACKENDS
from tvm_cascade.driver.cuda import CUDA
from tvm_cascade.driver.llvm import LLVM
from tvm_cascade.errors import DeviceError, InputError


def with_this_host(target: Target, _stated: Mapping[str, Any]) -> Target:
    return Target(target, host=host_target())


OPENCL = dataclasses.replace(
    CUDA,
    kind="opencl",
    example='{"kind": "opencl"}',
    runtime="opencl",
    resolve=with_this_host,
    generate=LLVM.generate,
    export=LLVM.export,
)


@pytest.fixture
def func() -> tvm.tirx.PrimFunc:
    return workloads.get("softmax_stats").cpu.build()


def test_a_kind_without_a_row_is_named_with_those_that_have_one(func: tvm.tirx.PrimFunc) -> None:
    with pytest.raises(InputError, match=f"(?s)of kind {' or '.join(BACKENDS)}.*opencl") as caught:
        tvm_cascade.compile(func, "opencl")
    assert all(backend.example in str(caught.value) for backend in BACKENDS.values())


def test_a_row_gives_a_kind_its_schedules(func: tvm.tirx.PrimFunc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKENDS, "opencl", OPENCL)
    compiled = tvm_cascade.compile(func, "opencl")
    (told,) = compiled.report.functions
    assert told.status == "fused" and "its kernels are written in PTX" in told.lowering
    assert "__kernel void" in compiled.runtime_module.mod.imports[0].inspect_source()
    assert str(tvm_cascade.explain(func, "opencl")) == str(compiled.report)
    with pytest.raises(DeviceError, match="no OPENCL device here"):
        compiled(*(tvm.runtime.empty(p.shape, p.dtype) for p in compiled.parameters["main"]))
