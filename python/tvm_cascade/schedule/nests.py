"""Nests of one block each, read from a function: loops, iterators and accesses in terms of axes.

An axis is a small integer. Where a nest is read by itself, its axes are its loops, outermost first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import ir, sym, tirx
from tvm.ir import prim

from tvm_cascade.analysis.order import independent
from tvm_cascade.analysis.statements import LoopNest, nests_in, read_nests, realized_block, statements_of, with_nests
from tvm_cascade.analysis.tir import Extent, extent_of, loads_of, product, substitute, within
from tvm_cascade.transform.nest import OPAQUE


@dataclass(frozen=True)
class Access:
    """One load of a block, in the block's own variables."""

    buffer: tirx.Var
    indices: tuple[ir.Expr, ...]


@dataclass(frozen=True)
class BlockPlan:
    """A block of a nest, in terms of axes.

    Attributes
    ----------
    name, role : of the block; the role is "" where the rewrite gave none.
    variables : the block's variable of each axis.
    own : the axes of its loops below the shared ones, outermost first.
    extents : of those axes.
    reduce : the axes that it reduces.
    stores : its stores, in order.
    loads : its loads, those of its own output left out.
    binds : it names intermediate values by statements, which TVM's vectoriser loses.
    independent : its iterations may run in any order, and at once (`analysis.order`).
    """

    name: str
    role: str
    variables: dict[int, tirx.Var]
    own: tuple[int, ...]
    extents: dict[int, Extent]
    reduce: frozenset[int]
    stores: tuple[tirx.BufferStore, ...]
    loads: tuple[Access, ...]
    binds: bool
    independent: bool

    @property
    def dtype(self) -> str:
        return str(self.stores[0].buffer.ty.dtype)

    @property
    def is_plain(self) -> bool:
        """Whether it is one store of the program's own, for points in any order, without intermediate values."""
        return len(self.stores) == 1 and self.independent and not self.binds and not self.role

    @property
    def spatial(self) -> tuple[int, ...]:
        """Its axes that it does not reduce."""
        return tuple(axis for axis in self.own if axis not in self.reduce)

    def axis_at(self, index: ir.Expr) -> int | None:
        return next((a for a, v in self.variables.items() if v.same_as(index)), None)

    def last_axis(self) -> int | None:
        """The axis along which its output is contiguous; None for a scalar."""
        indices = self.stores[0].indices
        return self.axis_at(indices[-1]) if indices else None

    def moves(self, index: ir.Expr, axis: int) -> int | None:
        """What an index grows by from one position of an axis to the next; None where that varies."""
        if axis not in self.variables:
            return 0
        change = sym.Analyzer().simplify(substitute(index, {self.variables[axis]: self.variables[axis] + 1}) - index)
        return int(change) if isinstance(change, prim.IntImm) else None

    def step(self, access: Access, axis: int) -> int | None:
        """Elements between two neighbours along an axis; None where that varies or is not known."""
        shape = [extent_of(extent) for extent in access.buffer.ty.shape]
        total = 0
        for dim, index in enumerate(access.indices):
            moved, stride = self.moves(index, axis), product(shape[dim + 1 :])
            if moved is None or (moved != 0 and not isinstance(stride, int)):
                return None
            total += moved * stride if isinstance(stride, int) else 0
        return total

    def lies_beside(self, axis: int) -> bool:
        """Whether what it reads is contiguous along an axis, or the same."""
        return all(self.step(access, axis) in (0, 1) for access in self.loads)

    @property
    def is_static(self) -> bool:
        """Whether the extents of all its loops are numbers."""
        return all(isinstance(extent, int) for extent in self.extents.values())

    def axes_of(self, access: Access) -> frozenset[int]:
        return frozenset(a for a in self.own if self.step(access, a) != 0)


Written = tuple[list[tirx.Stmt], list[tirx.Var]]
"""Nests in place of one, and buffers that they need."""


def rewritten(func: tirx.PrimFunc, rewrite: Callable[[LoopNest, BlockPlan], Written | None]) -> tirx.PrimFunc:
    """The function with what is written for its nests of one block that is read; the same object where nothing is.

    Parameters
    ----------
    func : of plain nests and fused loops, not scheduled; it is not modified.
    rewrite : (a nest, its plan) -> what is in its place; None where it stays.
    """
    statements, made, changed = list[tirx.Stmt](), list[tirx.Var](), False
    for statement in statements_of(func):
        nests = nests_in(statement) if realized_block(statement) is not None else []
        written = rewrite(nests[0], plan_nest(nests[0])) if nests else None
        changed = changed or written is not None
        statements += [statement] if written is None else written[0]
        made += [] if written is None else written[1]
    return with_nests(func, statements, [*func.body.block.alloc_buffers, *made]) if changed else func


def plan_alone(func: tirx.PrimFunc) -> list[BlockPlan]:
    """Every block of a function as a nest by itself; those that could not be read are left out."""
    return [plan_nest(nest) for nest in read_nests(func) if nest.role != OPAQUE]


def plan_nest(nest: LoopNest, outer: int = 0, axes: Sequence[int] | None = None) -> BlockPlan:
    """A nest in terms of axes.

    Parameters
    ----------
    outer : loops that it shares with others, which are none of its own.
    axes : of its own loops, in order; numbered from 0 by default.
    """
    block, own = nest.block, nest.bound(outer)
    axes = tuple(range(len(own)) if axes is None else axes)
    reduced = {iv.var for iv in block.iter_vars if iv.iter_type == tirx.IterVar.CommReduce}
    accesses = [Access(load.source, tuple(load.indices)) for load in loads_of(block.body)]
    return BlockPlan(
        block.name_hint,
        nest.role,
        {axis: var for axis, (var, _) in zip(axes, own, strict=True)},
        axes,
        {axis: extent_of(loop.extent) for axis, (_, loop) in zip(axes, own, strict=True)},
        frozenset(axis for axis, (var, _) in zip(axes, own, strict=True) if var in reduced),
        nest.stores,
        tuple(access for access in accesses if access.buffer not in {*nest.written}),
        bool(within(block.body, tirx.Bind)),
        independent(block),
    )
