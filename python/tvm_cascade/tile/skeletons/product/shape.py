"""Matrix products for tensor cores: one, or two with the left operand in common, and maps of their elements.

    c[m, n] = Σ_k A[m, k]·B[n, k]        out[m, n] = map of c[m, n] and of inputs

Either operand has k or its own variable in its contiguous dimension. A single product may have scales of blocks of k.
"""

from __future__ import annotations

from tvm import ir

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.tir import extent_of, same_extent
from tvm_cascade.tile.fragment import NEIGHBOURS
from tvm_cascade.tile.operand import DIMENSIONS, MATRIX_DTYPES, TRANSPOSED_BYTES, Unfit, check_partners
from tvm_cascade.tile.output import Output
from tvm_cascade.tile.product.fold import ProductFold, Sum, check_summed, read_fold
from tvm_cascade.tile.product.lines import Line
from tvm_cascade.tile.product.matrix import MatrixProduct, Side, matrix_product

DEPTH_BYTES = 128
"""Bytes of a row of an operand in one pipeline stage: the widest swizzle."""

SUMMED_IN = "the tensor cores sum in float32"
"""Of products, in words."""

MOST_SUMS = 2
"""Of products with the left operand in common: more would leave tiles narrow."""


def read_product(program: Program, group: Group) -> MatrixProduct:
    """The product that a group is; see `Skeleton.read`."""
    fold = read_fold(program, group, parts=True, together=len(NEIGHBOURS))
    sums = fold.sums(MOST_SUMS, scaled=True, borders=True)
    check_summed(fold.tensors, tuple(MATRIX_DTYPES), SUMMED_IN)
    shape = for_tensor_cores(fold, sums, fold.outputs, windows=True)
    depth = DEPTH_BYTES // shape.left.operand.size
    if shape.scales is not None and (shape.outer or not shape.scales.same_along(shape.inner, depth)):
        raise Unfit(f"{fold.name}: scales change within {depth} positions of {shape.inner.var.name}")
    return shape


def for_tensor_cores(
    fold: ProductFold, sums: tuple[Sum, ...], outputs: tuple[Output, ...], windows: bool = False
) -> MatrixProduct:
    """Sums of products, and maps of them; Unfit where operands are not stored as tensor cores or copies take them.

    Parameters
    ----------
    windows : see `matrix_product`.
    """
    shape = matrix_product(fold, sums, outputs, boxed=True, windows=windows)
    if shape.scales is not None and shape.left.box:
        raise Unfit(f"{fold.name}: scales of rows that are read by windows")
    for side in shape.sides:
        _check_side(side, shape.inner)
    for right in shape.rights:
        check_partners(shape.left.operand, right.operand)
        if _layout(right) != _layout(shape.right):
            raise Unfit(f"{right.load} and {shape.right.load} differ in their layout")
    return shape


def _layout(side: Side) -> tuple[str, bool, bool, int]:
    return side.dtype, side.across, side.bulk, side.piece


def _check_side(side: Side, inner: Line) -> None:
    load, shape, last = side.load, side.view.shape, len(side.view.shape) - 1
    if not same_extent(extent_of(shape[side.deep]), inner.extent):
        raise Unfit(f"{load}: {inner.var.name} runs over a part of the dimension alone")
    if last not in (side.rows, side.deep):
        raise Unfit(f"{load}: the last dimension runs along neither {side.line.var.name} nor {inner.var.name}")
    if not isinstance(shape[-1], ir.prim.IntImm):
        raise Unfit(f"{load}: the contiguous dimension has a symbolic extent")
    if len(shape) > DIMENSIONS:
        raise Unfit(f"{load}: bulk tensor copies take five dimensions at most")
    if side.dtype not in MATRIX_DTYPES:
        raise Unfit(f"{side.operand}: {side.dtype} is none of {', '.join(MATRIX_DTYPES)}")
    if side.operand.size != TRANSPOSED_BYTES and side.across:
        raise Unfit(f"{load}: the tensor cores multiply {side.dtype} where {inner.var.name} is contiguous")
