"""Pads loops to full vectors: longer buffers, and operand copies with zeros past the end.

s += if(p < 577, q[i, d] * k[p, d], 0)   ->   k_whole[p] = if(p < 577, k[p], 0);  s += q[i, d] * k_whole[p, d]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.reducers import split_reduction
from tvm_cascade.analysis.statements import replaced
from tvm_cascade.analysis.tir import (
    Extent,
    analyzer_of,
    as_index,
    domain_of,
    dtype_of,
    extent_of,
    in_buffers,
    loads_of,
    rebuilt,
    same,
    uses,
    zero_of,
)
from tvm_cascade.schedule.roles import OPERAND
from tvm_cascade.transform.dead_tiles import greatest
from tvm_cascade.transform.nest import Iter, NestBuilder, Values, load, store
from tvm_cascade.transform.printer import select


@dataclass
class PaddedCopies:
    """Copies of what a loop's products read past the end.

    Attributes
    ----------
    dtype : of loop variables.
    names : of blocks that there are already.
    """

    dtype: str
    names: set[str]
    _copies: list[tuple[tirx.Var, tirx.Var]] = field(default_factory=list)

    def buffers(self) -> list[tirx.Var]:
        """Those of the copies."""
        return [buffer for _, buffer in self._copies]

    def padded(
        self, body: tirx.Stmt, domain: dict[tirx.Var, ir.Expr], inside: Sequence[tirx.Var], along: list[tirx.Var]
    ) -> tirx.Stmt:
        """A statement that reads padded copies wherever it may read past the end of a buffer.

        Parameters
        ----------
        domain : extents of the variables that indices run over.
        inside : buffers that are long enough.
        along : variables; what is read along none of them is left as it is.
        """

        def read(access: ir.TensorLoad) -> ir.TensorLoad:
            moves = any(uses(index, along) for index in access.indices)
            if not moves or any(access.source.same_as(buffer) for buffer in inside):
                return access
            shape = _reach(access, domain)
            if shape is None or not _longer(shape, access.source.ty.shape):
                return access
            return load(self._copy(access.source, shape), list(access.indices))

        return tvm_ffi.structural_map(body, (ir.TensorLoad, read))

    def reads_inside(self, body: tirx.Stmt, domain: dict[tirx.Var, ir.Expr], inside: Sequence[tirx.Var]) -> bool:
        """Whether every read of a statement is provably in bounds."""
        known = [*inside, *self.buffers()]
        for access in loads_of(body):
            if not any(access.source.same_as(buffer) for buffer in known):
                shape = _reach(access, domain)
                if shape is None or _longer(shape, access.source.ty.shape):
                    return False
        return True

    def _copy(self, source: tirx.Var, shape: list[ir.Expr]) -> tirx.Var:
        for copied, buffer in self._copies:
            if copied.same_as(source) and tvm_ffi.structural_equal(list(buffer.ty.shape), shape):
                return buffer
        shape = [as_index(extent_of(extent), self.dtype) for extent in shape]
        buffer = tirx.decl_buffer(shape, source.ty.dtype, name=f"{source.name}_whole", layout=None)
        self._copies.append((source, buffer))
        return buffer

    def nests(self) -> list[tirx.Stmt]:
        """One nest per copy."""
        builder = NestBuilder(self.dtype, self.names)
        return [self._nest(builder, *copy) for copy in self._copies]

    @staticmethod
    def _nest(builder: NestBuilder, source: tirx.Var, buffer: tirx.Var) -> tirx.Stmt:
        shape, ends, dtype = buffer.ty.shape, source.ty.shape, builder.dtype
        iters = [Iter(dim, f"a{dim}", extent_of(extent)) for dim, extent in enumerate(shape)]

        def body(at: Values) -> list[tirx.Stmt]:
            where = [at[dim] for dim in range(len(shape))]
            exists = reduce(
                tirx.And, [prim.LT(where[d], as_index(extent_of(ends[d]), dtype)) for d in _longer(shape, ends)]
            )
            value = select(exists, load(source, where), tirx.const(0, dtype_of(source)), lazy=True)
            return [store(buffer, value, where)]

        return builder.nest(str(buffer.name), OPERAND, iters, body)


@dataclass
class LongerBuffers:
    """Buffers of a function that are replaced by longer ones."""

    _long: dict[tirx.Var, tirx.Var] = field(default_factory=dict)

    def lengthen(self, buffer: tirx.Var, extents: dict[int, Extent]) -> None:
        """Asks for other extents at some dimensions of a buffer."""
        shape = list(self.of(buffer).ty.shape)
        for dim, extent in extents.items():
            shape[dim] = as_index(extent, dtype_of(shape[dim]))
        self._long[buffer] = tirx.decl_buffer(shape, buffer.ty.dtype, name=buffer.name, layout=None)

    def of(self, buffer: tirx.Var) -> tirx.Var:
        """The replacement of a buffer; the buffer itself where there is none."""
        return self._long.get(buffer, buffer)

    def old(self) -> list[tirx.Var]:
        """The replaced buffers."""
        return list(self._long)

    def moved(self, block: s_tir.SBlock) -> s_tir.SBlock:
        """The block with the longer buffers substituted."""

        def moved(node: object) -> object:
            return in_buffers(node, self._long) if isinstance(node, (ir.Expr, tirx.Stmt)) else node

        notes = {name: moved(value) for name, value in block.annotations.items()}
        return replaced(rebuilt(block, annotations=notes), moved(block.body), moved(block.init))


def longer_loops(nest: tirx.Stmt, extents: Mapping[tirx.Var, Extent]) -> tirx.Stmt:
    """The nest with other extents of some loops, by variable."""

    def renew(loop: tirx.For) -> tirx.For:
        extent = extents.get(loop.loop_var)
        return loop if extent is None else rebuilt(loop, extent=as_index(extent, dtype_of(loop.loop_var)))

    return tvm_ffi.structural_map(nest, (tirx.For, renew))


def longer_iter(iv: tirx.IterVar, extent: Extent) -> tirx.IterVar:
    """The iterator over another extent."""
    return tirx.IterVar(domain_of(iv.var, extent), iv.var, iv.iter_type)


def reading_at(body: tirx.Stmt, var: tirx.Var, value: ir.Expr, own: Sequence[tirx.Var]) -> tirx.Stmt:
    """A block's body with another value of a variable in what it computes, stored at the same indices.

    Parameters
    ----------
    own : buffers that are read where they were, too.
    """

    def read(access: ir.TensorLoad, mutator: object) -> ir.Expr:
        if any(access.source.same_as(buffer) for buffer in own):
            return access
        return mutator.default_mutate(access)  # type: ignore[attr-defined]

    def moved(expression: ir.Expr) -> ir.Expr:
        at = (ir.Var, lambda other, _mutator: value if other.same_as(var) else other)
        return tvm_ffi.structural_mutate(expression, [(ir.TensorLoad, read), at])

    def write(place: tirx.BufferStore) -> tirx.BufferStore:
        return tirx.BufferStore(place.buffer, moved(place.value), place.indices)

    def bound(statement: tirx.Bind) -> tirx.Bind:
        return tirx.Bind(statement.var, moved(statement.value))

    return tvm_ffi.structural_map(body, [(tirx.BufferStore, write), (tirx.Bind, bound)])


def _reach(access: ir.TensorLoad, domain: dict[tirx.Var, ir.Expr]) -> list[ir.Expr] | None:
    """The shape that a buffer needs for an access, its own where that will do; None where it is not known."""
    analyzer = analyzer_of(domain)
    ends = {var: (zero_of(var), extent - 1) for var, extent in domain.items()}
    shape: list[ir.Expr] = []
    for index, extent in zip(access.indices, access.source.ty.shape, strict=True):
        if loads_of(index) or not analyzer.can_prove(index >= 0):
            return None
        if analyzer.can_prove(index < extent):
            shape.append(extent)
            continue
        most = greatest(index, ends)
        if most is None:
            return None
        shape.append(analyzer.simplify(most + 1))
    return shape


def _longer(shape: Sequence[ir.Expr], ends: Sequence[ir.Expr]) -> list[int]:
    """The dimensions in which a shape is not the other."""
    return [d for d, (new, old) in enumerate(zip(shape, ends, strict=True)) if not tvm_ffi.structural_equal(new, old)]


def guard_of(place: tirx.BufferStore) -> ir.Call | None:
    """The outermost condition that guards the stored or reduced value."""
    reduction = split_reduction(place)
    element = place.value if reduction is None else reduction[1]
    lazy = isinstance(element, ir.Call) and isinstance(element.op, ir.Op) and element.op.name.endswith("if_then_else")
    return element if lazy else None


def without_guard(body: tirx.Stmt) -> tirx.Stmt:
    """A block's body with its element computed under every condition."""

    def opened(place: tirx.BufferStore) -> tirx.BufferStore:
        guard = guard_of(place)
        if guard is None:
            return place
        at = (ir.Call, lambda call: guard.args[1] if same(call, guard) else call)
        return tirx.BufferStore(place.buffer, tvm_ffi.structural_map(place.value, at), place.indices)

    return tvm_ffi.structural_map(body, (tirx.BufferStore, opened))
