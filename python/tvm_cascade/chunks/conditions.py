"""Axes whose elements come from several tensors, one part each: states of the parts, and their merge.

    k[j < prefix ? shared[h, j] : own[b, h, j − prefix]]     →     the shared part is read once for all b, the own apart

As one loop such an axis is no matrix product, and what is shared looks as if every row had its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.expression import selection_of
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.tir import loads_of, uses
from tvm_cascade.chunks.assemble import cut_into, joined_function
from tvm_cascade.chunks.cut import Chunk, Cut, axis_that_is_cut
from tvm_cascade.chunks.pieces import in_pieces
from tvm_cascade.chunks.single_fold import SingleFold, single_fold
from tvm_cascade.chunks.state import state_of
from tvm_cascade.errors import SplitError
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.assemble import index_dtype

_BOUNDARIES = {prim.LT: 0, prim.GE: 0, prim.LE: 1, prim.GT: 1}
"""What is added to c in axis < c, axis >= c, axis <= c and axis > c for the first position of the later part."""

_MIRRORED = {prim.LT: prim.GT, prim.GE: prim.LE, prim.LE: prim.GE, prim.GT: prim.LT}


def apart_at_conditions(func: tirx.PrimFunc, options: FuseOptions, processors: int = 1) -> tirx.PrimFunc | None:
    """The function with an axis of several tensors as one part for each; None where it has no such axis.

    rewrite: o = Σ_j p(j < c ? a[j] : b[j − c])
          →  o₀ = Σ_{j < c} p(a[j]);  o₁ = Σ_j p(b[j]);  o = merge(o₀, o₁)

    Inputs and results are the same.

    Parameters
    ----------
    processors : that share the work of a part; see `in_pieces`.
    """
    if not any(isinstance(condition, tuple(_BOUNDARIES)) for condition, *_ in _selections(func.body)):
        return None
    try:
        fold = single_fold(func, options)
    except SplitError:
        return None
    state = state_of(fold.group, [param.name for param in fold.program.params])
    (whole,) = cut_into(fold, state, [_everything(fold)], cuts_inputs=False)
    length = whole.group.frame.extents[whole.axis]
    bounds = sorted(set(_boundaries(whole)))
    if not isinstance(length, int) or not (inside := [b for b in bounds if 0 < b < length]):
        return None
    dtype, ends = index_dtype(fold.program), [*inside, length]
    starts = [0, *inside]
    chunks = [Chunk(end - start, tirx.const(start, dtype)) for start, end in zip(starts, ends, strict=True)]
    chunks = [in_pieces(part, processors) for part in cut_into(fold, state, chunks, cuts_inputs=False)]
    parts = cut_into(fold, state, chunks, numbered=True, cuts_inputs=False)
    joined = joined_function(fold, state, parts, params=fold.program.params)
    return joined.with_attrs(dict(func.attrs)) if func.attrs is not None else joined


def _everything(fold: SingleFold) -> Chunk:
    """The whole axis as one chunk."""
    length = fold.group.frame.extents[axis_that_is_cut(fold.group)]
    return Chunk(length, tirx.const(0, index_dtype(fold.program)))


def _boundaries(whole: Cut) -> Iterator[int]:
    """Positions at which elements begin to come from another tensor."""
    for reader in whole.readers:
        if reader.axis is None:
            continue
        for condition, one, other in _selections(reader.expression):
            bound = _boundary(condition, reader.axis)
            if bound is not None and not _alike(one, other, reader.axis):
                yield bound


def _selections(expression: ir.Expr | tirx.Stmt) -> list[tuple[ir.Expr, ir.Expr, ir.Expr]]:
    found: list[tuple[ir.Expr, ir.Expr, ir.Expr]] = []

    def note(node: ir.Expr) -> None:
        if (parts := selection_of(node)) is not None:
            found.append(parts)

    tvm_ffi.structural_walk(expression, [(prim.Select, note), (ir.Call, note)])
    return found


def _boundary(condition: ir.Expr, axis: tirx.Var) -> int | None:
    """Where a comparison of the axis with a number changes; None for any other condition."""
    kind = type(condition)
    if kind not in _BOUNDARIES:
        return None
    left, right = condition.a, condition.b
    if isinstance(left, prim.IntImm):
        left, right, kind = right, left, _MIRRORED[kind]
    plain = isinstance(left, ir.Var) and left.same_as(axis) and isinstance(right, prim.IntImm)
    return int(right) + _BOUNDARIES[kind] if plain else None


def _alike(one: ir.Expr, other: ir.Expr, axis: tirx.Var) -> bool:
    """Whether two values read the same tensors along the axis: a mask is no boundary."""
    read = [[load.source for load in loads_of(value) if uses(load, [axis])] for value in (one, other)]
    return not read[0] or not read[1] or all(among(buffer, read[1]) for buffer in read[0])
