"""Cold times on a GPU: runs behind a kernel that reads as much as the L2 cache holds, and more.

    reading alone            |launch|  read  |
    a design behind it       |launch|  read  | design |        the difference is what the design takes on the device

What is read is never written, so that nothing has to go back to memory while the design runs; and while the device
reads, the host starts the design, so that its time to do so does not count. The benchmarks take times of that meaning.
"""

from __future__ import annotations

import tempfile
from functools import lru_cache
from pathlib import Path

import tvm
from tvm import te, tirx
from tvm.target import Target

from tvm_cascade.devices.device import Gpu
from tvm_cascade.driver.backends import backend_of
from tvm_cascade.driver.generation import generate
from tvm_cascade.driver.gpu import SCHEDULED
from tvm_cascade.driver.lowering import fused, goal_of, lowered
from tvm_cascade.options import FuseOptions

READ = "read_through"
"""The function of the library beside those of designs."""

_CACHES = 3
"""Of the L2 cache, what is read: 40 µs on an H200, in which the host starts the kernels of any plan."""

_COLUMNS = 4096


def behind(name: str) -> str:
    """The name of a function behind the reading one, whose arguments come first."""
    return f"{name}_cold"


def shape_of(gpu: Gpu) -> tuple[int, int]:
    """Of the float32 that are read."""
    return _CACHES * gpu.l2_bytes // (4 * _COLUMNS), _COLUMNS


def with_cold(mod: tvm.IRModule, name: str, gpu: Gpu) -> tvm.IRModule:
    """A lowered module, with its function behind the reading one, which it finds in what its library imports."""
    rows, columns = shape_of(gpu)
    read, largest = (
        tirx.decl_buffer(shape, "float32", name=told, layout=None)
        for told, shape in (("read", (rows, columns)), ("largest", (rows,)))
    )
    params = list(mod[name].params)
    calls = [tirx.call_packed(READ, read, largest), tirx.call_cpacked(name, *params)]
    body = tirx.SeqStmt([tirx.Evaluate(call) for call in calls])
    both = tirx.PrimFunc([read, largest, *params], body).with_attr("global_symbol", behind(name))
    cold = mod.clone()
    cold[behind(name)] = both.with_attr(SCHEDULED, True)
    return cold


@lru_cache(maxsize=4)
def reading_library(target: Target) -> bytes:
    goal = goal_of(target, FuseOptions())
    assert isinstance(goal.device, Gpu)
    read = te.placeholder(shape_of(goal.device), "float32", "read")
    column = te.reduce_axis((0, _COLUMNS), "column")
    largest = te.compute(read.shape[:1], lambda row: te.max(read[row, column], axis=column), name="largest")
    func = te.create_prim_func([read, largest]).with_attr("global_symbol", READ)
    ((_, made),) = lowered(fused({READ: func}, goal), goal).values()
    mod = tvm.IRModule({READ: made.func, **made.steps})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "read.so"
        backend_of(target).export(generate(mod, target), mod, target, path)
        return path.read_bytes()
