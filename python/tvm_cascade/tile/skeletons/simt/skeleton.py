"""The core skeleton's table row: matrix products on CUDA cores.

    T[i, j] = Σ over k of A[i, k]·B[j, k]       out = a map of T and of inputs

Any operand may run along k or along its own side in memory, or have neighbours in neither, and be of any dtype that is
converted to that of the sum.
"""

from __future__ import annotations

from tvm import tirx

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.program import Program
from tvm_cascade.devices.device import Instructions
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.cost import Counts
from tvm_cascade.tile.estimate import Work
from tvm_cascade.tile.fragment import NEIGHBOURS
from tvm_cascade.tile.launch.dependent import Launch
from tvm_cascade.tile.operand import MATRIX_DTYPES, Unfit
from tvm_cascade.tile.product.fold import check_summed, read_fold
from tvm_cascade.tile.product.matrix import MatrixProduct, matrix_product
from tvm_cascade.tile.skeleton import Setting, Skeleton
from tvm_cascade.tile.skeletons.simt.config import CoreConfig, counts_of, ranked_core_configs
from tvm_cascade.tile.skeletons.simt.kernel import CoreKernel

SUMMED = ("float32", "float64", "int32")
"""The dtypes that CUDA cores sum products in."""

_SUMMED_BY_TENSOR_CORES = ("float32",)

CONVERTED = (*SUMMED, "float16", "bfloat16", "int8", "uint8")
"""The dtypes that operands may have."""


def read_core_product(program: Program, group: Group) -> MatrixProduct:
    """The product that a group is; see `Skeleton.read`."""
    fold = read_fold(program, group, parts=True, together=len(NEIGHBOURS))
    sums = fold.sums(1)
    check_summed(fold.tensors, SUMMED, f"CUDA cores sum in {', '.join(SUMMED)}")
    shape = matrix_product(fold, sums, fold.outputs)
    for side in shape.sides:
        if side.dtype not in CONVERTED:
            raise Unfit(f"{side.load.source.name} is {side.dtype}, none of {', '.join(CONVERTED)}")
    return shape


def _is_of_halves(shape: MatrixProduct) -> bool:
    """Whether both operands are of one dtype that the tensor cores multiply into the sum's with nothing lost."""
    kind = MATRIX_DTYPES.get(shape.left.dtype)
    if kind is None or kind.option or shape.dtype not in _SUMMED_BY_TENSOR_CORES:
        return False
    return shape.right.dtype in kind.partners


class CoreSkeleton(Skeleton[MatrixProduct, CoreConfig]):
    """Products of two matrices that tensor cores do not take, and maps of their elements."""

    name, kind, covers = "cores", "CUDA-core kernel", "matrix products on CUDA cores"
    instructions = frozenset({Instructions.PTX})
    option = "row_kernels"
    last = True

    def read(self, program: Program, group: Group, options: FuseOptions) -> MatrixProduct:
        return read_core_product(program, group)

    def alternatives(self, program: MatrixProduct, setting: Setting) -> list[CoreConfig]:
        return ranked_core_configs(program, setting.gpu)

    def lacks(self, program: MatrixProduct, config: CoreConfig, setting: Setting) -> str:
        """Also where tensor cores take the operands as they are."""
        if setting.gpu.instructions - self.instructions and setting.options.tensor_cores and _is_of_halves(program):
            return (
                f"{' and '.join(str(side.load) for side in program.sides)} are {program.left.dtype}, for tensor cores"
            )
        reason = config.why_not(program, setting.gpu)
        return f"{config}: {reason}" if reason else ""

    def emit(self, program: MatrixProduct, config: CoreConfig, name: str, _launch: Launch) -> tirx.PrimFunc:
        return CoreKernel(program, config).build(name)

    def counts(self, program: MatrixProduct, config: CoreConfig, work: Work, setting: Setting) -> Counts:
        return counts_of(config, program, setting.gpu)._replace(work=Work(work.bytes))

    def fast_math(self, program: MatrixProduct) -> bool:
        """Never: small numbers are kept, and maps are exact."""
        return False
