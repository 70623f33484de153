"""The kind of problem of a workload: self-attention, row reduction, or what a server runs between prefills."""

from __future__ import annotations

from benchmarks.gpu.problem import Problem
from benchmarks.gpu.row_problem import FORMULAS, RowProblem
from benchmarks.gpu.served_problem import ServedProblem
from tvm_cascade.corpus.workload import Workload

AnyProblem = Problem | RowProblem | ServedProblem


def problem_class(workload: Workload) -> type[Problem] | type[RowProblem] | type[ServedProblem]:
    """A problem of rows where there is a formula for its program; of attention where queries and keys are the same."""
    if workload.builder in FORMULAS:
        return RowProblem
    shape = workload.shape
    own = "queries" in shape and shape["queries"] == shape["keys"] and "value_dim" not in shape
    return Problem if own else ServedProblem
