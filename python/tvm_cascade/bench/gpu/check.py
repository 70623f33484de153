"""Is a row right? Two heads of its output against float64, and ours on a small shape against the oracle.

Outputs hold NaN before each run. What passes is the rule of `evaluate.tolerance`, whose baseline is the exact value
rounded to the output's dtype: an unfused program cannot do better.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tvm_cascade.bench.gpu.formula import reference
from tvm_cascade.bench.gpu.prepared import Prepare, Prepared
from tvm_cascade.bench.gpu.problem import Problem, as_array, as_tensor
from tvm_cascade.bench.peers import Absent
from tvm_cascade.bench.workload import Workload
from tvm_cascade.errors import InputError
from tvm_cascade.evaluate import oracle, tolerance
from tvm_cascade.evaluate.tolerance import Comparison

_TWIN_LIMITS: Mapping[str, int] = {
    "batch": 2,
    "heads": 4,
    "kv_heads": 2,
    "queries": 333,  # no multiple of any tile
    "keys": 333,
    "window": 70,
}
_RERUNS = 3
_ROWS = 8192
"""Rows of a head up to which all are compared; then every third, fifth, …: odd, to meet each row of a tile."""


def twin(workload: Workload) -> Workload:
    """The same program at a size for the oracle, with the features that a kernel is chosen by."""
    return workload.within(_TWIN_LIMITS)


class Exact:
    """The exact output of some heads of a problem: the first, and the last of the last batch."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        batch, heads = problem.q.shape[:2]
        self.heads = list(dict.fromkeys([(0, 0), (batch - 1, heads - 1)]))
        self._every = 1 + 2 * ((problem.q.shape[2] - 1) // _ROWS)
        self._values = [as_array(one[:: self._every]) for one in self._references()]
        dtype = problem.q.dtype
        self._rounded = [as_array(problem.torch.from_numpy(exact).to(dtype)) for exact in self._values]

    def _references(self) -> Iterator[Any]:
        problem = self._problem
        group = problem.q.shape[1] // problem.k.shape[1]
        for batch, head in self.heads:
            slope = None if problem.slopes is None else problem.slopes[head : head + 1]
            k, v = (x[batch, head // group] for x in (problem.k, problem.v))
            yield reference(problem.torch, problem.form, problem.q[batch, head], k, v, slope)

    def judge(self, output: Any) -> Comparison:
        """The comparison of an output [batch, head, position, feature] on the head where it is worst."""
        problem = self._problem
        length, dtype = problem.k.shape[2], problem.workload.dtype
        found = [
            tolerance.check(as_array(output[batch, head, :: self._every]), exact, rounded, length=length, dtype=dtype)
            for (batch, head), exact, rounded in zip(self.heads, self._values, self._rounded, strict=True)
        ]
        return max(found, key=lambda one: (not one.ok, one.max_error))


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
    problem = Problem(torch, small, [as_tensor(torch, array, device) for array in arrays], smallest=True, func=func)
    prepared = prepare(problem)
    if isinstance(prepared, Absent):
        raise InputError("a program for the small shape", prepared.reason, f"workload `{small.name}`")
    output = as_array(result(prepared))
    (exact,) = oracle.evaluate(func, arrays).values()
    (rounded,) = oracle.evaluate(func, arrays, rounding=True).values()
    return tolerance.check(output.reshape(exact.shape), exact, rounded, length=small.shape["keys"], dtype=small.dtype)
