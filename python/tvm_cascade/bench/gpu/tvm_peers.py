"""What comes out of TVM: our compiled program, on tensor cores and without them, and TVM's own default GPU code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm.s_tir import dlight

from tvm_cascade.bench.gpu.prepared import Prepared
from tvm_cascade.bench.gpu.problem import Problem
from tvm_cascade.bench.gpu.row_problem import RowProblem
from tvm_cascade.bench.peers import Absent
from tvm_cascade.compilation import compile, resolve_target
from tvm_cascade.lowering_cuda import cuda_compiler

_ONLY_SMALL = "hundreds of times slower: only measured at the smallest size of a suite"


def ours(problem: Problem | RowProblem) -> Prepared:
    """`tvm_cascade.compile` for the GPU of this machine."""
    return _compiled(problem, **dict.fromkeys(problem.workload.allowances, True))


def ours_scheduled(problem: Problem | RowProblem) -> Prepared | Absent:
    """The same without kernels of a skeleton: the fused loop under our S-TIR schedule."""
    options = {"tensor_cores": False, "row_kernels": False}
    return _compiled(problem, **options) if problem.smallest else Absent(_ONLY_SMALL)


def tvm_default(problem: Problem | RowProblem) -> Prepared | Absent:
    """The unfused program under dlight's rules, in the order of TVM's own pipeline for CUDA."""
    if not problem.smallest:
        return Absent(_ONLY_SMALL)
    target, gpu = resolve_target("cuda"), dlight.gpu
    rules = (gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Fallback())
    mod = tvm.ir.load_json(tvm.ir.save_json(tvm.IRModule({"main": problem.func})))
    with target, cuda_compiler(fast_math=True):  # as TVM itself compiles
        built = tvm.compile(dlight.ApplyDefaultSchedule(*rules)(mod), target=target)
    return _filling(problem, built["main"], lambda: "dlight")


def _compiled(problem: Problem | RowProblem, **options: bool) -> Prepared:
    compiled = compile(problem.func, target="cuda", **options)
    allowed = [name for name, value in options.items() if value]

    def lowering() -> str:
        return "; ".join([*(function.lowering for function in compiled.report.functions), *allowed])

    # The function itself: what `Compiled` asks of every argument takes the host longer than a short kernel the device.
    return _filling(problem, compiled.runtime_module["main"], lowering)


def _filling(
    problem: Problem | RowProblem, function: Callable[..., object], configuration: Callable[[], str]
) -> Prepared:
    """A row whose runs fill one output."""
    output = problem.empty_output()
    arguments = [*problem.inputs, output]

    def run() -> Any:
        function(*arguments)
        return output

    return Prepared(run, problem.as_operand, lambda: output.fill_(float("nan")), configuration)
