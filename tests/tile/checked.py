"""Kernels of the tile layer against the float64 oracle, run by the emulator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import tirx

from corpus.programs.attention import VARIANTS, attention
from corpus.workload import Workload
from tvm_cascade.analysis.extract import Group, Reductions
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.reading import read_program
from tvm_cascade.devices.cards import H200
from tvm_cascade.devices.device import Gpu
from tvm_cascade.evaluate.oracle import evaluate
from tvm_cascade.evaluate.tolerance import check
from tvm_cascade.obligations.derive import RESCALABLE_CASTS
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.skeleton import Kernel, Setting, build_kernel
from tvm_cascade.tile.skeletons.stream.config import StreamConfig
from tvm_cascade.tile.skeletons.stream.skeleton import StreamSkeleton

from .emulator.run import Array, emulate


def attention_case(variant: str, dtype: str = "float16", **extents: int) -> Workload:
    """An attention at a shape; its extents are those of `corpus.programs.attention`."""
    shape = {"heads": 1, "queries": 130, "keys": 200, "head_dim": 64, **extents}
    return Workload(variant, "attention", "tests", shape, dtype, "float32", attention(VARIANTS[variant]), ("keys",))


def kernel_of(
    func: tirx.PrimFunc,
    config: StreamConfig | None = None,
    casts: Sequence[str] = RESCALABLE_CASTS,
    narrow_sums: bool = False,
    skeleton: StreamSkeleton | None = None,
    gpu: Gpu = H200,
) -> Kernel:
    """The kernel of a function whose last group it is."""
    program = read_program(func)
    groups = [found.group for found in Reductions(program, casts).cascades() if found.group] or Reductions(program).lone
    return stream_kernel(program, groups[-1], config, narrow_sums, skeleton, gpu)


def stream_kernel(
    program: Program,
    group: Group,
    config: StreamConfig | None = None,
    narrow_sums: bool = False,
    skeleton: StreamSkeleton | None = None,
    gpu: Gpu = H200,
) -> Kernel:
    """The kernel of a group for tensor cores, of the stream skeleton or of one derived from it."""
    setting = Setting(gpu, FuseOptions(narrow_sums=narrow_sums))
    return build_kernel(skeleton or StreamSkeleton(), program, group, "main", setting, config)


def assert_right(
    func: tirx.PrimFunc,
    inputs: Sequence[Array],
    config: StreamConfig | None = None,
    *,
    length: int,
    unfused: tirx.PrimFunc | None = None,
    compiled: tirx.PrimFunc | None = None,
    casts: Sequence[str] = RESCALABLE_CASTS,
    narrow_sums: bool = False,
    skeleton: StreamSkeleton | None = None,
    together: bool = False,
) -> None:
    """The kernel's outputs are as near to the oracle's as tolerance.py asks.

    Parameters
    ----------
    unfused : the program with its weights rounded as the kernel has to round them, where outputs are wider than that.
    compiled : the same program with symbolic extents.
    casts, narrow_sums : options `rescalable_casts` and `narrow_sums`.
    skeleton : see `stream_kernel`.
    together : see `emulate`.
    """
    kernel = kernel_of(compiled or func, config, casts, narrow_sums, skeleton)
    outputs = emulate(kernel.func, inputs, together=together)
    exact = evaluate(func, inputs)
    usual = evaluate(unfused or func, inputs, rounding=True)
    for got, (name, expected) in zip(outputs, exact.items(), strict=True):
        found = check(got, expected, usual[name], length=length, dtype=str(got.dtype))
        assert found.ok, f"{name}: {found.message}"


def assert_attention_right(
    case: Workload, config: StreamConfig | None = None, kind: str = "normal", skeleton: StreamSkeleton | None = None
) -> None:
    """`assert_right` of an attention over data of a kind."""
    inputs: list[Any] = case.inputs(np.random.default_rng(0), kind)
    assert_right(case.build(), inputs, config, length=case.shape["keys"], skeleton=skeleton)
