"""Reads a product for CUDA cores: where the elements of both operands lie.

    T[i, j] = Σ over k of A[i, k]·B[j, k]       out = a map of T and of inputs

Any operand may run along k or along its own side in memory, or have neighbours in neither, and be of any dtype that is
converted to that of the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tvm import ir, tirx

from tvm_cascade.analysis.extent import Extent, as_index, extent_of, product
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.frame import lookup
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.tile.memory import INDEX
from tvm_cascade.tile.operand import MATRIX_DTYPES, Unfit
from tvm_cascade.tile.product.lines import Line, View
from tvm_cascade.tile.product.terms import Terms, read_terms
from tvm_cascade.transform.printer import cast

SUMMED = ("float32", "float64", "int32")
"""The dtypes that CUDA cores sum products in."""

_SUMMED_BY_TENSOR_CORES = ("float32",)

CONVERTED = (*SUMMED, "float16", "bfloat16", "int8", "uint8")
"""The dtypes that operands may have."""


@dataclass(frozen=True)
class Factor:
    """An operand of a product: its element [i, k] is at base + own·i + depth·k of the tensor.

    Attributes
    ----------
    buffer : the tensor.
    line : the side of the result that it alone runs along.
    base : over the other variables; int64.
    own, depth : elements from one i, and from one k, to the next.
    width : elements of the tensor's contiguous dimension.
    """

    buffer: tirx.Var
    line: Line
    base: ir.Expr
    own: Extent
    depth: Extent
    width: Extent

    @property
    def dtype(self) -> str:
        """Of its elements in memory."""
        return dtype_of(self.buffer)


@dataclass(frozen=True)
class CoreProduct:
    """A product for CUDA cores.

    Attributes
    ----------
    terms : what is summed.
    row, column : the lines of the result.
    left, right : the operands, with rows and with columns.
    """

    terms: Terms
    row: Line
    column: Line
    left: Factor
    right: Factor

    def __str__(self) -> str:
        (component,), sides = self.terms.group.fold.components, " · ".join(map(str, self.terms.loads))
        over = ", ".join(v.name for v in self.terms.group.frame.axis)
        return f"{component.owner} = {self.terms.lift} summed over {over} in {self.dtype}, product = {sides}"

    @property
    def operands(self) -> tuple[Factor, Factor]:
        """Left and right."""
        return self.left, self.right

    @cached_property
    def dtype(self) -> str:
        """Of the sum."""
        return dtype_of(self.terms.group.members[0].stage.buffer)

    @property
    def is_of_halves(self) -> bool:
        """Whether both operands are of one dtype that the tensor cores multiply into the sum's with nothing lost."""
        kind = MATRIX_DTYPES.get(self.left.dtype)
        if kind is None or kind.option or self.dtype not in _SUMMED_BY_TENSOR_CORES:
            return False
        return self.right.dtype in kind.partners

    @property
    def rows(self) -> Extent:
        """Of the result."""
        return self.row.extent

    @property
    def columns(self) -> Extent:
        """Of the result."""
        return self.column.extent

    @property
    def depth(self) -> Extent:
        """Of the innermost sum, which tiles run along."""
        return self.terms.inner.extent

    @property
    def outer(self) -> Extent:
        """How often that sum is taken again, at other places of the operands."""
        return product(self.extent(var) for var in self.terms.outer)

    @property
    def places(self) -> Extent:
        """Points of the batch."""
        return product(self.extent(var) for var in self.batch)

    @cached_property
    def batch(self) -> tuple[tirx.Var, ...]:
        """The other variables of the result."""
        return self.terms.batch(self.row, self.column)

    def extent(self, var: tirx.Var) -> Extent:
        """Extent of a variable of the frame."""
        return lookup(self.terms.group.frame.extents, var)


def read_core_product(program: Program, group: Group) -> CoreProduct:
    """The product that a group is.

    Raises
    ------
    Unfit
        Where it is none, or the function has more to do than the product and maps of its results.
    """
    terms = read_terms(program, group, SUMMED, f"CUDA cores sum in {', '.join(SUMMED)}")
    lines = terms.choices[0]
    terms.check_columns(lines[1])
    left, right = (
        _factor(load, view, line, terms.inner) for load, view, line in zip(terms.loads, terms.views, lines, strict=True)
    )
    return CoreProduct(terms, *lines, left, right)


def _factor(load: ir.TensorLoad, view: View, line: Line, inner: Line) -> Factor:
    if dtype_of(load.source) not in CONVERTED:
        raise Unfit(f"{load.source.name} is {dtype_of(load.source)}, none of {', '.join(CONVERTED)}")
    found = view.along(inner)
    found = None if found is None else found.along(line)
    rows = None if found is None else found.dimension(line.var)
    deep = None if found is None else found.dimension(inner.var)
    if found is None or rows is None or deep is None:
        raise Unfit(f"{load}: no one dimension runs along {line.var.name}")
    shape = [extent_of(n) for n in found.shape]
    steps = [product(shape[d + 1 :]) for d in range(len(shape))]
    base: ir.Expr = tirx.const(0, INDEX)
    for d, (index, step) in enumerate(zip(found.indices, steps, strict=True)):
        if d not in (rows, deep):
            base = base + cast(index, INDEX) * as_index(step, INDEX)
    return Factor(load.source, line, base, steps[rows], steps[deep], shape[-1])
