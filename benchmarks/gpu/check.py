"""Checks a row of a GPU table: parts of its output against float64, ours on a small shape against the oracle.

Outputs hold NaN before each run. What passes is the rule of `evaluate.tolerance`, whose baseline is the exact value
rounded to the output's dtype: an unfused program cannot do better.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.gpu.prepared import Prepare, Prepared
from benchmarks.gpu.problem import Problem, as_array, as_tensor, problem_class
from benchmarks.judge.forms import Absent
from corpus.workload import Workload
from tvm_cascade.errors import InputError
from tvm_cascade.evaluate import oracle, tolerance
from tvm_cascade.evaluate.tolerance import Comparison

_TWIN_LIMITS: Mapping[str, int] = {
    "batch": 2,
    "heads": 4,
    "kv_heads": 2,
    "queries": 333,  # no multiple of any tile
    "keys": 333,
    "shortest": 50,
    "prefix": 150,
    "window": 70,
    "rows": 5,
    "length": 1000,  # a multiple of the widest vector, and of no chunk
    "tokens": 333,
    "hidden": 264,
    "classes": 1000,
    "features": 256,  # a multiple of what a stage of a product holds
    "columns": 328,
    "column_blocks": 2,
    "m": 333,
    "n": 328,  # multiples of a vector, and of no tile
    "k": 264,
    "height": 13,
    "width": 15,
}
_OF_A_TILE = ("latent_dim",)
"""Extents of programs whose heads are the rows of a tile, which a kernel is chosen by."""
_VECTOR = 8
_RERUNS = 3


def twin(workload: Workload) -> Workload:
    """The same program at a size for the oracle, with the features that a kernel is chosen by.

    Rows that no vector divides are as long beyond one.
    """
    beyond = _TWIN_LIMITS["length"] - _VECTOR + workload.shape.get("length", 0) % _VECTOR
    limits = {**_TWIN_LIMITS, "length": beyond} if beyond % _VECTOR else dict(_TWIN_LIMITS)
    if any(extent in workload.shape for extent in _OF_A_TILE):
        del limits["heads"]
    return workload.within(limits)


class Exact:
    """The exact values of what is compared of a problem's output."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.values = [as_array(one) for one in problem.references()]
        dtype = problem.output_dtype
        inside = [as_array(one) for one in problem.usual()]
        self._rounded = [as_array(problem.torch.from_numpy(one).to(dtype)) for one in inside or self.values]

    def judge(self, output: Any) -> Comparison:
        """The comparison of an output where it is worst."""
        problem = self._problem
        return tolerance.worst(
            tolerance.check(as_array(one), exact, rounded, length=problem.length, dtype=problem.workload.dtype)
            for one, exact, rounded in zip(problem.compared(output), self.values, self._rounded, strict=True)
        )


def result(prepared: Prepared) -> Any:
    """The output of one run, which found NaN where it was to write."""
    prepared.poison()
    return prepared.output(prepared.run()).clone()


def reruns_equal(problem: Problem, prepared: Prepared, first: Any) -> bool:
    """Whether further runs give the bits of the first."""
    bits = {2: problem.torch.int16, 4: problem.torch.int32}[first.element_size()]
    return all(bool((result(prepared).view(bits) == first.view(bits)).all()) for _ in range(_RERUNS))


def against_oracle(torch: Any, small: Workload, prepare: Prepare, device: str, seed: int) -> Comparison:
    """A row on a small shape, compared with the float64 oracle of the TensorIR program.

    Raises
    ------
    InputError
        When the row has no program there.
    """
    arrays = small.inputs(np.random.default_rng(seed))
    func = small.build()
    inputs = [as_tensor(torch, array, device) for array in arrays]
    problem = problem_class(small)(torch, small, inputs, smallest=True, func=func)
    prepared = prepare(problem)
    if isinstance(prepared, Absent):
        raise InputError("a program for the small shape", prepared.reason, f"workload `{small.name}`")
    output = as_array(result(prepared))
    (exact,) = oracle.evaluate(func, arrays).values()
    (rounded,) = oracle.evaluate(func, arrays, rounding=True).values()
    return tolerance.check(output.reshape(exact.shape), exact, rounded, length=problem.length, dtype=small.dtype)
