"""Pads loops to full vectors: longer buffers, and operand copies with zeros past the end.

s += if(p < 577, q[i, d] * k[p, d], 0)   ->   k_whole[p] = if(p < 577, k[p], 0);  s += q[i, d] * k_whole[p, d]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.expression import call_name
from tvm_cascade.analysis.index_sets import greatest, stay_within
from tvm_cascade.analysis.reducers import split_reduction
from tvm_cascade.analysis.statements import block_names, read_nests, replaced, resized, statements_of, with_nests
from tvm_cascade.analysis.tir import (
    Extent,
    analyzer_of,
    as_index,
    bound_by,
    dtype_of,
    extent_of,
    in_buffers,
    loads_of,
    rebuilt,
    same,
    uses,
    zero_of,
)
from tvm_cascade.schedule.nests import BlockPlan
from tvm_cascade.schedule.roles import OPERAND
from tvm_cascade.transform.nest import Iter, NestBuilder, Values, load, store
from tvm_cascade.transform.printer import select


@dataclass
class PaddedCopies:
    """Copies of what a loop's products read past the end.

    Attributes
    ----------
    builder : of their nests.
    """

    builder: NestBuilder
    _copies: list[tuple[tirx.Var, tirx.Var]] = field(default_factory=list)

    def buffers(self) -> list[tirx.Var]:
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
        read = [one for one in loads_of(body) if one.source not in {*inside, *self.buffers()}]
        return all(stay_within(one.indices, one.source.ty.shape, analyzer_of(domain)) for one in read)

    def _copy(self, source: tirx.Var, shape: list[ir.Expr]) -> tirx.Var:
        for copied, buffer in self._copies:
            if copied.same_as(source) and tvm_ffi.structural_equal(list(buffer.ty.shape), shape):
                return buffer
        shape = [as_index(extent_of(extent), self.builder.dtype) for extent in shape]
        buffer = tirx.decl_buffer(shape, source.ty.dtype, name=f"{source.name}_whole", layout=None)
        self._copies.append((source, buffer))
        return buffer

    def nests(self) -> list[tirx.Stmt]:
        return [copy_of(self.builder, *copy, str(copy[1].name), OPERAND) for copy in self._copies]


Wide = tuple[BlockPlan, Mapping[int, Extent]]
"""A nest, and axes of it that are longer, with their extents."""

Body = Callable[[s_tir.SBlock, Wide, PaddedCopies], tirx.Stmt]
"""What a block does, whose iterators are longer."""


@dataclass
class LongerBuffers:
    """Buffers of a function that are replaced by longer ones."""

    _long: dict[tirx.Var, tirx.Var] = field(default_factory=dict)

    def lengthen(self, plan: BlockPlan, wide: Mapping[int, Extent]) -> None:
        """Makes what a nest stores as much longer as some of its axes."""
        for place in plan.stores:
            shape = list(self._long.get(place.buffer, place.buffer).ty.shape)
            for dim, axis in enumerate(map(plan.axis_at, place.indices)):
                if axis is not None and axis in wide:
                    shape[dim] = as_index(wide[axis], dtype_of(shape[dim]))
            long = tirx.decl_buffer(shape, place.buffer.ty.dtype, name=place.buffer.name, layout=None)
            self._long[place.buffer] = long

    def old(self) -> list[tirx.Var]:
        return list(self._long)

    def moved(self, block: s_tir.SBlock) -> s_tir.SBlock:
        def moved(node: object) -> object:
            return in_buffers(node, self._long) if isinstance(node, (ir.Expr, tirx.Stmt)) else node

        notes = {name: moved(value) for name, value in block.annotations.items()}
        return replaced(rebuilt(block, annotations=notes), moved(block.body), moved(block.init))

    def rewritten(self, func: tirx.PrimFunc, wider: Mapping[str, Wide], body: Body) -> tirx.PrimFunc:
        """The function with some nests over longer axes; what the caller is given is computed aside, and copied.

        Parameters
        ----------
        wider : by name of the block.
        body : of a block, whose iterators are longer.
        """
        nests = read_nests(func)
        loops: dict[tirx.Var, Extent] = {}
        for nest in (mine := [nest for nest in nests if nest.block.name_hint in wider]):
            (plan, wide), bound = wider[nest.block.name_hint], bound_by(nest.realize)
            loops |= {bound[plan.variables[axis]]: extent for axis, extent in wide.items()}
        builder = NestBuilder(dtype_of(mine[0].loops[0].loop_var), {nest.block.name_hint for nest in nests})
        statements, made = list[tirx.Stmt](), list[tirx.Var]()
        for part in statements_of(func):
            copies = PaddedCopies(builder)

            def in_block(block: s_tir.SBlock, copies: PaddedCopies = copies) -> s_tir.SBlock:
                if block.name_hint not in wider:
                    return self.moved(block)
                return self.moved(replaced(block, body(block, wider[block.name_hint], copies), block.init))

            moved = tvm_ffi.structural_map(resized(part, loops), (s_tir.SBlock, in_block))
            outputs = [s.buffer for name in block_names(part) if name in wider for s in wider[name][0].stores]
            given = [b for b in outputs if b in {*func.params} & self._long.keys()]
            shortened = [copy_of(builder, self._long[b], b, f"{b.name}_copied", "") for b in given]
            statements += [*copies.nests(), moved, *shortened]
            made += [*copies.buffers(), *(self._long[b] for b in given)]
        allocated = [self._long.get(buffer, buffer) for buffer in func.body.block.alloc_buffers]
        return with_nests(func, statements, [*allocated, *made])


def copy_of(builder: NestBuilder, source: tirx.Var, buffer: tirx.Var, name: str, role: str) -> tirx.Stmt:
    """A nest that fills a buffer from another one; an operand has zeros past that one's end."""
    shape, ends = buffer.ty.shape, source.ty.shape
    iters = [Iter(dim, f"a{dim}", extent_of(extent)) for dim, extent in enumerate(shape)]
    beyond = _longer(shape, ends) if role == OPERAND else []

    def body(at: Values) -> list[tirx.Stmt]:
        where = [at[dim] for dim in range(len(shape))]
        value = load(source, where)
        if beyond:
            exists = [prim.LT(where[d], as_index(extent_of(ends[d]), builder.dtype)) for d in beyond]
            value = select(reduce(tirx.And, exists), value, tirx.const(0, dtype_of(source)), lazy=True)
        return [store(buffer, value, where)]

    return builder.nest(name, role, iters, body)


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
    return element if call_name(element) == "if_then_else" else None


def without_guard(body: tirx.Stmt) -> tirx.Stmt:
    """A block's body with its element computed under every condition."""

    def opened(place: tirx.BufferStore) -> tirx.BufferStore:
        guard = guard_of(place)
        at = (ir.Call, lambda call: call if guard is None or not same(call, guard) else guard.args[1])
        return tirx.BufferStore(place.buffer, tvm_ffi.structural_map(place.value, at), place.indices)

    return tvm_ffi.structural_map(body, (tirx.BufferStore, opened))
