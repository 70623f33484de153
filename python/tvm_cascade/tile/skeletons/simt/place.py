"""The place of a thread: its block's tile of the result, and its part of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.extent import as_index, ceil_div, extent_of, product
from tvm_cascade.tile.emit import bind, kernel_extent, named
from tvm_cascade.tile.fragment import placed
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.row.linear import INDEX
from tvm_cascade.tile.skeletons.simt.config import CoreConfig
from tvm_cascade.tile.skeletons.simt.shape import CoreProduct


class Parameters:
    """The kernel's parameters, declared in the order of the unfused function's."""

    def __init__(self, shape: CoreProduct) -> None:
        self.buffers: dict[tirx.Var, Any] = {}
        self.scalars: dict[tirx.Var, Any] = {}
        for param in shape.program.params:
            if tirx.is_buffer_var(param):
                self.buffers[param] = T.arg(param.name, T.Buffer(tuple(param.ty.shape), str(param.ty.dtype)))
            else:
                self.scalars[param] = T.arg(param.name, tirx.Var(param.name, param.ty))

    def own(self, buffer: tirx.Var) -> Any:
        """The kernel's parameter of a program's tensor."""
        return next(own for param, own in self.buffers.items() if param.same_as(buffer))

    def flat(self, buffer: tirx.Var) -> Any:
        """The same as one dimension."""
        size = as_index(product(extent_of(n) for n in buffer.ty.shape), INDEX)
        return named(f"{buffer.name}_flat", T.decl_buffer((size,), str(buffer.ty.dtype), data=self.own(buffer).data))


class Place:
    """The coordinates of a thread.

    Attributes
    ----------
    firsts : the first row and the first column of the block's tile.
    batch : the block's place in the batch.
    thread : of the block.
    slice : of k, that it sums a part of.
    warps, lanes : of the thread, along rows and along columns.
    """

    def __init__(self, shape: CoreProduct, config: CoreConfig, parameters: Parameters) -> None:
        self.parameters = parameters
        down = kernel_extent(ceil_div(shape.rows, config.rows.block))
        across = kernel_extent(ceil_div(shape.columns, config.columns.block))
        block = named("block", T.cta_id([down * across * kernel_extent(shape.places)]))
        self.thread = named("thread", T.thread_id([config.threads]))
        tile, rest = bind("tile", block % (down * across)), block // (down * across)
        self.firsts = (
            bind("first_row", tile // across * config.rows.block),
            bind("first_column", tile % across * config.columns.block),
        )
        self.batch: dict[tirx.Var, ir.Expr] = {}
        for var in reversed(shape.batch):
            extent = kernel_extent(shape.extent(var))
            self.batch[var] = bind(var.name, rest % extent)
            rest = rest // extent
        warp, lane = bind("warp", self.thread // WARP), bind("lane", self.thread % WARP)
        inside = warp % (config.rows.warps * config.columns.warps)
        self.slice = bind("slice", warp // (config.rows.warps * config.columns.warps))
        self.warps = (
            bind("row_warp", inside // config.columns.warps),
            bind("column_warp", inside % config.columns.warps),
        )
        eight, four = lane // 2 % 8, lane % 2 + lane // 16 * 2  # so that half a warp reads eight vectors of either side
        lanes = (eight, four) if config.rows.lanes == 8 else (four, eight)
        self.lanes = bind("row_lane", lanes[0]), bind("column_lane", lanes[1])

    def at(self, expression: ir.Expr, variables: Mapping[tirx.Var, ir.Expr]) -> ir.Expr:
        """An expression over the frame at some values of variables, and at the block's place in the batch."""
        known = {**self.batch, **variables, **self.parameters.scalars}
        return placed(expression, known, self.parameters.buffers)
