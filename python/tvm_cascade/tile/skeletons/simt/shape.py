"""Matrix products for CUDA cores.

    T[i, j] = Σ over k of A[i, k]·B[j, k]       out = a map of T and of inputs

Any operand may run along k or along its own side in memory, or have neighbours in neither, and be of any dtype that is
converted to that of the sum.
"""

from __future__ import annotations

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.program import Program
from tvm_cascade.tile.fragment import NEIGHBOURS
from tvm_cascade.tile.operand import MATRIX_DTYPES, Unfit
from tvm_cascade.tile.product.fold import check_summed, read_fold
from tvm_cascade.tile.product.matrix import MatrixProduct, choices_of

SUMMED = ("float32", "float64", "int32")
"""The dtypes that CUDA cores sum products in."""

_SUMMED_BY_TENSOR_CORES = ("float32",)

CONVERTED = (*SUMMED, "float16", "bfloat16", "int8", "uint8")
"""The dtypes that operands may have."""


def read_core_product(program: Program, group: Group) -> MatrixProduct:
    """The product that a group is.

    Raises
    ------
    Unfit
        Where it is none, or the function has more to do than the product and maps of its results.
    """
    fold = read_fold(program, group, parts=True, together=len(NEIGHBOURS))
    sums = fold.sums(1)
    check_summed(fold.tensors, SUMMED, f"CUDA cores sum in {', '.join(SUMMED)}")
    choices = choices_of(fold, sums, fold.outputs)
    shape = choices.product(*choices.lines[0])
    for side in shape.sides:
        if side.dtype not in CONVERTED:
            raise Unfit(f"{side.load.source.name} is {side.dtype}, none of {', '.join(CONVERTED)}")
    return shape


def is_of_halves(shape: MatrixProduct) -> bool:
    """Whether both operands are of one dtype that the tensor cores multiply into the sum's with nothing lost."""
    kind = MATRIX_DTYPES.get(shape.left.dtype)
    if kind is None or kind.option or shape.dtype not in _SUMMED_BY_TENSOR_CORES:
        return False
    return shape.right.dtype in kind.partners
