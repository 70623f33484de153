"""Reads the product shape: a matrix product, or two with the left operand in common, and maps of their elements.

    c[m, n] = Σ_k A[m, k]·B[n, k]        out[m, n] = map of c[m, n] and of inputs

Either operand has k or its own variable in its contiguous dimension. m, n and k may be several variables each, where
the tensors have them in neighbouring dimensions. Nothing here goes by name: the shape is read off the index maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.algebra.fold import Fold
from tvm_cascade.analysis.extent import Extent, extent_of, same_extent
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.frame import lookup
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.tir import dtype_of, loads_of, variables_of
from tvm_cascade.tile.operand import (
    COPY_ALIGNMENT,
    MATRIX_DTYPES,
    TRANSPOSED_BYTES,
    Operand,
    Unfit,
    check_partners,
)
from tvm_cascade.tile.output import Output, read_outputs
from tvm_cascade.tile.product.lines import Line, View
from tvm_cascade.tile.product.scales import ScaledSum, Scales, read_scaled_sum, scales_of
from tvm_cascade.tile.product.terms import PRODUCT, Terms, ordered, read_terms, terms_of

DEPTH_BYTES = 128
"""Bytes of a row of an operand in one pipeline stage: the widest swizzle."""

SUMMED_IN = "the tensor cores sum in float32"
"""Of products, in words."""

_PAIRED = ("float32", "float16", "bfloat16")
"""Dtypes of outputs of which a thread stores two elements at once, or a bulk copy boxes."""

_PIECES = (8, 4)
"""Bytes of several elements that a thread copies at once, the most first."""

MOST_SUMS = 2
"""Of products with the left operand in common: more would leave tiles narrow."""

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
        return self.row_bytes % COPY_ALIGNMENT == 0

    @property
    def piece(self) -> int:
        """Bytes that a thread copies at once, which rows are multiples of."""
        return next((n for n in _PIECES if self.row_bytes % n == 0), self.operand.size)

    @property
    def is_gathered(self) -> bool:
        """Whether data say where it is in its tensor."""
        return any(loads_of(index) for index in self.operand.indices)

    @property
    def row_bytes(self) -> int:
        """Of a row of the tensor."""
        return self.operand.width * self.operand.size


@dataclass(frozen=True)
class MatrixProduct:
    """A group that has the product shape.

    Attributes
    ----------
    left : the operand whose line is the rows of the result.
    rights : those whose line is its columns, one for each sum of products.
    inner : what products sum over, within a tile.
    outer : the other variables that they sum over.
    batch : the variables that both operands have, or none.
    lifts : an element of each sum over the symbol of its product A·B.
    product : that symbol.
    tiled : the outputs that bulk copies store, by their buffers.
    paired : the outputs of which neighbours in a row can be stored at once, two and two.
    scales : what products of each step along k are multiplied by before they are summed further.
    """

    program: Program
    group: Group
    left: Side
    rights: tuple[Side, ...]
    inner: Line
    outer: tuple[tirx.Var, ...]
    batch: tuple[tirx.Var, ...]
    lifts: tuple[sp.Expr, ...]
    product: sp.Symbol
    outputs: tuple[Output, ...]
    tiled: dict[tirx.Var, Operand]
    paired: tuple[tirx.Var, ...]
    scales: Scales | None = None

    def __str__(self) -> str:
        """What is summed, and what is stored, in the names of the tensors."""
        over = ", ".join(v.name for v in (*self.outer, *self.inner.parts))
        sums = zip(self.fold.components, self.lifts, self.rights, strict=True)
        lines = [
            f"sum       {c.owner} = {lift} over {over}, product = {self.left.load} · {right.load}"
            for c, lift, right in sums
        ]
        lines += [f"store     {o.buffer.name}[{', '.join(map(str, o.indices))}] = {o.value}" for o in self.outputs]
        return "\n".join(lines)

    @property
    def fold(self) -> Fold:
        """What is computed."""
        return self.group.fold

    def extent(self, var: tirx.Var) -> Extent:
        """Extent of a variable of the frame."""
        return lookup(self.group.frame.extents, var)

    @property
    def right(self) -> Side:
        """The first operand on the right; the others are alike."""
        return self.rights[0]

    @property
    def sides(self) -> tuple[Side, ...]:
        """All operands."""
        return self.left, *self.rights

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
    found = read_scaled_sum(program, group)
    if found is not None:
        return _scaled(program, group, found)
    return product_of(read_terms(program, group, tuple(MATRIX_DTYPES), SUMMED_IN, MOST_SUMS))


def _scaled(program: Program, group: Group, found: ScaledSum) -> MatrixProduct:
    """The product shape of a sum of scaled products."""
    outputs, results = read_outputs(program, group, parts=True)
    group = replace(group, fold=group.fold.restricted_to(results))
    lifts = (found.number * PRODUCT,)
    terms = terms_of(program, group, outputs, ordered(found.loads, outputs), lifts, tuple(MATRIX_DTYPES), SUMMED_IN)
    shape = product_of(terms)
    scales = scales_of(found, group, shape.left.line, shape.right.line)
    depth = DEPTH_BYTES // shape.left.operand.size
    if shape.outer or not scales.same_along(shape.inner, depth):
        raise Unfit(f"{', '.join(group.names)}: scales change within {depth} positions of {shape.inner.var.name}")
    return replace(shape, scales=scales)


def product_of(terms: Terms) -> MatrixProduct:
    """The product shape of sums of products.

    Raises
    ------
    Unfit
        Where operands are not stored as tensor cores or copies take them.
    """
    rows, columns = _lines(terms)
    terms.check_columns(columns)
    lines = (rows, *(columns for _ in terms.lifts))
    loads = zip(terms.loads, terms.views, lines, strict=True)
    left, *rights = (_side(load, view, line, terms.inner) for load, view, line in loads)
    _check_alike(left, rights)
    tiled = {o.buffer: view for o in terms.outputs if (view := _stored(o, rows, columns)) is not None}
    paired = tuple(o.buffer for o in terms.outputs if _is_paired(o, columns))
    return MatrixProduct(
        terms.program, terms.group, left, tuple(rights), terms.inner, terms.outer, terms.batch(rows, columns),
        terms.lifts, terms.product, terms.outputs, tiled, paired,
    )  # fmt: skip


def _check_alike(left: Side, rights: Sequence[Side]) -> None:
    """Whether the operands on the right meet the left one in the same way."""
    for right in rights:
        check_partners(left.operand, right.operand)
        kinds = [(s.operand.dtype, s.across, s.bulk, s.piece) for s in (right, rights[0])]
        if kinds[0] != kinds[1]:
            raise Unfit(f"{right.load} and {rights[0].load} differ in their layout")


def _lines(terms: Terms) -> tuple[Line, Line]:
    """The lines of both operands: of all their variables, or of the longest where bulk copies can store those alone."""
    first = terms.choices[0]
    stored = [c for c in terms.choices if all(_stored(output, *c) is not None for output in terms.outputs)]
    return next((c for c in stored if c is first or all(_is_long(line) for line in c)), first)


def _is_long(line: Line) -> bool:
    """Whether tiles of their own for each value of the other variables waste little."""
    return len(line.parts) > 1 or not isinstance(line.extent, int) or line.extent >= _LONG


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
    if operand.size != TRANSPOSED_BYTES and last == rows:
        raise Unfit(f"{load}: the tensor cores multiply {operand.dtype} where {inner.var.name} is contiguous")
    return Side(operand, line, last == rows, load)


def _stored(output: Output, rows: Line, columns: Line) -> Operand | None:
    """The output as bulk copies store it, in rows of contiguous columns; None where threads store its elements."""
    indices, added = output.shifted
    view: View | None = View(tuple(output.buffer.ty.shape), indices)
    for line in (columns, rows):
        view = None if view is None else view.along(line)
    if view is None or len(view.indices) > _DIMENSIONS or view.dimension(columns.var) != len(view.indices) - 1:
        return None
    row, width = view.dimension(rows.var), view.shape[-1]
    if row is None or not same_extent(extent_of(view.shape[row]), rows.extent):
        return None
    whole = not output.part and same_extent(extent_of(width), columns.extent)
    if any(added[:-1]) or not (whole or _is_part_of_columns(output, columns)):
        return None
    if not isinstance(width, ir.prim.IntImm) or dtype_of(output.buffer) not in _PAIRED:
        return None
    if int(width) * MATRIX_DTYPES[dtype_of(output.buffer)].size % COPY_ALIGNMENT:
        return None
    return Operand(output.buffer, view.shape, view.indices, row)


def _is_part_of_columns(output: Output, columns: Line) -> bool:
    """Whether it is by its column that a result is an element of the output."""
    return bool(output.part) and all(v.same_as(columns.var) for c in output.part for v in variables_of(c))


def _is_paired(output: Output, columns: Line) -> bool:
    """Whether columns 2k and 2k + 1 of every row are neighbours in memory, with the first at an even place."""
    last, width = columns.parts[-1], columns.extents[-1]
    indices, added = output.shifted
    view = View(tuple(output.buffer.ty.shape), indices)
    even = extent_of(output.buffer.ty.shape[-1]), width, added[-1]
    known = dtype_of(output.buffer) in _PAIRED and all(isinstance(n, int) and n % 2 == 0 for n in even)
    return known and view.dimension(last) == len(view.indices) - 1
