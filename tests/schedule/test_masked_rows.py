"""Rows of a block where masks take tiles out: few, if they visit so many fewer tiles."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.target import Target

from corpus import workloads
from tvm_cascade.devices.read import cpu_of
from tvm_cascade.options import FuseOptions
from tvm_cascade.schedule.cpu import schedule_cpu
from tvm_cascade.transform.fuse_function import fuse_function

CORE = cpu_of(Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "skylake-avx512", "num-cores": 1}))


def tasks(name: str, most_rows: int | None = None) -> int:
    """The extent of the parallel loop of attention over 1024 positions of one head."""
    func = workloads.get(name).build(heads=1, queries=1024, keys=1024, head_dim=64)
    fused = fuse_function(func, FuseOptions(), CORE).func
    schedule = s_tir.Schedule(tvm.ir.load_json(tvm.ir.save_json(tvm.IRModule({"main": fused}))))
    schedule_cpu(schedule, CORE, most_rows)
    found: list[tirx.For] = []
    tvm_ffi.structural_walk(schedule.mod["main"].body, (tirx.For, found.append))
    (extent,) = (int(loop.extent) for loop in found if loop.kind == tirx.ForKind.PARALLEL)
    return extent


def test_blocks_of_a_narrow_window_have_fewer_rows() -> None:
    """A block of 32 rows visits five tiles of 32 positions, and one of 64 rows six; without a mask all visit all."""
    assert (tasks("attention_window"), tasks("attention")) == (1024 // 32, 1024 // 64)


def test_rows_that_are_asked_for_are_taken() -> None:
    assert (tasks("attention_window", 64), tasks("attention", 32)) == (1024 // 64, 1024 // 32)
