"""A user's function, with the interface of a workload."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import tirx

from tvm_cascade.accuracy.draws import drawn
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.program import Program, is_static
from tvm_cascade.analysis.tir import Extent, dtype_of, extent_of
from tvm_cascade.errors import InputError
from tvm_cascade.evaluate import oracle
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_function import fuse_function, fused_groups


@dataclass(frozen=True)
class GivenFunction:
    """An unscheduled function with static shapes whose parameters are buffers.

    Attributes
    ----------
    name : of the function, in its file.
    source : the file.
    func : the function.
    options : how it is fused; what the data vary along goes by it.

    Raises
    ------
    InputError
        When the function cannot be read, has symbolic extents, or has parameters that are numbers.
    """

    name: str
    source: str
    func: tirx.PrimFunc = field(hash=False, repr=False)
    options: FuseOptions = field(default_factory=lambda: FuseOptions(force=True))

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
        return GivenFunction, (self.name, self.source, self.func, self.options)

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
    def family(self) -> str:
        return "given"

    @property
    def shape(self) -> Mapping[str, int]:
        """Named extents, which a function does not have."""
        return {}

    @property
    def label(self) -> str:
        return self.name

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
        """The function, named "main" as those of workloads are."""
        return self.func.with_attr("global_symbol", "main")

    def inputs(self, rng: np.random.Generator, kind: str = "normal") -> list[NDArray[Any]]:
        """Arrays for the inputs, in order; the named pattern runs along the cascade axis."""
        program, groups = self._read
        return drawn(program, groups, kind, rng)

    def flops(self) -> None:
        """Useful operations: not counted."""

    def bytes(self) -> int:
        """Compulsory bytes: every parameter once."""
        sizes = [math.prod(map(int, one.ty.shape)) * np.dtype(dtype_of(one)).itemsize for one in self.func.params]
        return sum(sizes)
