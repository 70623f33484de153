"""Cold times on a GPU: runs behind a kernel that reads as much as the L2 cache holds, and more.

    reading alone            |launch|  read  |
    a design behind it       |launch|  read  | design |        the difference is what the design takes on the device

What is read is never written, so that nothing has to go back to memory while the design runs; and while the device
reads, the host starts the design, so that its time to do so does not count. The benchmarks take times of that meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import tvm
from tvm import te, tirx
from tvm.target import Target

from tvm_cascade.devices.device import Gpu
from tvm_cascade.driver.gpu import SCHEDULED
from tvm_cascade.driver.lowering import fused, goal_of, lowered
from tvm_cascade.options import FuseOptions

READ = "read_through"
"""The function of each library beside that of a design."""

_CACHES = 3
"""Of the L2 cache, what is read: 40 µs on an H200, in which the host starts the kernels of any plan."""

_COLUMNS = 4096


def behind(name: str) -> str:
    """The name of a function behind the reading one, whose arguments come first."""
    return f"{name}_cold"


def shape_of(gpu: Gpu) -> tuple[int, int]:
    """Of the float32 that are read."""
    return _CACHES * gpu.l2_bytes // (4 * _COLUMNS), _COLUMNS


def with_cold(mod: tvm.IRModule, name: str, gpu: Gpu, reading: Mapping[str, tirx.PrimFunc]) -> tvm.IRModule:
    """A lowered module, with functions that read, and its own one behind them."""
    rows, columns = shape_of(gpu)
    read, largest = (
        tirx.decl_buffer(shape, "float32", name=told, layout=None)
        for told, shape in (("read", (rows, columns)), ("largest", (rows,)))
    )
    params = list(mod[name].params)
    calls = [tirx.call_cpacked(READ, read, largest), tirx.call_cpacked(name, *params)]
    body = tirx.SeqStmt([tirx.Evaluate(call) for call in calls])
    both = tirx.PrimFunc([read, largest, *params], body).with_attr("global_symbol", behind(name))
    cold = mod.clone()
    for called, func in {**reading, behind(name): both.with_attr(SCHEDULED, True)}.items():
        cold[called] = func
    return cold


@lru_cache(maxsize=4)
def reading(target: Target) -> Mapping[str, tirx.PrimFunc]:
    """The lowered functions that read on a GPU, by name."""
    goal = goal_of(target, FuseOptions())
    assert isinstance(goal.device, Gpu)
    read = te.placeholder(shape_of(goal.device), "float32", "read")
    column = te.reduce_axis((0, _COLUMNS), "column")
    largest = te.compute(read.shape[:1], lambda row: te.max(read[row, column], axis=column), name="largest")
    func = te.create_prim_func([read, largest]).with_attr("global_symbol", READ)
    ((_, made),) = lowered(fused({READ: func}, goal), goal).values()
    return {READ: made.func, **made.steps}
