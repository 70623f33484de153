"""The kind of problem of a workload: attention or row reduction."""

from __future__ import annotations

from tvm_cascade.bench.gpu.problem import Problem
from tvm_cascade.bench.gpu.row_problem import FORMULAS, RowProblem
from tvm_cascade.bench.workload import Workload

AnyProblem = Problem | RowProblem


def problem_class(workload: Workload) -> type[Problem] | type[RowProblem]:
    """A problem of rows where there is a formula for its program, and else one of attention."""
    return RowProblem if workload.builder in FORMULAS else Problem
