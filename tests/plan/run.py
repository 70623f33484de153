"""Runs plans on the CPU: kernels of skeletons by the emulator, all else by the oracle as the program rounds it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from tvm import tirx

from tvm_cascade.devices.cards import H200
from tvm_cascade.driver.gpu import gpu_options
from tvm_cascade.evaluate.oracle import evaluate, signature
from tvm_cascade.evaluate.tolerance import check
from tvm_cascade.options import FuseOptions
from tvm_cascade.plan.plan import Plan, Step
from tvm_cascade.plan.search import find_plan
from tvm_cascade.tile.skeleton import Kernel, Setting
from tvm_cascade.transform.fuse_function import fuse_function
from tvm_cascade.tvm_faults.float8 import round_float8

from ..tile.emulator.run import emulate
from .functions import FUNCTIONS

Runner = Callable[[Step, Sequence[Any]], list[Any]]


def plan_of(func: tirx.PrimFunc, **options: Any) -> Plan:
    """The plan of a function for an H200."""
    setting = Setting(H200, gpu_options(FuseOptions(**options)))
    return find_plan(fuse_function(func, setting.options, H200), "main", setting)


@cache
def planned(name: str) -> tuple[tirx.PrimFunc, Plan]:
    """A function of `functions` by name, with its plan."""
    func = FUNCTIONS[name]()
    return func, plan_of(func)


def skeletons(plan: Plan) -> list[str]:
    """The skeleton of each step; empty where it has none."""
    return [step.chosen.skeleton.name if isinstance(step.chosen, Kernel) else "" for step in plan.steps]


def as_written(step: Step, inputs: Sequence[Any]) -> list[Any]:
    """A step by the oracle, as its function rounds."""
    return list(evaluate(step.func, inputs, rounding=True).values())


def emulated(step: Step, inputs: Sequence[Any]) -> list[Any]:
    """A step by the emulator where it has a kernel."""
    if not isinstance(step.chosen, Kernel):
        return as_written(step, inputs)
    return emulate(round_float8(step.chosen.func), inputs)


def run(plan: Plan, inputs: Sequence[Any], runner: Runner) -> dict[str, Any]:
    """What a plan writes, by the caller's names; a temporary is read only after a step has written all of it."""
    reads = [param for param in plan.params if param.name not in {b.name for s in plan.steps for b in s.written}]
    known: dict[tirx.Var, Any] = dict(zip(reads, inputs, strict=True))
    for step in plan.steps:
        given = [known[param] for param in signature(step.func).inputs]
        for buffer, value in zip(signature(step.func).outputs, runner(step, given), strict=True):
            dtype = str(buffer.ty.dtype)
            known[buffer] = np.ascontiguousarray(np.asarray(value).astype(getattr(ml_dtypes, dtype, dtype)))
    return {param.name: known[param] for param in plan.params if param not in reads}


def draw(func: tirx.PrimFunc, seed: int = 0) -> list[Any]:
    """Arrays for a function's inputs: normal, of a size at which sums of products stay in half precision."""
    rng = np.random.default_rng(seed)
    arrays = []
    for param in signature(func).inputs:
        shape, dtype = tuple(int(extent) for extent in param.ty.shape), str(param.ty.dtype)
        values = rng.normal(size=shape) * (4.0 if dtype.startswith("int") else 0.25 if len(shape) > 1 else 1.0)
        values = np.abs(values).round() if dtype == "int32" else values.round() if dtype == "int8" else values
        arrays.append(values.astype(getattr(ml_dtypes, dtype, dtype)))
    return arrays


def assert_plan_right(func: tirx.PrimFunc, plan: Plan, runner: Runner, length: int) -> None:
    """What a plan computes is as near to the oracle as the rule of `evaluate.tolerance` asks of half precision."""
    inputs = draw(func)
    exact, usual = evaluate(func, inputs), evaluate(func, inputs, rounding=True)
    for name, got in run(plan, inputs, runner).items():
        found = check(
            got, exact[name], usual[name], length=length, dtype="float16" if got.dtype.kind == "f" else str(got.dtype)
        )
        assert found.ok, f"{name}: {found.message}"
