"""Gives every matrix product two plain operands in a dtype of the tensor cores, computed by maps before it.

    Σ_k (x[i, k]·s[i])·w[k, j]   →   a[i, k] = bfloat16(x[i, k]·s[i]);   Σ_k a[i, k]·w[k, j]        of a bfloat16 w
    Σ_k p[i, k]·q[j, k]          →   a = float16(p);  b = float16(q);    Σ_k a[i, k]·b[j, k]        of float8 p and q

What is computed and meets a tensor of half precision is rounded to it, as weights are in fused kernels; float8 tensors
are widened to a dtype of half precision, which has all their values, where sums of float8 products may not be narrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.expression import widens
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.statements import replaced, statements_of, with_block
from tvm_cascade.analysis.tir import as_index, dtype_of, more_than_one, same, substitute, uses, variables_of
from tvm_cascade.options import FuseOptions
from tvm_cascade.plan.cuts import map_nest, with_nests
from tvm_cascade.tile.factors import find_factors
from tvm_cascade.tile.operand import MATRIX_DTYPES, PACKED_DTYPES, plain_value

_WIDE = "float16"
"""What float8 operands are widened to, where neither is of half precision already."""


@dataclass(frozen=True)
class _Side:
    """One operand: its factors, and their dtype before they are widened."""

    factors: tuple[ir.Expr, ...]

    @property
    def load(self) -> ir.TensorLoad | None:
        return plain_value(self.factors[0]) if len(self.factors) == 1 else None

    @property
    def dtype(self) -> str:
        """The narrowest dtype that has all its values."""
        if len(self.factors) > 1:
            return dtype_of(self.factors[0])
        value = self.factors[0]
        while isinstance(value, prim.Cast) and widens(value):
            value = value.value
        return dtype_of(value)

    def is_gathered(self, stage: Stage, other: _Side) -> bool:
        """Whether it is a tensor whose neighbours in memory are none in the product, or not at plain variables."""
        if self.load is None:
            return False
        if not self.load.indices or not all(isinstance(index, ir.Var) for index in self.load.indices):
            return True
        last = self.load.indices[-1]
        shared = any(uses(factor, [last]) for factor in other.factors)
        return not more_than_one(stage.extents[last]) or (shared and not among(last, stage.reduce))


def with_plain_operands(
    program: Program, stages: Sequence[tuple[Stage, bool]], options: FuseOptions, gathered: bool = False
) -> tirx.PrimFunc:
    """The function with plain operands of half precision in those of some products that can have them.

    Parameters
    ----------
    stages : the products, and whether each stays in a cascade: then its tensors are widened, and nothing is computed
        before it.
    options : see `FuseOptions`; `tensor_cores` off leaves all as it is.
    gathered : operands are stored anew as well where neighbours in their tensors are none in the product, or they are
        not indexed by plain variables, such as the windows of a convolution.
    """
    statements = statements_of(program.root)
    nests, buffers, known = list(statements), list(program.root.alloc_buffers), list[_Stored]()
    for stage, stays in sorted(stages, key=lambda one: program.position(one[0])) if options.tensor_cores else ():
        factors = find_factors(stage)
        sides = [] if factors is None else [_Side(side) for side in (factors.left, factors.right)]
        if factors is None or (stays and any(side.load is None or not _is_given(program, side.load) for side in sides)):
            continue
        if (found := _plain(program, stage, sides, factors.rest, options, gathered, known)) is not None:
            maps, product, made = found
            at = next(k for k, nest in enumerate(nests) if nest.same_as(stage.nest))
            nests[at : at + 1] = [*maps, product]
            buffers += made
    if len(nests) == len(statements):
        return program.func
    return with_nests(program.func, program.params, nests, buffers)


def _plain(
    program: Program,
    stage: Stage,
    sides: Sequence[_Side],
    rest: Sequence[ir.Expr],
    options: FuseOptions,
    gathered: bool,
    known: list[_Stored],
) -> tuple[list[tirx.Stmt], tirx.Stmt, list[tirx.Var]] | None:
    """(maps, the product over what they store, their buffers); None where operands are plain, or cannot be.

    Operands that products before it have stored are `known`, and not stored again.
    """
    wanted = _dtypes(program, sides, options)
    if not wanted:
        return None
    apart = [side.is_gathered(stage, other) for side, other in zip(sides, reversed(sides), strict=True)]
    kept = [
        _is_plain(stage, side, dtype) and not (gathered and moved)
        for side, dtype, moved in zip(sides, wanted, apart, strict=True)
    ]
    if all(kept):
        return None
    maps: list[tirx.Stmt] = []
    made: list[tirx.Var] = []
    operands: list[ir.Expr] = []
    for side, dtype, suffix, stays, moved in zip(sides, wanted, ("left", "right"), kept, apart, strict=True):
        if stays and side.load is not None:
            operands.append(side.load)
            continue
        source = "" if side.load is None else side.load.source.name
        name = f"{source}_{dtype}" if source and side.dtype != dtype else f"{stage.buffer.name}_{suffix}"
        new = _stored(stage, side, dtype, name, moved)
        if (other := next((one for one in known if one.is_same(new)), None)) is None:
            maps.append(new.nest)
            made.append(new.buffer)
            known.append(new)
        operands.append(tirx.BufferLoad((other or new).buffer, list(new.variables)))
    dtype = dtype_of(stage.value)
    product = operands[0].astype(dtype) * operands[1].astype(dtype)
    for factor in rest:
        product = product * factor
    own = tirx.BufferLoad(stage.buffer, list(stage.indices))
    body = tirx.BufferStore(stage.buffer, own + product, list(stage.indices))
    changed = with_block(stage.nest, stage.block, replaced(stage.block, body, stage.block.init))
    return maps, changed, made


def _is_plain(stage: Stage, side: _Side, dtype: str) -> bool:
    """Whether the tensor cores take an operand as it is: float8 ones where what is summed over is contiguous."""
    if side.load is None or side.dtype != dtype:
        return False
    return MATRIX_DTYPES[dtype].implied or uses(side.load.indices[-1], stage.reduce)


def _dtypes(program: Program, sides: Sequence[_Side], options: FuseOptions) -> tuple[str, ...]:
    """The dtypes that operands should have; none where the tensor cores do not take them, or do as they are."""
    narrow = [side.dtype for side in sides if side.dtype in PACKED_DTYPES]
    implied = [dtype for dtype in narrow if MATRIX_DTYPES[dtype].implied]
    if implied:
        may_be = all(_may_be(program, side, implied[0]) for side in sides if side.dtype != implied[0])
        return (implied[0],) * len(sides) if may_be else ()
    if len(narrow) < len(sides):
        return ()
    return tuple(narrow) if options.narrow_sums else (_WIDE,) * len(sides)


def _may_be(program: Program, side: _Side, dtype: str) -> bool:
    """Whether an operand may be stored in a dtype: what is computed is rounded, tensors of the caller are widened."""
    if side.load is None or not _is_given(program, side.load):
        return True
    return widens(tirx.Cast(dtype, side.load))


def _is_given(program: Program, load: ir.TensorLoad) -> bool:
    return program.is_param(load.source) and program.writer(load.source) is None


@dataclass(frozen=True)
class _Stored:
    """A map that stores an operand: buffer[variables] = value, in the product's own variables."""

    nest: tirx.Stmt
    buffer: tirx.Var
    variables: tuple[tirx.Var, ...]
    value: ir.Expr

    def is_same(self, other: _Stored) -> bool:
        """Whether another map stores the same values at the same places."""
        if dtype_of(self.buffer) != dtype_of(other.buffer) or not same(self.buffer.ty.shape, other.buffer.ty.shape):
            return False
        return same(substitute(self.value, dict(zip(self.variables, other.variables, strict=True))), other.value)


def _stored(stage: Stage, side: _Side, dtype: str, name: str, moved: bool) -> _Stored:
    """The map that stores an operand.

    Parameters
    ----------
    moved : what is summed over becomes contiguous, whatever its tensor has there.
    """
    used = {v for factor in side.factors for v in variables_of(factor)}
    variables = [v for v in (*stage.spatial, *stage.reduce) if any(v.same_as(u) for u in used)]
    if side.load is not None and MATRIX_DTYPES[dtype].implied and not moved:
        variables = list(side.load.indices)
    extents = [stage.extents[v] for v in variables]
    shape = [as_index(extent, dtype_of(v)) for extent, v in zip(extents, variables, strict=True)]
    buffer = tirx.decl_buffer(shape, dtype, name=name, layout=None)
    value = side.factors[0]
    for factor in side.factors[1:]:
        value = value * factor

    def at(own: Sequence[tirx.Var]) -> ir.Expr:
        return substitute(value, dict(zip(variables, own, strict=True))).astype(dtype)

    return _Stored(map_nest(name, buffer, extents, at), buffer, tuple(variables), value)
