"""Reshapes and transpositions: index maps between stages, and tensor views.

out[b, i, h, c] = o[b·4 + h, i, c]   at o[n, i, c]             ->   out[n // 4, i, n % 4, c]
t[b, i, h·64 + c] of [B, S, 4·64], along c below 64            ->   t[b, i, h, c] of [B, S, 4, 64]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm import ir, sym, tirx
from tvm.ir import prim

from tvm_cascade.analysis.tir import Extent, as_index, dtype_of, extent_of, uses
from tvm_cascade.transform.printer import cast


def inverted(
    indices: Sequence[ir.Expr], dims: Sequence[ir.Expr], extents: Mapping[tirx.Var, Extent]
) -> dict[tirx.Var, ir.Expr] | None:
    """The inverse of an index map; None where it is no bijection.

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
    scaled = (split for index in found.indices for split in index.args if extent_of(split.scale) not in (1, -1))
    if not found.indices or next(scaled, None) is not None:  # every other place alone, by 2·v, is no bijection
        return None
    solved = sym.inverse_affine_iter_map(found.indices, [cast(dim, dtype_of(index)) for index, dim in moving])
    return {var: cast(solved[var], dtype_of(var)) for var in domain if var in solved}


def taken_apart(
    shape: Sequence[ir.Expr], indices: Sequence[ir.Expr], var: tirx.Var, extent: Extent
) -> tuple[tuple[ir.Expr, ...], tuple[ir.Expr, ...]]:
    """The shape and indices of a view with a separate dimension for a variable; those given where there is none.

    Parameters
    ----------
    shape, indices : of a compact tensor, and where an element of it is.
    extent : of the variable.
    """
    analyzer = sym.Analyzer()
    for d, index in enumerate(indices):
        width, own = as_index(extent, dtype_of(index)), cast(var, dtype_of(index))
        start = analyzer.simplify(index - own)
        whole = cast(shape[d], dtype_of(index))
        if not uses(index, [var]) or isinstance(index, ir.Var) or uses(start, [var]):
            continue
        if all(analyzer.can_prove_equal(tirx.floormod(e, width), 0) for e in (start, whole)):
            outer, first = (analyzer.simplify(tirx.floordiv(e, width)) for e in (whole, start))
            return (*shape[:d], outer, width, *shape[d + 1 :]), (*indices[:d], first, var, *indices[d + 1 :])
    return tuple(shape), tuple(indices)
