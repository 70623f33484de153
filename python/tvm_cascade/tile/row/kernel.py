"""The common part of row kernels: launch over the function's parameters, rows, segments, merge."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from tvm import ir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_cascade.algebra.cascade import LENGTH
from tvm_cascade.analysis.frame import lookup
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.tile.emit import bind, kernel_extent
from tvm_cascade.tile.merge.combine import Exchange, merge
from tvm_cascade.tile.row.cut import Cut
from tvm_cascade.tile.row.elements import Tensors
from tvm_cascade.tile.row.program import RowProgram
from tvm_cascade.tile.row.segment import Segment, share_of_row
from tvm_cascade.tile.row.sweep import Point, length_of
from tvm_cascade.tile.state import State
from tvm_cascade.transform.printer import cast

C = TypeVar("C", bound=Cut)


class MemoryKernel(ABC, Generic[C]):
    """Emits the kernel of a row program."""

    def __init__(self, program: RowProgram, config: C) -> None:
        self.program, self.config, self.row = program, config, program.row
        self.buffers: dict[tirx.Var, Any] = {}
        self.block: Any = None
        self.scalars: dict[tirx.Var, Any] = {}

    def build(self, name: str) -> tirx.PrimFunc:
        """The kernel with its launch, over the parameters of the unfused function."""
        self.name = "".join(c if c.isalnum() else "_" for c in name)
        with IRBuilder() as builder, T.prim_func():
            T.func_name(name)
            T.func_attr({"global_symbol": name})
            for param in self.row.program.params:
                self._parameter(param)
            T.device_entry()
            self.tensors = Tensors(self.row, self.buffers, self.scalars)
            self.tensors.declare()
            with T.attr({"tirx.launch_bounds_min_blocks_per_sm": self.config.resident}):
                self._places()
                self._body()
        return builder.get()

    def _parameter(self, param: tirx.Var) -> None:
        if tirx.is_buffer_var(param):
            self.buffers[param] = T.arg(param.name, T.Buffer(tuple(param.ty.shape), str(param.ty.dtype)))
        else:
            self.scalars[param] = T.arg(param.name, tirx.Var(param.name, param.ty))

    @abstractmethod
    def _places(self) -> None:
        """Declares the grid and the places of a thread in it."""

    @abstractmethod
    def _body(self) -> None:
        """What a thread does."""

    def _point(self, index: ir.Expr) -> Point:
        """The row of a number."""
        return Point(self.program, self.tensors, self._at(index))

    def _at(self, index: ir.Expr) -> dict[tirx.Var, ir.Expr]:
        """The variables of rows, of the row of a number."""
        rest, found = index, {}
        for var in reversed(self.row.rows):
            extent = kernel_extent(lookup(self.row.group.frame.extents, var))
            found[var] = bind(var.name, cast(rest % extent, dtype_of(var)))
            rest = rest // extent
        return found

    def _state(self) -> State:
        return State.in_registers(self.row.fold, self.program.dtypes, self.program.reference_dtype)

    def _segment(self) -> Segment:
        """The positions of the row that the block folds."""
        config, length = self.config, self.row.length
        if config.segments == 1:
            known = (length, length) if isinstance(length, int) else ()
            return Segment(tirx.const(0, "int32"), kernel_extent(length), *known)
        step = share_of_row(self.row, config)
        assert isinstance(length, int) and step is not None
        start = bind("start", self.block % config.segments * step)
        if step * config.segments == length:
            return Segment(start, start + step, step, step)
        return Segment(start, bind("end", tirx.min(start + step, kernel_extent(length))))

    def _merge(self, state: State, exchange: Exchange, point: Point) -> None:
        inputs = {**point.values, LENGTH: length_of(self.program)}
        merge(self.program.body, state, exchange, inputs, self.program.offsets)
