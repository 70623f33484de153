"""A program as data: arguments, outputs and arithmetic, before it becomes a PrimFunc."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from tvm import te, tirx
from tvm.ir import Expr

from corpus.programs.draws import Draw, Values, steady
from tvm_cascade.driver.arguments import numpy_dtype

Shape = Mapping[str, int]
Axes = Mapping[str, int]
"""Axis names, which become the loop names, with their extents, outermost first."""

Element = Callable[..., Expr]
"""From the indices of a point of some axes to the value there."""


@dataclass(frozen=True)
class Precision:
    """The dtype that tensors are stored in, and the one that arithmetic and sums use."""

    storage: str
    accumulate: str

    def widen(self, value: Expr) -> Expr:
        return value.astype(self.accumulate)

    def constant(self, value: float) -> Expr:
        return tirx.const(float(value), self.accumulate)


@dataclass(frozen=True)
class Argument:
    """An input tensor and how its values are drawn.

    Attributes
    ----------
    deviation : what drawn values are multiplied by.
    """

    tensor: te.Tensor
    draw: Draw
    deviation: float = 1.0

    def values(self, rng: np.random.Generator, kind: str) -> Values:
        """An array of the tensor's shape and dtype."""
        drawn = self.draw(rng, extents(self.tensor), kind)
        return (drawn if self.deviation == 1.0 else drawn * self.deviation).astype(dtype_of(self.tensor))


@dataclass(frozen=True)
class Program:
    """An unfused program.

    Attributes
    ----------
    arguments : inputs, in the order of the PrimFunc's parameters.
    outputs : tensors asked for, in the order of the parameters that follow.
    flops : useful floating-point operations: two per multiply-add of a matrix product, one per other operation
        of an element (an exponential counts as one). Scores that a mask throws away are not counted.
    unread : bytes of the arguments that no result depends on, wherever that is known without their values: keys
        behind the lengths or before the windows of all queries.
    """

    arguments: tuple[Argument, ...]
    outputs: tuple[te.Tensor, ...]
    flops: int
    unread: int = 0

    @property
    def bytes_read(self) -> int:
        """Bytes of all inputs, each read once, but for what nobody needs."""
        return sum(_bytes_of(argument.tensor) for argument in self.arguments) - self.unread

    @property
    def bytes_written(self) -> int:
        return sum(map(_bytes_of, self.outputs))

    @property
    def compulsory_bytes(self) -> int:
        """Those that are read and those that are written."""
        return self.bytes_read + self.bytes_written

    def prim_func(self) -> tirx.PrimFunc:
        """The program as S-TIR, one block per stage, named "main"."""
        parameters = [argument.tensor for argument in self.arguments] + list(self.outputs)
        return te.create_prim_func(parameters).with_attr("global_symbol", "main")


Builder = Callable[[Shape, Precision], Program]


def extents(tensor: te.Tensor) -> tuple[int, ...]:
    """The tensor's shape as Python integers."""
    return tuple(int(extent) for extent in tensor.shape)


def dtype_of(tensor: te.Tensor) -> np.dtype[np.generic]:
    """The tensor's dtype as NumPy has it, bfloat16 and the float8 types by way of ml_dtypes."""
    return numpy_dtype(str(tensor.dtype.dtype))


def _bytes_of(tensor: te.Tensor) -> int:
    return math.prod(extents(tensor)) * dtype_of(tensor).itemsize


def placeholder(axes: Axes, dtype: str, name: str) -> te.Tensor:
    return te.placeholder(tuple(axes.values()), dtype, name=name)


def stage(axes: Axes, element: Element, name: str) -> te.Tensor:
    """One stage: `element` at every point of the axes, whose names become the loops' names."""
    return te.compute(tuple(axes.values()), lambda *at: element(*at), name=name, varargs_names=list(axes))


def rows_of(axes: Axes) -> Axes:
    """The axes but the last."""
    return dict(list(axes.items())[:-1])


def reduced(by: Callable[..., Expr], axes: Axes, element: Element, name: str) -> te.Tensor:
    """One stage over the axes but the last: `by`, such as `te.sum`, of `element` along that one."""
    last = te.reduce_axis((0, [*axes.values()][-1]), [*axes][-1])
    return stage(rows_of(axes), lambda *at: by(element(*at, last), axis=last), name)


def output_stage(
    precision: Precision, axes: Axes, element: Element, name: str, by: Callable[..., Expr] | None = None
) -> te.Tensor:
    """A last stage, computed in the accumulation dtype and stored in the storage dtype.

    Parameters
    ----------
    by : what reduces the last of the axes, if one is to be.
    """
    made = stage if by is None else partial(reduced, by)
    if precision.storage == precision.accumulate:
        return made(axes, element, name)
    wide = made(axes, element, f"{name}_{precision.accumulate}")
    return stage(axes if by is None else rows_of(axes), lambda *at: wide(*at).astype(precision.storage), name)


class Inputs:
    """The inputs of a program that is being written, in order."""

    def __init__(self, precision: Precision) -> None:
        self.precision, self.arguments = precision, list[Argument]()

    def __call__(
        self, axes: Axes, name: str, draw: Draw = steady, dtype: str | None = None, deviation: float = 1.0
    ) -> Element:
        """A further input, by default of the storage dtype; it is read in the accumulation dtype."""
        tensor = self.stored(axes, name, draw, dtype, deviation)
        return lambda *at: self.precision.widen(tensor(*at))

    def stored(self, axes: Axes, name: str, draw: Draw, dtype: str | None = None, deviation: float = 1.0) -> te.Tensor:
        """The same, read as it is stored."""
        tensor = placeholder(axes, dtype or self.precision.storage, name)
        self.arguments.append(Argument(tensor, draw, deviation))
        return tensor

    def program(self, *outputs: te.Tensor, flops: int) -> Program:
        return Program(tuple(self.arguments), outputs, flops)
