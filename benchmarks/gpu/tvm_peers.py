"""Peers from TVM: our compiled program with and without tensor cores, and TVM's default GPU code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import dlight

from benchmarks.gpu.prepared import Prepared
from benchmarks.gpu.problem import Problem, unwritten
from benchmarks.judge.forms import Absent
from benchmarks.record import OURS, OURS_CUDA_CORES
from tvm_cascade.driver.cuda import cuda_compiler
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.report.group import FunctionReport
from tvm_cascade.tuning.compilation import compile
from tvm_cascade.tvm_faults.copies import private_copy

_SCHEDULED = "S-TIR schedule on CUDA cores"
_ONLY_SMALL = "hundreds of times slower: only measured at the smallest size of a suite"


@dataclass(frozen=True)
class Code:
    """What came out of a compiler.

    Attributes
    ----------
    executable : its `main` is the program.
    configuration, estimate : see `Prepared`.
    """

    executable: Any
    configuration: Callable[[], str]
    estimate: Callable[[], float | None] = lambda: None


def _fused(func: tirx.PrimFunc, **options: Any) -> Code:
    compiled = compile(func, target="cuda", **options)
    allowed = [name for name, value in options.items() if value]

    def lowering() -> str:
        return "; ".join([*map(_lowering, compiled.report.functions), *allowed])

    def estimate() -> float | None:
        steps = [step.microseconds for function in compiled.report.functions for step in function.plan]
        return sum(steps) * 1e-6 if steps else None

    # The function itself: what `Compiled` asks of every argument takes the host longer than a short kernel the device.
    return Code(compiled.runtime_module, lowering, estimate)


def _lowering(function: FunctionReport) -> str:
    """What a function is lowered to; of a plan the skeleton of each kernel, or that it is scheduled."""
    if not function.plan:
        return function.lowering
    return f"{function.lowering}: {', '.join(step.skeleton or _SCHEDULED for step in function.plan)}"


def _default(func: tirx.PrimFunc) -> Code:
    target, gpu = resolve_target("cuda"), dlight.gpu
    rules = (gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Fallback())
    mod = private_copy(func)
    with target, cuda_compiler(target, fast_math=True):  # as TVM itself compiles
        return Code(tvm.compile(dlight.ApplyDefaultSchedule(*rules)(mod), target=target), lambda: "dlight")


TVM_DEFAULT = "tvm-default"

COMPILERS: Mapping[str, Callable[..., Code]] = {
    TVM_DEFAULT: _default,
    OURS_CUDA_CORES: partial(_fused, tensor_cores=False, row_kernels=False),
    OURS: _fused,
}
"""The compilers by the names of their rows."""


def ours(problem: Problem) -> Prepared:
    """`tvm_cascade.compile` for the GPU of this machine."""
    return _compiled(OURS, problem, **dict.fromkeys(problem.workload.allowances, True))


def ours_scheduled(problem: Problem) -> Prepared | Absent:
    """The same without kernels of a skeleton: the fused loop under our S-TIR schedule."""
    return _compiled(OURS_CUDA_CORES, problem) if problem.smallest else Absent(_ONLY_SMALL)


def tvm_default(problem: Problem) -> Prepared | Absent:
    """The unfused program under dlight's rules, in the order of TVM's own pipeline for CUDA."""
    return _compiled(TVM_DEFAULT, problem) if problem.smallest else Absent(_ONLY_SMALL)


def _compiled(name: str, problem: Problem, **options: bool) -> Prepared:
    code = COMPILERS[name](problem.func, **options)
    return filling(problem, code.executable["main"], code.configuration, code.estimate)


def filling(
    problem: Problem,
    function: Callable[..., object],
    configuration: Callable[[], str],
    estimate: Callable[[], float | None] = lambda: None,
) -> Prepared:
    """A row whose runs fill one output."""
    output = problem.empty_output()
    arguments = [*problem.inputs, output]

    def run() -> Any:
        function(*arguments)
        return output

    poison = partial(output.fill_, unwritten(output.dtype))
    return Prepared(run, lambda found: found, poison, configuration, estimate)
