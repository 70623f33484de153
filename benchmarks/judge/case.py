"""One program at one shape: its inputs, what it gives in float64, and its fused form."""

from __future__ import annotations

import math
import time
from functools import cached_property
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import tirx

from corpus.workload import Workload
from tvm_cascade.algebra.verdict import Reason, Verdict
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.cli.jobs import Job
from tvm_cascade.devices.read import device_of
from tvm_cascade.evaluate import oracle
from tvm_cascade.evaluate.inputs import poisoned
from tvm_cascade.obligations.derive import remembered
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_function import Outcome, fuse_function

Array = NDArray[Any]


class Case:
    """A program and inputs, shared by all rows of its table.

    Attributes
    ----------
    job : where they are from.
    options : how to fuse.
    target : what TVM generates code for.
    func : the unfused program, unscheduled.
    inputs : arrays in the order of its parameters.
    outcome, fuse_seconds : what fusing gives, and how long that took.
    """

    def __init__(self, job: Job, options: FuseOptions, target: tvm.target.Target, seed: int) -> None:
        self.job, self.options, self.target = job, options, target
        self.func: tirx.PrimFunc = job.build()
        self.inputs: list[Array] = job.inputs(np.random.default_rng(seed))
        remembered.cache_clear()  # so that what is measured is a first derivation
        start = time.perf_counter()
        self.outcome: Outcome = fuse_function(self.func, options, device_of(target))
        self.fuse_seconds = time.perf_counter() - start
        self._outputs = job.outputs

    @property
    def reasons(self) -> list[Reason]:
        return [decision.reason for decision in self.outcome.decisions]

    @property
    def declined(self) -> bool:
        """Whether the cost model left a group unfused."""
        return any(reason.verdict is Verdict.DECLINED for reason in self.reasons)

    @property
    def length(self) -> int:
        """The extent of the cascade axis."""
        return self.job.length

    @property
    def output_dtypes(self) -> list[str]:
        return [dtype.name for _, dtype in self._outputs]

    @cached_property
    def exact(self) -> list[Array]:
        """The outputs by the float64 oracle of the unfused definition."""
        return list(oracle.evaluate(self.func, self.inputs).values())

    @cached_property
    def rounded(self) -> list[Array]:
        """The outputs by the same oracle, every stage rounded to its dtype: what the unfused program can reach."""
        return list(oracle.evaluate(self.func, self.inputs, rounding=True).values())

    @cached_property
    def tensors(self) -> list[tvm.runtime.Tensor]:
        """The inputs as TVM tensors; every TVM program of this case reads the same ones."""
        return [tvm.runtime.tensor(array) for array in self.inputs]

    def output_tensors(self) -> list[tvm.runtime.Tensor]:
        """New tensors for the outputs, filled with NaN, or with the least integer."""
        return [tvm.runtime.tensor(poisoned(shape, dtype)) for shape, dtype in self._outputs]


def bytes_of(job: Job) -> int:
    """Compulsory bytes: every input read once, every output written once."""
    if isinstance(job, Workload):
        return job.bytes()
    params = job.build().params
    return sum(math.prod(map(int, one.ty.shape)) * np.dtype(dtype_of(one)).itemsize for one in params)
