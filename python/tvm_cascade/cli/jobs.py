"""What commands work on: a function of the user's own, or a program by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from tvm import tirx

from tvm_cascade.accuracy.draws import drawn
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.program import Program, is_static
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.errors import InputError
from tvm_cascade.evaluate import oracle
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_function import fuse_function, fused_groups

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


@dataclass(frozen=True)
class GivenFunction:
    """An unscheduled function with static shapes whose parameters are buffers.

    Attributes
    ----------
    name, source : what it is called, and the file or the module that it is from.
    func : the function.
    shape : extents by name, where they have names.

    Raises
    ------
    InputError
        When the function cannot be read, has symbolic extents, or has parameters that are numbers.
    """

    name: str
    source: str
    func: tirx.PrimFunc = field(hash=False, repr=False)
    shape: Mapping[str, int] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        where = f"function `{self.name}` of {self.source}"
        if numbers := [param.name for param in self.func.params if not tirx.is_buffer_var(param)]:
            hint = "give them their values in the program"
            raise InputError("parameters that are buffers", f"the numbers {', '.join(numbers)}", where, hint)
        if not is_static(self._read[0]):
            raise InputError("extents that are numbers", "symbolic ones", where, "specialise the function to a shape")

    def __reduce__(self) -> tuple[type[GivenFunction], tuple[object, ...]]:
        """Pickles by source, which another process reads again."""
        return GivenFunction, (self.name, self.source, self.func, self.shape)

    @cached_property
    def _read(self) -> tuple[Program, tuple[Group, ...]]:
        outcome = fuse_function(self.func, FuseOptions(force=True))
        if not isinstance(outcome.program, Program):
            found = str(outcome.decisions[0].reason) if outcome.decisions else "one that is fused already"
            where = f"function `{self.name}` of {self.source}"
            raise InputError("a function that can be read", found, where, "`explain` says more")
        return outcome.program, tuple(fused_groups(outcome.decisions))

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

    def inputs(self, rng: np.random.Generator, kind: str = "normal") -> list[Array]:
        """Arrays for the inputs, in order; the named pattern runs along the cascade axis."""
        program, groups = self._read
        return drawn(program, groups, kind, rng)
