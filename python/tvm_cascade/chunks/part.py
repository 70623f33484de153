"""A function over a part of its rows: buffers have the part's extent, and all else reads the position on the whole.

    s[i, j] = q[i, d]·k[j, d] where j ≤ i     →     s[i, j] = q[i, d]·k[j, d] where j ≤ i + i_offset,  i < length

Which dimensions of buffers are the rows follows from the loops: two that one variable indexes are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir, tirx

from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.statements import in_its_loops, replaced, resized, with_block
from tvm_cascade.analysis.tir import (
    Classes,
    Extent,
    Places,
    as_index,
    bound_by,
    dtype_of,
    in_buffers,
    loads_of,
    substitute,
    within,
)
from tvm_cascade.errors import SplitError
from tvm_cascade.transform.assemble import with_statements

Dimension = tuple[tirx.Var, int]
"""A buffer, and the number of one of its dimensions."""


@dataclass(frozen=True)
class Rows:
    """An axis of a function: all that runs along it.

    Attributes
    ----------
    variables : of blocks.
    dimensions : of each buffer, those that these variables index.
    otherwise : an index into one of these dimensions that is no such variable; None where there is none.
    """

    program: Program
    variables: frozenset[tirx.Var]
    dimensions: Mapping[tirx.Var, tuple[int, ...]]
    otherwise: ir.TensorLoad | None

    def dimension(self, buffer: tirx.Var) -> int | None:
        """The dimension of a buffer along the axis; None where it has none."""
        found = self.dimensions.get(buffer, ())
        if len(found) > 1:
            raise SplitError("one dimension of a tensor along an axis", f"dimensions {found}", buffer.name)
        return found[0] if found else None

    @property
    def summed(self) -> tuple[tirx.Var, ...]:
        """The buffers that are sums over the axis.

        Raises
        ------
        SplitError
            When something else than a sum of results reduces over the axis.
        """
        found = [stage for stage in self.program.stages if not self.variables.isdisjoint(stage.reduce)]
        for stage in found:
            if stage.reducer is not SUM or not self.program.is_param(stage.buffer):
                raise SplitError("independent rows, or results that are sums over them", stage.name, stage.name)
        return tuple(stage.buffer for stage in found)


def rows_of(program: Program, seeds: Iterable[Dimension]) -> Rows:
    """The axis of a program that some dimensions of its buffers are.

    Raises
    ------
    SplitError
        When a nest that cannot be read uses one of its buffers.
    """
    classes, accesses = Classes(), list(_accesses(program))
    variables = {var for stage in program.stages for var in (*stage.spatial, *stage.reduce)}
    for load in accesses:
        for d, index in enumerate(load.indices):
            if index in variables:
                classes.join((load.source, d), index)
    own = {classes.of((buffer, d)) for buffer, d in seeds}
    dimensions: dict[tirx.Var, tuple[int, ...]] = {}
    for one in [one for one in classes.parents if isinstance(one, tuple) and classes.of(one) in own]:
        buffer, d = one
        dimensions[buffer] = tuple(sorted({*dimensions.get(buffer, ()), d}))
    found = frozenset(var for var in variables if classes.of(var) in own)
    otherwise = (load for load in accesses for d in dimensions.get(load.source, ()) if load.indices[d] not in found)
    if unread := [b for one in program.opaque for b in (*one.reads, *one.writes) if b in dimensions]:
        raise SplitError("rows of nests that can be read", f"one that uses {unread[0].name}", unread[0].name)
    return Rows(program, found, dimensions, next(otherwise, None))


def _accesses(program: Program) -> Iterator[ir.TensorLoad]:
    """All loads of a program, and its stores as loads."""
    for stage in program.stages:
        yield tirx.BufferLoad(stage.buffer, list(stage.indices))
        yield from loads_of(stage.value)


def over_a_part(rows: Rows, length: Extent, name: str) -> tirx.PrimFunc:
    """The function over a part of its rows, whose first position is its number `offset_of(name)` where it reads it.

    Parameters
    ----------
    length : of the part.
    name : of the axis.

    Raises
    ------
    SplitError
        When a tensor is read along the axis at anything but a row itself.
    """
    program = rows.program
    if rows.otherwise is not None:
        raise SplitError(f"tensors read at {name} itself", str(rows.otherwise), f"rows {name}")
    buffers = {buffer: _like(buffer, rows.dimension(buffer), length) for buffer in rows.dimensions}
    part = _Part(rows, buffers, length, tirx.Var(offset_of(name), dtype_of(next(iter(rows.variables)))))
    statements = [part.of(nest) if _runs_along(nest, rows) else nest for nest in program.statements]
    called = (program.func.attrs or {}).get("global_symbol", "main")
    return with_statements(program, f"{called}_rows", statements, buffers)


def offset_of(name: str) -> str:
    """The number of a part's function that says where it begins along an axis."""
    return f"{name}_offset"


def _like(buffer: tirx.Var, dimension: int | None, length: Extent) -> tirx.Var:
    shape = list(buffer.ty.shape)
    if dimension is not None:
        shape[dimension] = as_index(length, dtype_of(shape[dimension]))
    return tirx.decl_buffer(shape, dtype_of(buffer), name=buffer.name, layout=None)


def _runs_along(nest: tirx.Stmt, rows: Rows) -> bool:
    return any(one.var in rows.variables for one in within(nest, tirx.IterVar))


@dataclass(frozen=True)
class _Part:
    """A part of some rows: the buffers that stand for those of all, and where it begins."""

    rows: Rows
    buffers: Mapping[tirx.Var, tirx.Var]
    length: Extent
    offset: tirx.Var

    def of(self, nest: tirx.Stmt) -> tirx.Stmt:
        """A nest over the part."""
        realize = in_its_loops(nest)
        block, bound = realize.block, bound_by(realize)
        own = [one.var for one in block.iter_vars if one.var in self.rows.variables]
        body, init = (
            None if code is None else at_a_part(code, own, self.buffers, self.rows.dimension, self.offset)
            for code in (block.body, block.init)
        )
        placed = with_block(nest, block, replaced(block, body, init))
        return resized(placed, {bound[var]: self.length for var in own if isinstance(bound[var], ir.Var)})


def at_a_part(
    code: Any,
    along: Sequence[tirx.Var],
    buffers: Mapping[tirx.Var, tirx.Var],
    dimension: Callable[[tirx.Var], int | None],
    first: ir.Expr,
    places: Places = lambda _buffer, indices: indices,
) -> Any:
    """Code over a part of an axis: it reads the part's own buffers at positions within it, and all else on the whole.

    Parameters
    ----------
    along : the variables that run along the axis.
    buffers : those of the part, by those of the whole in whose place they stand.
    dimension : of a buffer of the whole, that which is the axis; None where it has none.
    first : position of the part on the whole.
    places : in a buffer of the part, by indices into that of the whole.
    """
    within_part = {var: tirx.Var("local", var.ty) for var in along}

    def at(buffer: tirx.Var, indices: Sequence[ir.Expr]) -> Sequence[ir.Expr]:
        axis = dimension(buffer)
        return places(buffer, [substitute(e, within_part) if d == axis else e for d, e in enumerate(indices)])

    moved = substitute(in_buffers(code, buffers, at), {var: var + first.astype(dtype_of(var)) for var in along})
    return substitute(moved, {local: var for var, local in within_part.items()})
