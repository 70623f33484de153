"""What is tuned: one function for one target, with the data that its designs run on."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.accuracy.draws import drawn
from tvm_cascade.analysis.program import Program, at_sizes
from tvm_cascade.devices.device import Gpu
from tvm_cascade.driver.arguments import Parameter, parameters_of
from tvm_cascade.driver.backend import Goal
from tvm_cascade.driver.gpu_space import space_of
from tvm_cascade.driver.lowering import goal_of
from tvm_cascade.driver.space import Space
from tvm_cascade.errors import InputError, OracleError
from tvm_cascade.evaluate import oracle
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.estimate import NOMINAL, count_work
from tvm_cascade.transform.fuse_function import read_function
from tvm_cascade.tuning.cold import reading_library
from tvm_cascade.tuning.keys import bucket

Array = NDArray[Any]

_ORACLE_FLOPS, _ORACLE_ELEMENTS = 4e9, 1 << 26
"""Of products, and of elements of all tensors, up to which float64 in NumPy takes seconds."""

_WHOLE = 3
"""Whole numbers below this, of either sign, are drawn where results are integers: sums of products are then exact in
any order, so that what is chosen by comparing them is the same."""


@dataclass(frozen=True)
class Task:
    """A function to tune, as workers get it.

    Attributes
    ----------
    name : of the function.
    func, target : as `tvm.ir.save_json` writes them.
    options : as the caller gave them.
    folder : with the data, and for libraries.
    sizes : of symbolic extents, by name, that it is measured at.
    """

    name: str
    func: str
    target: str
    options: FuseOptions
    folder: Path
    sizes: tuple[tuple[str, int], ...] = ()

    @property
    def function(self) -> tirx.PrimFunc:
        """The unfused function, named as it is in its module."""
        return tvm.ir.load_json(self.func)

    @property
    def goal(self) -> Goal:
        return goal_of(tvm.ir.load_json(self.target), self.options)

    @property
    def reading(self) -> Path:
        """The library of what is read between runs on a GPU."""
        return self.folder / "read.so"

    @property
    def measured(self) -> tirx.PrimFunc:
        """The function at the sizes that it is measured at."""
        return at_sizes(self.function, dict(self.sizes))

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Of the function at these sizes, in order."""
        return parameters_of(self.measured)


def task_of(
    name: str,
    func: tirx.PrimFunc,
    target: tvm.target.Target,
    options: FuseOptions,
    folder: Path,
    sizes: tuple[tuple[str, int], ...] = (),
) -> Task:
    folder.mkdir()
    told, goal = map(tvm.ir.save_json, (func.with_attr("global_symbol", name), target))
    return Task(name, told, goal, options, folder, sizes)


@lru_cache(maxsize=4)
def space_for(task: Task) -> Space:
    """The space of a task, with the estimates at its sizes; found once in each process."""
    space = space_of(task.function, task.name, task.goal)
    return space.for_sizes({name: bucket(size) for name, size in task.sizes})


def sizes_of(
    func: tirx.PrimFunc, name: str, given: Mapping[str, int] | None, inputs: Sequence[Array] | None
) -> tuple[tuple[str, int], ...]:
    """What symbolic extents are measured at: what is given, those of the inputs, or what estimates count them for.

    Raises
    ------
    InputError
        Where a parameter is a number, an extent is computed from ones that no parameter has, or a size is of no extent.
    """
    buffers = [param for param in func.params if tirx.is_buffer_var(param)]
    for param in func.params:
        if not tirx.is_buffer_var(param):
            hint = "give it its value in the program"
            raise InputError("parameters that are buffers", f"the number {param.name}", f"tune of `{name}`", hint)
    symbolic = [e.name for buffer in buffers for e in buffer.ty.shape if isinstance(e, ir.Var)]
    sizes = dict.fromkeys(symbolic, NOMINAL)
    for buffer, array in zip(buffers, inputs or (), strict=False):
        pairs = zip(buffer.ty.shape, array.shape, strict=False)
        sizes |= {extent.name: int(size) for extent, size in pairs if isinstance(extent, ir.Var)}
    sizes |= given or {}
    for param in at_sizes(func, sizes).params:
        if not all(isinstance(extent, prim.IntImm) for extent in param.ty.shape):
            hint = "specialise the function to a shape; the design then serves that shape"
            found = f"`{param.name}` of {param.ty.shape}"
            raise InputError("extents that are numbers or variables", found, f"tune of `{name}`", hint)
    return tuple(sizes.items())


def prepare(task: Task, inputs: Sequence[Array] | None) -> None:
    """Writes what a task runs on: its inputs and, where float64 in NumPy takes seconds, the exact results.

    For a GPU, also the library by which times are cold.
    """
    func = task.measured
    if isinstance(task.goal.device, Gpu):
        task.reading.write_bytes(reading_library(task.goal.target))
    program = read_function(func)
    if inputs is None:
        rng = np.random.default_rng(0)
        inputs = drawn(program, [], "normal", rng) if isinstance(program, Program) else _plain(func, rng)
        if any("int" in one.dtype for one in task.parameters if one.written):
            inputs = [_whole(array, rng) for array in inputs]
    (task.folder / "inputs").write_bytes(pickle.dumps(list(inputs)))
    if takes_seconds(func):
        try:
            exact = list(oracle.evaluate(func, inputs).values())
            rounded = list(oracle.evaluate(func, inputs, rounding=True).values())
        except OracleError:
            return
        (task.folder / "exact").write_bytes(pickle.dumps(exact))
        (task.folder / "rounded").write_bytes(pickle.dumps(rounded))


def takes_seconds(func: tirx.PrimFunc) -> bool:
    """Whether float64 in NumPy computes a function in seconds."""
    program = read_function(func)
    if not isinstance(program, Program):
        return False
    buffers = [*program.params, *(stage.buffer for stage in program.stages)]
    elements = sum(math.prod(map(int, one.ty.shape)) for one in buffers if tirx.is_buffer_var(one))
    return count_work(program).flops <= _ORACLE_FLOPS and elements <= _ORACLE_ELEMENTS


def _plain(func: tirx.PrimFunc, rng: np.random.Generator) -> list[Array]:
    inputs = oracle.signature(func).inputs
    return [rng.standard_normal([int(e) for e in one.ty.shape]).astype(str(one.ty.dtype)) for one in inputs]


def _whole(array: Array, rng: np.random.Generator) -> Array:
    if np.issubdtype(array.dtype, np.integer) or array.dtype == np.bool_:
        return array
    return rng.integers(1 - _WHOLE, _WHOLE, array.shape).astype(array.dtype)


def load(path: Path) -> list[Array]:
    """The arrays of a file; none where there is no file."""
    return pickle.loads(path.read_bytes()) if path.exists() else []
