"""One program at one shape: its inputs, what it gives in float64, and its fused form."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import tirx

from tvm_cascade.accuracy.draws import drawn
from tvm_cascade.algebra.verdict import Reason, Verdict
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.program import Program, is_static
from tvm_cascade.analysis.tir import Extent, dtype_of, extent_of
from tvm_cascade.devices.read import device_of
from tvm_cascade.errors import InputError
from tvm_cascade.evaluate import oracle
from tvm_cascade.evaluate.inputs import poisoned
from tvm_cascade.obligations.derive import remembered
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_function import Outcome, fuse_function, fused_groups

Array = NDArray[Any]


class Job(Protocol):
    """What is checked, run, tuned or measured: a function of the user's own, or a program by name.

    Attributes
    ----------
    name, source : what it is called, and where it is from.
    label : the title of its table: its name, and its extents if they have names.
    shape : extents by name; empty where they have none.
    dtype : of its floats.
    outputs : shape and dtype of each.
    length : positions of the longest cascade axis; 1 without one.
    """

    @property
    def name(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def shape(self) -> Mapping[str, int]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def outputs(self) -> list[tuple[tuple[int, ...], np.dtype[Any]]]: ...
    @property
    def length(self) -> int: ...

    def build(self) -> tirx.PrimFunc:
        """The unfused function, named "main"; parameters are the inputs, then the outputs."""

    def inputs(self, rng: np.random.Generator, kind: str = "normal") -> list[Array]:
        """Arrays for the inputs, in order, of a kind of data by name."""

    def flops(self) -> int | None:
        """Useful operations, where they are counted."""

    def bytes(self) -> int:
        """Compulsory bytes: every input read once, every output written once."""


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


@dataclass(frozen=True)
class GivenFunction:
    """An unscheduled function with static shapes whose parameters are buffers.

    Attributes
    ----------
    name, source : what it is called, and the file or the module that it is from.
    func : the function.
    options : how it is fused; what the data vary along goes by it.
    shape : extents by name, where they have names.

    Raises
    ------
    InputError
        When the function cannot be read, has symbolic extents, or has parameters that are numbers.
    """

    name: str
    source: str
    func: tirx.PrimFunc = field(hash=False, repr=False)
    options: FuseOptions = field(default_factory=lambda: FuseOptions(force=True))
    shape: Mapping[str, int] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        where = f"function `{self.name}` of {self.source}"
        if numbers := [param.name for param in self.func.params if not tirx.is_buffer_var(param)]:
            hint = "give them their values in the program"
            raise InputError("parameters that are buffers", f"the numbers {', '.join(numbers)}", where, hint)
        program = self._read[0]
        if not is_static(program) or not all(isinstance(one, int) for one in self._extents):
            raise InputError("extents that are numbers", "symbolic ones", where, "specialise the function to a shape")

    def __reduce__(self) -> tuple[type[GivenFunction], tuple[object, ...]]:
        """Pickles by source, which another process reads again."""
        return GivenFunction, (self.name, self.source, self.func, self.options, self.shape)

    @cached_property
    def _read(self) -> tuple[Program, tuple[Group, ...]]:
        outcome = fuse_function(self.func, self.options)
        if not isinstance(outcome.program, Program):
            found = str(outcome.decisions[0].reason) if outcome.decisions else "one that is fused already"
            where = f"function `{self.name}` of {self.source}"
            raise InputError("a function that can be read", found, where, "`explain` says more")
        return outcome.program, tuple(fused_groups(outcome.decisions))

    @property
    def _extents(self) -> list[Extent]:
        return [extent_of(extent) for param in self.func.params for extent in param.ty.shape]

    @property
    def label(self) -> str:
        return " ".join([self.name, "x".join(map(str, self.shape.values()))]).rstrip()

    @property
    def dtype(self) -> str:
        """Of the first output."""
        return next(iter(self.outputs))[1].name

    @property
    def outputs(self) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        written = oracle.signature(self.func).outputs
        return [(tuple(map(int, one.ty.shape)), np.dtype(dtype_of(one))) for one in written]

    @property
    def length(self) -> int:
        """Positions of the longest cascade axis; 1 without one."""
        return max((int(group.frame.length) for group in self._read[1]), default=1)

    def build(self) -> tirx.PrimFunc:
        return self.func.with_attr("global_symbol", "main")

    def inputs(self, rng: np.random.Generator, kind: str = "normal") -> list[NDArray[Any]]:
        """Arrays for the inputs, in order; the named pattern runs along the cascade axis."""
        program, groups = self._read
        return drawn(program, groups, kind, rng)

    def flops(self) -> None:
        """Not counted."""

    def bytes(self) -> int:
        sizes = [math.prod(map(int, one.ty.shape)) * np.dtype(dtype_of(one)).itemsize for one in self.func.params]
        return sum(sizes)
