"""Reads the product shape: a matrix product, and maps of its elements.

    c[m, n] = Σ_k A[m, k]·B[n, k]        out[m, n] = map of c[m, n] and of inputs

Either operand has k or its own variable in its contiguous dimension. m, n and k may be several variables each, where
the tensors have them in neighbouring dimensions. Nothing here goes by name: the shape is read off the index maps.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.analysis.expression import AtomTable
from tvm_cascade.analysis.extent import Extent, extent_of, more_than_one, same_extent
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.frame import lookup
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.tir import dtype_of, uses
from tvm_cascade.tile.operand import (
    COPY_ALIGNMENT,
    MATRIX_DTYPES,
    Operand,
    Unfit,
    check_partners,
    is_copied,
    plain_value,
)
from tvm_cascade.tile.output import Output, read_outputs
from tvm_cascade.tile.skeletons.product.lines import Line, View, in_order, line_of

_WIDEST = "float32"
"""What products are summed in."""

_PAIRED = ("float32", "float16", "bfloat16")
"""Dtypes of outputs of which a thread stores two elements at once."""

_PIECES = (8, 4)
"""Bytes of several elements that a thread copies at once, the most first."""

_LONG = 128
"""Values of a variable that fill tiles of their own."""

_DIMENSIONS = 5
"""Of a tensor, for bulk tensor copies."""


@dataclass(frozen=True)
class Side:
    """An operand, and the line that it alone runs along.

    Attributes
    ----------
    across : the line is its contiguous dimension, not k: products sum over its rows.
    load : of an element, as the program has it.
    """

    operand: Operand
    line: Line
    across: bool
    load: ir.TensorLoad

    @property
    def bulk(self) -> bool:
        """Whether bulk copies fetch it: its rows are multiples of what they take; threads copy it elsewhere."""
        return self._row_bytes % COPY_ALIGNMENT == 0

    @property
    def piece(self) -> int:
        """Bytes that a thread copies at once, which rows are multiples of."""
        return next((n for n in _PIECES if self._row_bytes % n == 0), self.operand.size)

    @property
    def _row_bytes(self) -> int:
        return self.operand.width * self.operand.size


@dataclass(frozen=True)
class MatrixProduct:
    """A group that has the product shape.

    Attributes
    ----------
    left, right : the operands; their lines are the rows and the columns of the result.
    inner : what products sum over, within a tile.
    outer : the other variables that they sum over.
    batch : the variables that both operands have, or none.
    lift : an element over the symbol of its product A·B.
    product : that symbol.
    tiled : the outputs that bulk copies store, by their buffers.
    paired : the outputs of which neighbours in a row can be stored at once, two and two.
    """

    program: Program
    group: Group
    left: Side
    right: Side
    inner: Line
    outer: tuple[tirx.Var, ...]
    batch: tuple[tirx.Var, ...]
    lift: sp.Expr
    product: sp.Symbol
    outputs: tuple[Output, ...]
    tiled: dict[tirx.Var, Operand]
    paired: tuple[tirx.Var, ...]

    @property
    def fold(self) -> Fold:
        """What is computed."""
        return self.group.fold

    def extent(self, var: tirx.Var) -> Extent:
        """Extent of a variable of the frame."""
        return lookup(self.group.frame.extents, var)

    @property
    def sides(self) -> tuple[Side, Side]:
        """Both operands."""
        return self.left, self.right

    @property
    def dtypes(self) -> tuple[str, str]:
        """Of the operands."""
        return self.left.operand.dtype, self.right.operand.dtype


def read_product(program: Program, group: Group) -> MatrixProduct:
    """The product shape of a group.

    Raises
    ------
    Unfit
        Where the group does not have it, or the function has more to do than the group and maps of its results.
    """
    outputs, results = read_outputs(program, group)
    group = dataclasses.replace(group, fold=group.fold.restricted_to(results))
    lift, symbol, loads = _factors(group)
    left, right = _ordered(loads, outputs)
    spatial = [v for v in group.frame.extents if not any(v.same_as(k) for k in group.frame.axis)]
    own = [_own(one, other, spatial, group) for one, other in ((left, right), (right, left))]
    views = [View(tuple(load.source.ty.shape), tuple(load.indices)) for load in (left, right)]
    lines = _lines(views, own, outputs, group)
    inner = _inner(views, [load.source.name for load in (left, right)], group)
    sides = _side(left, views[0], lines[0], inner), _side(right, views[1], lines[1], inner)
    check_partners(sides[0].operand, sides[1].operand)
    packed = [*lines[0].parts, *lines[1].parts, *inner.parts]
    rest = [v for v in group.frame.extents if not any(v.same_as(p) for p in packed)]
    outer = tuple(v for v in rest if any(v.same_as(k) for k in group.frame.axis))
    batch = tuple(v for v in rest if not any(v.same_as(o) for o in outer))
    tiled = {o.buffer: view for o in outputs if (view := _stored(o, lines[0], lines[1])) is not None}
    paired = tuple(o.buffer for o in outputs if _is_paired(o, lines[1]))
    return MatrixProduct(program, group, *sides, inner, outer, batch, lift, symbol, outputs, tiled, paired)


def _factors(group: Group) -> tuple[sp.Expr, sp.Symbol, tuple[ir.TensorLoad, ir.TensorLoad]]:
    """The lift over the symbol of a product of two tensors, and their loads."""
    fold, name = group.fold, ", ".join(group.names)
    if len(fold.components) != 1 or fold.references or fold.components[0].reducer is not SUM:
        raise Unfit(f"{name} is no one sum")
    if dtype_of(group.members[0].stage.buffer) not in (_WIDEST, *MATRIX_DTYPES):
        raise Unfit(f"{name} is summed in {dtype_of(group.members[0].stage.buffer)}, the tensor cores sum in {_WIDEST}")
    table = AtomTable(())
    forms = {atom.symbol: table.form(atom.expression) for atom in group.atoms.atoms.values()}
    factor, symbols = fold.components[0].lift.xreplace(forms).as_coeff_mul()
    loads = [plain_value(table.sources[s]) for s in symbols if s in table.sources]
    if len(symbols) != 2 or len(loads) != 2 or loads[0] is None or loads[1] is None:
        raise Unfit(f"{name} sums {group.members[0].element}, which is no product of two tensors")
    symbol = sp.Symbol("product", real=True)
    return factor * symbol, symbol, (loads[0], loads[1])


def _uses(load: ir.TensorLoad, var: tirx.Var) -> bool:
    return any(uses(index, [var]) for index in load.indices)


def _ordered(
    loads: tuple[ir.TensorLoad, ir.TensorLoad], outputs: Sequence[Output]
) -> tuple[ir.TensorLoad, ir.TensorLoad]:
    """The loads so that the second runs along the contiguous dimension of the outputs."""
    one, other = loads
    for index in (output.indices[-1] for output in outputs if output.indices):
        if isinstance(index, ir.Var) and _uses(one, index) != _uses(other, index):
            return (other, one) if _uses(one, index) else (one, other)
    return one, other


def _own(one: ir.TensorLoad, other: ir.TensorLoad, spatial: Sequence[tirx.Var], group: Group) -> list[tirx.Var]:
    """The variables that one operand has and the other has not; those of one value only where there are no others."""
    alone = [v for v in spatial if _uses(one, v) and not _uses(other, v)]
    long = [v for v in alone if more_than_one(lookup(group.frame.extents, v))]
    if not alone:
        raise Unfit(f"no axis of {one.source.name} is missing in {other.source.name}: there is no matrix product")
    return long or alone[-1:]


def _lines(
    views: Sequence[View], own: Sequence[Sequence[tirx.Var]], outputs: Sequence[Output], group: Group
) -> tuple[Line, Line]:
    """The lines of both operands: of all their variables, or of the longest where bulk copies can store those alone."""
    rows, columns = (_options(view, variables, group) for view, variables in zip(views, own, strict=True))
    choices = list(itertools.product(rows, columns))
    stored = [c for c in choices if all(_stored(output, *c) is not None for output in outputs)]
    return next((c for c in stored if c is choices[0] or all(_is_long(line) for line in c)), choices[0])


def _options(view: View, variables: Sequence[tirx.Var], group: Group) -> list[Line]:
    """The line of all variables, where the tensor allows it, and that of the contiguous one, or else of the longest."""
    ordered = in_order(view, variables)
    line = line_of(ordered, [lookup(group.frame.extents, v) for v in ordered])

    def length(var: tirx.Var) -> float:
        extent = lookup(group.frame.extents, var)
        return extent if isinstance(extent, int) else float("inf")

    contiguous = [v for v in ordered if view.dimension(v) == len(view.indices) - 1]
    single = contiguous[0] if contiguous else max(ordered, key=length)
    alone = line_of([single], [lookup(group.frame.extents, single)])
    return [line, alone] if len(ordered) > 1 and view.along(line) is not None else [alone]


def _is_long(line: Line) -> bool:
    """Whether tiles of their own for each value of the other variables waste little."""
    return len(line.parts) > 1 or not isinstance(line.extent, int) or line.extent >= _LONG


def _inner(views: Sequence[View], names: Sequence[str], group: Group) -> Line:
    """What is summed over as one line where both tensors allow it, else the innermost variable that both have plain."""
    axis, extents = group.frame.axis, group.frame.extents
    axis = tuple(v for v in axis if more_than_one(lookup(extents, v))) or axis[-1:]
    whole = line_of(in_order(views[0], axis), [lookup(extents, v) for v in in_order(views[0], axis)])
    if len(whole.parts) == len(axis) and all(view.along(whole) is not None for view in views):
        return whole
    for var in reversed(in_order(views[0], axis)):
        line = line_of([var], [lookup(extents, var)])
        if all(view.along(line) is not None for view in views):
            return line
    raise Unfit(f"{' and '.join(names)} have no dimension that runs along {axis[-1].name} alone")


def _side(load: ir.TensorLoad, view: View, line: Line, inner: Line) -> Side:
    """The operand with one dimension for its line and one for what is summed over, one of which is contiguous."""
    found = view.along(inner)
    found = None if found is None else found.along(line)
    rows = None if found is None else found.dimension(line.var)
    deep = None if found is None else found.dimension(inner.var)
    if found is None or rows is None or deep is None:
        raise Unfit(f"{load}: no one dimension runs along {line.var.name}")
    if not same_extent(extent_of(found.shape[deep]), inner.extent):
        raise Unfit(f"{load}: {inner.var.name} runs over a part of the dimension alone")
    last = len(found.indices) - 1
    if last not in (rows, deep):
        raise Unfit(f"{load}: the last dimension runs along neither {line.var.name} nor {inner.var.name}")
    if not isinstance(found.shape[-1], ir.prim.IntImm):
        raise Unfit(f"{load}: the contiguous dimension has a symbolic extent")
    if len(found.indices) > _DIMENSIONS:
        raise Unfit(f"{load}: bulk tensor copies take five dimensions at most")
    operand = Operand(load.source, found.shape, found.indices, rows if last == deep else deep)
    if operand.dtype not in MATRIX_DTYPES:
        raise Unfit(f"{operand}: {operand.dtype} is none of {', '.join(MATRIX_DTYPES)}")
    if operand.size == 1 and last == rows:
        raise Unfit(f"{load}: the tensor cores multiply {operand.dtype} where {inner.var.name} is contiguous")
    return Side(operand, line, last == rows, load)


def _stored(output: Output, rows: Line, columns: Line) -> Operand | None:
    """The output as bulk copies store it, in rows of contiguous columns; None where threads store its elements."""
    view: View | None = View(tuple(output.buffer.ty.shape), tuple(output.indices))
    for line in (columns, rows):
        view = None if view is None else view.along(line)
    if view is None or len(view.indices) > _DIMENSIONS or view.dimension(columns.var) != len(view.indices) - 1:
        return None
    row, width = view.dimension(rows.var), view.shape[-1]
    if row is None or not same_extent(extent_of(view.shape[row]), rows.extent):
        return None
    if (
        not same_extent(extent_of(width), columns.extent)
        or not isinstance(width, ir.prim.IntImm)
        or not is_copied(output.buffer, int(width))
    ):
        return None
    return Operand(output.buffer, view.shape, view.indices, row)


def _is_paired(output: Output, columns: Line) -> bool:
    """Whether columns 2k and 2k + 1 of every row are neighbours in memory, with the first at an even place."""
    last, width = columns.parts[-1], columns.extents[-1]
    view = View(tuple(output.buffer.ty.shape), tuple(output.indices))
    even = extent_of(output.buffer.ty.shape[-1]), width
    known = dtype_of(output.buffer) in _PAIRED and all(isinstance(n, int) and n % 2 == 0 for n in even)
    return known and view.dimension(last) == len(view.indices) - 1
