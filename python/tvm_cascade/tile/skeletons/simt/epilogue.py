"""The epilogue of a product for CUDA cores: maps of the sums of a thread's register tile, and their stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.extent import extent_of
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.tile.emit import bind, kernel_extent, put, registers, when
from tvm_cascade.tile.fragment import TilePrinter
from tvm_cascade.tile.memory import VECTOR_BYTES, Tensors, itemsize
from tvm_cascade.tile.output import Output, columns_beyond, member_at
from tvm_cascade.tile.product.lines import View
from tvm_cascade.tile.skeletons.simt.config import CoreConfig
from tvm_cascade.tile.skeletons.simt.shape import CoreProduct
from tvm_cascade.tile.skeletons.simt.tiles import Fragment
from tvm_cascade.transform.printer import cast


class Epilogue:
    """Emits the epilogue.

    Parameters
    ----------
    batch : the block's place in the batch.
    firsts : the first row and the first column of its tile.
    fragments : the thread's, of the operands.
    """

    def __init__(
        self, shape: CoreProduct, config: CoreConfig, tensors: Tensors, batch: Mapping[tirx.Var, ir.Expr],
        firsts: Sequence[ir.Expr], fragments: Sequence[Fragment],
    ) -> None:  # fmt: skip
        self.shape, self.config, self.tensors = shape, config, tensors
        self.batch, self.firsts, self.fragments = batch, firsts, fragments

    def emit(self, sums: Any, rows: int, own: ir.Expr | int) -> None:
        """Stores every output.

        Parameters
        ----------
        sums : the thread's registers, of so many of its rows from its `own`-th on; every slice has others.
        """
        self.sums = sums
        count, (left, right), firsts = self._together(), self.fragments, self.firsts
        for i in range(rows):
            row = bind("row", firsts[0] + left.index(own + i))
            with _inside(row, self.shape.rows, self.config.rows.block):
                for j in range(0, self.config.columns.own, count):
                    column = bind("column", firsts[1] + right.index(j))
                    with _inside(column, self.shape.columns, self.config.columns.block):
                        for output in self.shape.terms.outputs:
                            self._store(output, i, j, row, column, count)

    def _together(self) -> int:
        """Neighbouring columns that a thread has, and that are inside together."""
        layout, extent = self.fragments[1].layout, self.shape.columns
        whole = isinstance(extent, int) and extent % layout.vector == 0
        return layout.vector if whole else max(output.every for output in self.shape.terms.outputs)

    def _store(self, output: Output, i: int, j: int, row: ir.Expr, column: ir.Expr, count: int) -> None:
        width = min(count, VECTOR_BYTES // itemsize(dtype_of(output.buffer)))
        own = self.tensors.own_of(output.buffer)
        if width == 1 or not self._in_vectors(output, width):
            for e in range(0, count, output.every):
                with self._where(output, row, column + e):
                    value = self._value(output, i, j + e, row, column + e)
                    T.buffer_store(own, value, self._indices(output, row, column + e))
            return
        staged = registers(f"{output.buffer.name}_stored", count, dtype_of(output.buffer))
        for e in range(count):
            put(staged, e, self._value(output, i, j + e, row, column + e))
        for part in range(0, count, width):
            indices = self._indices(output, row, column + part)
            last = tirx.floordiv(indices[-1], width) * width
            source = tirx.Ramp(tirx.const(part, "int32"), tirx.const(1, "int32"), width)
            target = [*indices[:-1], tirx.Ramp(last, tirx.const(1, dtype_of(last)), width)]
            T.buffer_store(own, tirx.BufferLoad(staged, [source]), target)

    def _where(self, output: Output, row: ir.Expr, column: ir.Expr) -> Any:
        """Around what is stored for a row and a column, where the output may have no element for them."""
        conditions = [self._at(condition, row, column) for condition in output.part]
        return when(tirx.all(*conditions)) if conditions else nullcontext()

    def _in_vectors(self, output: Output, width: int) -> bool:
        """Whether neighbouring columns are neighbours of an output, and vectors of them aligned."""
        last = self.shape.column.parts[-1]
        view = View(tuple(output.buffer.ty.shape), tuple(output.indices))
        widths = self.shape.column.extents[-1], extent_of(output.buffer.ty.shape[-1])
        aligned = all(isinstance(extent, int) and extent % width == 0 for extent in widths)
        return aligned and not output.part and view.dimension(last) == len(view.indices) - 1

    def _at(self, expression: ir.Expr, row: ir.Expr, column: ir.Expr) -> ir.Expr:
        places = {**self.batch, **self.shape.row.places(row), **self.shape.column.places(column)}
        return self.tensors.place(expression, places)

    def _indices(self, output: Output, row: ir.Expr, column: ir.Expr) -> list[ir.Expr]:
        return [self._at(index, row, column) for index in output.indices]

    def _value(self, output: Output, i: int, j: int, row: ir.Expr, column: ir.Expr) -> ir.Expr:
        """What is stored of one sum."""
        fold, terms = self.shape.terms.group.fold, self.shape.terms
        component = fold.components[0]
        total = terms.lift.xreplace({terms.product: component.symbol})
        first = i * self.config.columns.own + j

        def result(load: ir.TensorLoad) -> ir.Expr:
            member = member_at(self.shape.terms.group, load)
            if member is None:
                return load
            finish = fold.finish[member.result].xreplace({component.symbol: total})
            symbols = {component.symbol: self.sums[first + (columns_beyond(member, load) or 0)]}
            return cast(TilePrinter(symbols, self.shape.dtype, {})(finish), dtype_of(load))

        value = tvm_ffi.structural_map(output.value, (ir.TensorLoad, result))
        return cast(self._at(value, row, column), dtype_of(output.buffer))


def _inside(place: ir.Expr, extent: Any, block: int) -> Any:
    """Around what is stored at a row or a column of a tile."""
    whole = isinstance(extent, int) and extent % block == 0
    return nullcontext() if whole else when(place < kernel_extent(extent))
