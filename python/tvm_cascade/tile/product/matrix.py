"""Products of two matrices: the lines that rows, columns and the sum run along, and the operands along them.

    c[m, n] = Σ_k A[m, k]·B[n, k]        several have the left operand in common

m, n and k may be several variables each, where the tensors have them in neighbouring dimensions. What multiplies them,
tensor cores or threads, is of no concern here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import sympy as sp
import tvm_ffi
from tvm import ir, sym, tirx

from tvm_cascade.algebra.cascade import LENGTH
from tvm_cascade.analysis.extract import Member
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.tir import (
    Extent,
    as_index,
    dtype_of,
    extent_of,
    loads_of,
    more_than_one,
    product,
    same_extent,
    uses,
    variables_of,
)
from tvm_cascade.tile.estimate import exact_functions, instruction_bytes
from tvm_cascade.tile.memory import INDEX
from tvm_cascade.tile.operand import COPY_ALIGNMENT, DIMENSIONS, STORED_BYTES, Along, Operand, Unfit
from tvm_cascade.tile.output import Output, columns_beyond, member_at
from tvm_cascade.tile.product.boxes import BoxedLine, boxed_line, in_boxes, windows_of
from tvm_cascade.tile.product.fold import ProductFold, Scales, Sum, scales_of
from tvm_cascade.tile.product.lines import Line, View, in_order, line_of, runs
from tvm_cascade.transform.printer import cast

_PAIRED = ("float32", "float16", "bfloat16")
"""Dtypes of outputs of which a thread stores two elements at once, or a bulk copy boxes."""

_LONG = 128
"""Values of a variable that fill tiles of their own."""

_PIECES = (8, 4)
"""Bytes of several elements that a thread copies at once, the most first."""


@dataclass(frozen=True)
class Side:
    """An operand, and the line that it alone runs along.

    Attributes
    ----------
    load : of an element, as the program has it.
    view : of its tensor, with a dimension for its line and one for what is summed over.
    start : where its line starts in its dimension; None at the first element.
    box : the dimensions of boxes of its rows, where it is read by windows; `rows` is the innermost.
    """

    load: ir.TensorLoad
    line: Line
    view: View
    rows: int
    deep: int
    start: ir.Expr | None = None
    box: tuple[Along, ...] = ()

    @cached_property
    def operand(self) -> Operand:
        if self.box:
            return Operand(self.load.source, self.view.shape, self.view.indices, None, box=self.box)
        row = self.deep if self.across else self.rows
        return Operand(self.load.source, self.view.shape, self.view.indices, row)

    @property
    def across(self) -> bool:
        """Whether the line is its contiguous dimension, not k: products sum over its rows."""
        return self.rows == len(self.view.indices) - 1

    @property
    def dtype(self) -> str:
        return dtype_of(self.load.source)

    @property
    def bulk(self) -> bool:
        """Whether bulk copies fetch it: its rows are multiples of what they take; threads copy it elsewhere."""
        return self.row_bytes % COPY_ALIGNMENT == 0

    @property
    def piece(self) -> int:
        """Bytes that a thread copies at once, which rows are multiples of."""
        return next((n for n in _PIECES if self.row_bytes % n == 0), self.operand.size)

    @property
    def starts_anywhere(self) -> bool:
        """Whether rows are no multiples of the fewest bytes that threads copy at once."""
        return not self.bulk and self.piece < _PIECES[-1]

    @property
    def is_gathered(self) -> bool:
        """Whether data say where it is in its tensor."""
        return any(loads_of(index) for index in self.operand.indices)

    @cached_property
    def row_bytes(self) -> int:
        return self.operand.width * self.operand.size

    @cached_property
    def steps(self) -> tuple[Extent, ...]:
        shape = [extent_of(n) for n in self.view.shape]
        return tuple(product(shape[d + 1 :]) for d in range(len(shape)))

    @property
    def own_step(self) -> Extent:
        return self.steps[self.rows]

    @property
    def deep_step(self) -> Extent:
        return self.steps[self.deep]

    @property
    def base(self) -> ir.Expr:
        """The element where both lines begin, over the other variables; int64."""
        base: ir.Expr = tirx.const(0, INDEX)
        for d, (index, step) in enumerate(zip(self.view.indices, self.steps, strict=True)):
            if d not in (self.rows, self.deep):
                base = base + cast(index, INDEX) * as_index(step, INDEX)
        return base if self.start is None else base + cast(self.start, INDEX) * as_index(self.own_step, INDEX)


@dataclass(frozen=True)
class MatrixProduct:
    """Sums of products of matrices.

    Attributes
    ----------
    fold : of the function, whose states or producers the sums are.
    outputs : maps of the sums; of producers, their own tensors, which are never stored.
    left : the operand whose line is the rows of the result.
    rights : those whose line is its columns, one for each sum of products.
    inner : what products sum over, within a tile.
    scales : what products of each step along k are multiplied by before they are summed further.
    """

    fold: ProductFold
    sums: tuple[Sum, ...]
    outputs: tuple[Output, ...]
    left: Side
    rights: tuple[Side, ...]
    inner: Line
    scales: Scales | None

    def __str__(self) -> str:
        """What is summed, and what is stored, in the names of the tensors."""
        over = ", ".join(v.name for v in (*self.outer, *self.inner.parts))
        lines = [
            f"sum       {s.tensor.name} = {s.number * sp.Symbol('product')} over {over}, product = {s.left} · {s.right}"
            for s in self.sums
        ]
        lines += [f"store     {o.buffer.name}[{', '.join(map(str, o.indices))}] = {o.value}" for o in self.outputs]
        return "\n".join(lines)

    @property
    def right(self) -> Side:
        return self.rights[0]

    @property
    def sides(self) -> tuple[Side, ...]:
        return self.left, *self.rights

    @property
    def dtype(self) -> str:
        return dtype_of(self.sums[0].tensor)

    @property
    def dtypes(self) -> tuple[str, str]:
        return self.left.dtype, self.right.dtype

    @cached_property
    def exact_functions(self) -> int:
        """Special functions that outputs apply to an element, and that are not approximated."""
        return sum(exact_functions(output.value) for output in self.outputs)

    @cached_property
    def instruction_bytes(self) -> int:
        """Of the instructions that make outputs of an element."""
        return instruction_bytes(output.value for output in self.outputs)

    @cached_property
    def finishes(self) -> dict[sp.Symbol, sp.Expr]:
        """The results as formulas of the states, each a sum of products without its number."""
        lifted = {one.state: one.number * one.state for one in self.sums}
        if isinstance(length := self.extent(*self.sums[0].axis), int):
            lifted[LENGTH] = sp.Integer(length)
        found: dict[sp.Symbol, sp.Expr] = {}
        for result, formula in self.fold.group.fold.finish.items():
            found[result] = formula.xreplace(found).xreplace(lifted)
        return found

    @cached_property
    def _read(self) -> dict[ir.TensorLoad, tuple[Member | None, int]]:
        """By loads of outputs, the member whose result each reads, and how many columns beyond."""
        return {}

    def finished(self, output: Output, finish: Callable[[sp.Symbol, int], ir.Expr]) -> ir.Expr:
        """The value of an output with results in place of loads of them.

        Parameters
        ----------
        finish : (result, columns beyond the element's own) -> its value.
        """

        def result(load: ir.TensorLoad) -> ir.Expr:
            if load not in self._read:
                member = member_at(self.fold.group, load)
                self._read[load] = member, 0 if member is None else columns_beyond(member, load) or 0
            member, beyond = self._read[load]
            return load if member is None else cast(finish(member.result, beyond), dtype_of(load))

        return tvm_ffi.structural_map(output.value, (ir.TensorLoad, result))

    @cached_property
    def tiled(self) -> dict[tirx.Var, Operand]:
        lines = self.left.line, self.right.line
        return {o.buffer: view for o in self.outputs if (view := stored(o, *lines)) is not None}

    @cached_property
    def by_rows(self) -> dict[tirx.Var, Operand]:
        """Outputs of two bytes an element with contiguous rows that bulk copies do not take: warps store their rows."""
        lines = self.left.line, self.right.line
        found = {o.buffer: view for o in self.outputs if (view := in_rows(o, *lines)) is not None}
        return {one: view for one, view in found.items() if one not in self.tiled and view.size == STORED_BYTES}

    @cached_property
    def paired(self) -> tuple[tirx.Var, ...]:
        """The outputs of which neighbours in a row can be stored at once, two and two."""
        pairs = (o.buffer for o in self.outputs if in_vectors(o, self.right.line, 2))
        return tuple(buffer for buffer in pairs if dtype_of(buffer) in _PAIRED)

    @property
    def where(self) -> ir.Expr | None:
        """The condition, the same in a tile, under which there is anything to sum; None where there always is."""
        return self.sums[0].where

    @property
    def outer(self) -> tuple[tirx.Var, ...]:
        return tuple(v for v in self.sums[0].axis if not among(v, self.inner.parts))

    @cached_property
    def batch(self) -> tuple[tirx.Var, ...]:
        """The variables that both operands have, or none, or beside rows and columns."""
        packed = [*self.left.line.parts, *self.right.line.parts]
        return tuple(v for v in self.sums[0].rows if not among(v, packed))

    def extent(self, *variables: tirx.Var) -> Extent:
        return product(self.fold.extents[var] for var in variables)


def matrix_product(
    fold: ProductFold, sums: tuple[Sum, ...], outputs: tuple[Output, ...], boxed: bool = False, windows: bool = False
) -> MatrixProduct:
    """Some sums of products with the left tensor in common, and maps of them.

    Rows and columns are all variables that the left and the right operand alone run along, where tensors allow that.

    Unfit where tensors have no lines for rows, for columns and for the sum, or outputs read sums at other places.

    Parameters
    ----------
    boxed : they are the longest of these alone where bulk copies can store outputs then, and cannot else.
    windows : the left operand may be read by windows, in boxes of rows.
    """
    left, right = sums[0].left, sums[0].right
    loads = left, *(one.right for one in sums)
    fold.check_inputs(loads)
    for one, load in ((output, load) for output in outputs for load in loads_of(output.value)):
        member = member_at(fold.group, load)
        if member is not None and columns_beyond(member, load) not in range(one.every):
            raise Unfit(f"{load} reads a result at another place than its own")
    own = [_own(one, other, sums[0].rows, fold) for one, other in ((left, right), (right, left))]
    begun = [_begun(load, own[load is not left], sums[0].axis) for load in loads]
    views, starts = [view for view, _ in begun], [start for _, start in begun]
    options = [_options(view, variables, fold) for view, variables in zip(views[:2], own, strict=True)]
    if windows and (boxes := _boxes(views[0], own[0], fold)) is not None:
        options[0] = [boxes]
    inner = _inner(views, [load.source.name for load in loads], sums[0].axis, fold)
    (rows, columns), *others = itertools.product(*options)
    if boxed and not _are_boxed(outputs, rows, columns):
        long = (pair for pair in others if _are_boxed(outputs, *pair) and all(map(_is_long, pair)))
        rows, columns = next(long, (rows, columns))
    for output in outputs:
        if output.columns is not None and not columns.parts[-1].same_as(output.columns):
            raise Unfit(f"{output.buffer.name} reads neighbours along {output.columns.name}, which is no column")
    lines = rows, *(columns for _ in sums)
    if sums[0].where is not None and uses(sums[0].where, [*rows.parts, *columns.parts]):
        raise Unfit(f"{fold.name} is zero where a condition fails that changes within a tile")
    parts = zip(loads, views, starts, lines, strict=True)
    sides = [_side(load, view, start, line, inner) for load, view, start, line in parts]
    for load in (load for one in sums for load in one.bordered):
        if not (load is left and sides[0].box):
            raise Unfit(f"{load} is zero outside of {load.source.name}, which copies of its windows alone know")
    scales = scales_of(sums[0].scales, fold.name, rows, columns)
    found = MatrixProduct(fold, sums, outputs, sides[0], tuple(sides[1:]), inner, scales)
    for result, formula in found.finishes.items():
        if formula.has(LENGTH):
            raise Unfit(f"{result} counts the positions of an axis of symbolic extent")
    return found


def _are_boxed(outputs: Sequence[Output], rows: Line, columns: Line) -> bool:
    return all(stored(output, rows, columns) is not None for output in outputs)


def _is_long(line: Line) -> bool:
    """Whether tiles of their own for each value of the other variables waste little."""
    return len(line.parts) > 1 or not isinstance(line.extent, int) or line.extent >= _LONG


def _own(one: ir.TensorLoad, other: ir.TensorLoad, spatial: Sequence[tirx.Var], fold: ProductFold) -> list[tirx.Var]:
    """The variables that one operand has and the other has not; those of one value only where there are no others."""
    alone = [v for v in spatial if runs(one, v) and not runs(other, v)]
    long = [v for v in alone if more_than_one(fold.extents[v])]
    if not alone:
        raise Unfit(f"no axis of {one.source.name} is missing in {other.source.name}: there is no matrix product")
    return long or alone[-1:]


def _options(view: View, variables: Sequence[tirx.Var], fold: ProductFold) -> list[Line]:
    """The line of all variables, where the tensor allows it, and that of the contiguous one, or else of the longest."""
    ordered = in_order(view, variables)
    line = line_of(ordered, fold.extents)

    def length(var: tirx.Var) -> float:
        extent = fold.extents[var]
        return extent if isinstance(extent, int) else float("inf")

    contiguous = [v for v in ordered if view.dimension(v) == len(view.indices) - 1]
    alone = line_of([contiguous[0] if contiguous else max(ordered, key=length)], fold.extents)
    return [line, alone] if len(ordered) > 1 and view.along(line) is not None else [alone]


def _boxes(view: View, variables: Sequence[tirx.Var], fold: ProductFold) -> BoxedLine | None:
    """The line of all variables in boxes, where some have windows; None of plain rows."""
    line = line_of(in_order(view, variables), fold.extents)
    apart = view.apart(line)
    if windows_of(apart, line) is None or all(apart.dimension(v) is not None for v in line.parts):
        return None
    return boxed_line(line)


def _inner(views: Sequence[View], names: Sequence[str], axis: tuple[tirx.Var, ...], fold: ProductFold) -> Line:
    """What is summed over as one line where both tensors allow it, else the innermost variable that both have plain."""
    axis = tuple(v for v in axis if more_than_one(fold.extents[v])) or axis[-1:]
    ordered = in_order(views[0], axis)
    whole = line_of(ordered, fold.extents)
    if len(ordered) == len(axis) and all(view.along(whole) is not None for view in views):
        return whole
    for var in reversed(ordered):
        line = line_of([var], fold.extents)
        if all(view.along(line) is not None for view in views):
            return line
    raise Unfit(f"{' and '.join(names)} have no dimension that runs along {axis[-1].name} alone")


def _begun(load: ir.TensorLoad, variables: Sequence[tirx.Var], axis: Sequence[tirx.Var]) -> tuple[View, ir.Expr | None]:
    """The view of a tensor from where data say that its own line starts, and that; None at its first element.

    t[start + v, k], along v   ->   t[v, k], from start on
    """
    view = View.of(load.source, load.indices)
    for d, index in enumerate(load.indices):
        alone = variables_of(index) if isinstance(index, ir.prim.Add) else ()
        moving = [var for var in variables if among(var, alone)]
        start = sym.Analyzer().simplify(index - cast(moving[0], dtype_of(index))) if len(moving) == 1 else None
        if start is not None and loads_of(start) and not uses(start, [*variables, *axis]):
            return View(view.shape, (*view.indices[:d], moving[0], *view.indices[d + 1 :])), start
    return view, None


def _side(load: ir.TensorLoad, view: View, start: ir.Expr | None, line: Line, inner: Line) -> Side:
    """The operand with one dimension for its line and one for what is summed over."""
    deep_alone = view.along(inner)
    box = tuple[Along, ...]()
    if isinstance(line, BoxedLine):
        found = None if deep_alone is None else deep_alone.apart(line)
        box = () if found is None else windows_of(found, line) or ()
        rows = box[-1].dimension if box else None
    else:
        found = None if deep_alone is None else deep_alone.along(line)
        rows = None if found is None else found.dimension(line.var)
    deep = None if found is None else found.dimension(inner.var)
    if found is None or rows is None or deep is None:
        raise Unfit(f"{load}: no one dimension runs along {line.var.name}")
    side = Side(load, line, found, rows, deep, start, box)
    if box and not (side.bulk and deep == len(found.indices) - 1):
        raise Unfit(f"{load}: bulk copies read windows of rows of {inner.var.name}, in multiples of 16 bytes")
    if start is not None and (side.across or not side.bulk):
        raise Unfit(f"{load}: data say where it starts, which bulk copies take for rows alone")
    return side


def stored(output: Output, rows: Line, columns: Line) -> Operand | None:
    """The output as bulk copies store it, in rows of contiguous columns; None where threads store its elements."""
    found = in_rows(output, rows, columns)
    return None if found is None or found.width * found.size % COPY_ALIGNMENT else found


def in_rows(output: Output, rows: Line, columns: Line) -> Operand | None:
    """The output as rows of contiguous columns; None where it has none."""
    indices, added = output.shifted
    view, box = View.of(output.buffer, indices).along(columns), tuple[Along, ...]()
    if view is not None and isinstance(rows, BoxedLine):
        view, box = in_boxes(view, rows) or (None, ())
    elif view is not None:
        view = view.along(rows)
    if view is None or len(view.indices) > DIMENSIONS or view.dimension(columns.var) != len(view.indices) - 1:
        return None
    row, width = view.dimension(rows.var), view.shape[-1]
    if not box and (row is None or not same_extent(extent_of(view.shape[row]), rows.extent)):
        return None
    whole = not output.part and same_extent(extent_of(width), columns.extent)
    if any(added[:-1]) or not (whole or _is_part_of_columns(output, columns)):
        return None
    if not isinstance(width, ir.prim.IntImm) or dtype_of(output.buffer) not in _PAIRED:
        return None
    return Operand(output.buffer, view.shape, view.indices, row, box=box)


def _is_part_of_columns(output: Output, columns: Line) -> bool:
    """Whether it is by its column that a result is an element of the output."""
    return bool(output.part) and all(v.same_as(columns.var) for c in output.part for v in variables_of(c))


def in_vectors(output: Output, columns: Line, count: int) -> bool:
    """Whether so many columns, from a multiple on, are neighbours in memory there, from a multiple on as well."""
    indices, added = output.shifted
    view, last = View.of(output.buffer, indices), columns.parts[-1]
    multiples = extent_of(view.shape[-1]), columns.extents[-1], added[-1]
    aligned = all(isinstance(n, int) and n % count == 0 for n in multiples)
    return aligned and view.dimension(last) == len(view.indices) - 1
