"""Where an element goes that a later stage reads at other indices: a reshape or a transposition, inverted.

out[b, i, h, c] = o[b·4 + h, i, c]   at o[n, i, c]   ->   out[n // 4, i, n % 4, c]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm import ir, sym, tirx
from tvm.ir import prim

from tvm_cascade.analysis.domain import dtype_of
from tvm_cascade.analysis.extent import Extent, as_index
from tvm_cascade.transform.printer import cast


def inverted(
    indices: Sequence[ir.Expr], dims: Sequence[ir.Expr], extents: Mapping[tirx.Var, Extent]
) -> dict[tirx.Var, ir.Expr] | None:
    """The variables of indices in terms of what the indices are; None where these do not name each element once.

    Parameters
    ----------
    indices : over the variables of a stage that reads a tensor.
    dims : what stands there where the tensor is written.
    extents : of the stage's variables.
    """
    domain = {
        var: ir.Range(tirx.const(0, dtype_of(var)), as_index(extent, dtype_of(var))) for var, extent in extents.items()
    }
    moving = [(i, d) for i, d in zip(indices, dims, strict=True) if not isinstance(d, prim.IntImm)]
    found = sym.detect_iter_map([index for index, _ in moving], domain, check_level="bijective")
    if not found.indices:
        return None
    solved = sym.inverse_affine_iter_map(found.indices, [cast(dim, dtype_of(index)) for index, dim in moving])
    return {var: cast(solved[var], dtype_of(var)) for var in domain if var in solved}
