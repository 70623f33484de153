"""Reductions of contiguous rows as lanes of whole vectors and what is left of a row.

    for i in n, j in m: y[i] += e(x[i, j])
    ->  for i in n:
            for lane in 64, strip in m // 64:  y_lanes[lane] += e(x[i, 64·strip + lane])
            for lane in 64:                    y_rest[lane] = lane < m % 64 ? e(x[i, 64·(m // 64) + lane]) : 0
            for lane in 8, strip in 8:         y_vector[lane] += y_lanes[8·strip + lane] + y_rest[8·strip + lane]
            for lane in 8:                     y[i] += y_vector[lane]

Which axis runs along the lanes is a matter of what lies side by side in memory, which is known where extents are not.
A length that vectors divide leaves no rest.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from tvm import ir, s_tir, sym, tirx
from tvm.ir import prim

from tvm_cascade.analysis.reducers import combiner_of, split_reduction, starts_at_identity, stores_at_once
from tvm_cascade.analysis.statements import (
    LoopNest,
    block_names,
    nests_in,
    read_nests,
    renewed,
    replaced,
    statements_of,
    unused,
    with_block,
)
from tvm_cascade.analysis.tir import as_index, dtype_of, extent_of, reads_buffer, rebuilt, substitute
from tvm_cascade.devices.device import Cpu
from tvm_cascade.schedule.microkernel import product_alone
from tvm_cascade.schedule.nest_schedule import power_of_two_divisor
from tvm_cascade.schedule.nests import BlockPlan, Written, plan_nest, rewritten
from tvm_cascade.schedule.row_fold import MAX_VECTORS
from tvm_cascade.transform.nest import Iter, NestBuilder, Values, load, store
from tvm_cascade.transform.printer import select
from tvm_cascade.transform.tiling import GATHERED_LANES, LANE, STRIP, row_width

LANES, GATHER = "row lanes", "gather"
"""Roles of the blocks that fill the lanes of a row, and of the one that reduces them."""


def rows_in_lanes(func: tirx.PrimFunc, cpu: Cpu) -> tirx.PrimFunc:
    """The function with the rows of such reductions in lanes; the same object where there are none.

    Parameters
    ----------
    func : plain nests, not scheduled.
    cpu : whose vectors lanes are for.
    """
    names = {name for nest in statements_of(func) for name in block_names(nest)}

    def in_lanes(nest: LoopNest, plan: BlockPlan) -> Written | None:
        if plan.role or not plan.own or not plan.independent or not _is_split(plan, nest.block):
            return None
        if product_alone(plan, cpu) is not None or (width := _width(plan, cpu)) == 1:
            return None
        rows = _Rows(plan, nest.block, width, names - {plan.name})
        return rows.nests(), rows.lanes

    return rewritten(func, in_lanes)


def _reduces_contiguous_rows(plan: BlockPlan) -> bool:
    """Whether the innermost loop is reduced, over data that are contiguous along it."""
    last = plan.own[-1]
    steps = [plan.step(access, last) for access in plan.loads]
    rows_first = plan.own[: len(plan.spatial)] == plan.spatial
    return last in plan.reduce and rows_first and len(plan.stores) == 1 and 1 in steps and not plan.binds


def reduction_lanes(plan: BlockPlan, block: s_tir.SBlock, cpu: Cpu) -> int:
    """Elements that a reduction in a nest of its own takes at once; 1 where it reads none side by side."""
    if _is_split(plan, block):
        return _width(plan, cpu)
    axis = plan.last_axis()
    extent = None if axis is None or axis in plan.reduce else plan.extents[axis]
    if axis is None or not isinstance(extent, int) or not plan.lies_beside(axis) or plan.binds:
        return 1
    return power_of_two_divisor(extent, MAX_VECTORS * cpu.lanes(plan.dtype))


def _width(plan: BlockPlan, cpu: Cpu) -> int:
    lanes = cpu.lanes(plan.dtype)
    return row_width(plan.extents[plan.own[-1]], lanes, MAX_VECTORS * lanes)


def _is_split(plan: BlockPlan, block: s_tir.SBlock) -> bool:
    """Whether a block reduces contiguous rows whose outputs do not lie side by side as well."""
    if len(plan.own) != len(block.iter_vars) or plan.dtype == "bool" or not _reduces_contiguous_rows(plan):
        return False
    axis, reduction = plan.last_axis(), split_reduction(plan.stores[0])
    if reduction is None or not isinstance(block.init, tirx.BufferStore):
        return False
    beside = axis is not None and axis not in plan.reduce and plan.lies_beside(axis)
    return starts_at_identity(reduction[0], block.init.value) and plan.lies_beside(plan.own[-1]) and not beside


class _Rows:
    """One reduction in lanes.

    Attributes
    ----------
    lanes : buffers that hold them: of whole vectors, of what is left of a row, and few that those are folded into.
    """

    def __init__(self, plan: BlockPlan, block: s_tir.SBlock, width: int, names: set[str]) -> None:
        reduction = split_reduction(plan.stores[0])
        assert reduction is not None
        self.plan, self.name, self.width, self.place = plan, plan.name, width, plan.stores[0]
        self.combine, self.element, self.unit = combiner_of(reduction[0]), reduction[1], block.init.value
        self.last = plan.variables[plan.own[-1]]
        self.dtype = dtype_of(self.last)
        self.builder = NestBuilder(self.dtype, names)
        shape = [*(as_index(plan.extents[axis], self.dtype) for axis in plan.spatial), tirx.const(width, self.dtype)]
        self.length = as_index(plan.extents[plan.own[-1]], self.dtype)
        left = sym.Analyzer().can_prove_equal(tirx.floormod(self.length, width), 0)
        parts = ("lanes",) if left else ("lanes", "rest")
        stem = self.place.buffer.name
        self.filled = [tirx.decl_buffer(shape, plan.dtype, name=f"{stem}_{part}", layout=None) for part in parts]
        self.few = min(width, GATHERED_LANES)
        few = [*shape[:-1], tirx.const(self.few, self.dtype)]
        vector = tirx.decl_buffer(few, plan.dtype, name=f"{stem}_vector", layout=None)
        self.vector = [vector] if self.few < width else []
        self.lanes = [*self.filled, *self.vector]

    def nests(self) -> list[tirx.Stmt]:
        """The nests that fill the lanes and reduce them."""
        width = tirx.const(self.width, self.dtype)
        strips = sym.Analyzer().simplify(tirx.floordiv(self.length, width))
        rows = self._iters(self.plan.spatial)
        lane, others = Iter(LANE, "lane", self.width), self._iters(self._others, reduce=True)
        strip = Iter(STRIP, "strip", extent_of(strips), reduce=True)

        def in_rest(at: Values) -> ir.Expr:
            first = strips * width + at[LANE]
            return select(prim.LT(first, self.length), self._element(at, first), self.unit, lazy=True)

        def in_strip(at: Values) -> ir.Expr:
            return self._element(at, at[STRIP] * width + at[LANE])

        def filled(at: Values) -> ir.Expr:
            return reduce(self.combine, [load(lanes, self._cell(at)) for lanes in self.filled])

        def in_vector(at: Values) -> ir.Expr:
            return filled({**at, LANE: at[STRIP] * self.few + at[LANE]})

        def gathered(at: Values) -> ir.Expr:
            return load(self.vector[0], self._cell(at)) if self.vector else filled(at)

        fills = [(in_strip, [*rows, lane, *others, strip]), (in_rest, [*rows, lane, *others])]
        few, vectors = Iter(LANE, "lane", self.few), Iter(STRIP, "strip", self.width // self.few, reduce=True)
        return [
            *(self._fill(lanes, *fill) for lanes, fill in zip(self.filled, fills, strict=False)),
            *(self._fill(lanes, in_vector, [*rows, few, vectors]) for lanes in self.vector),
            self.builder.reduction(
                self.name,
                GATHER,
                [*rows, Iter(LANE, "lane", self.few, reduce=True)],
                (self.place.buffer, self._indices),
                self.combine,
                self.unit,
                gathered,
            ),
        ]

    def _fill(self, buffer: tirx.Var, element: Callable[[Values], ir.Expr], iters: list[Iter]) -> tirx.Stmt:
        """A nest that reduces elements into lanes; a map where it reduces none."""
        name = str(buffer.name)
        if not any(it.reduce for it in iters):
            return self.builder.nest(name, LANES, iters, lambda at: [store(buffer, element(at), self._cell(at))])
        return self.builder.reduction(name, LANES, iters, (buffer, self._cell), self.combine, self.unit, element)

    @property
    def _others(self) -> tuple[int, ...]:
        """Reduced axes but the last."""
        return tuple(axis for axis in self.plan.own[:-1] if axis in self.plan.reduce)

    def _iters(self, axes: tuple[int, ...], reduce: bool = False) -> list[Iter]:
        named = [(axis, self.plan.variables[axis]) for axis in axes]
        return [Iter(var, str(var.name), self.plan.extents[axis], reduce) for axis, var in named]

    def _at(self, at: Values) -> dict[tirx.Var, ir.Expr]:
        """Values of the block's own variables, but for the last one."""
        return {var: at[var] for var in self.plan.variables.values() if var in at}

    def _indices(self, at: Values) -> list[ir.Expr]:
        return [substitute(index, self._at(at)) for index in self.place.indices]

    def _cell(self, at: Values) -> list[ir.Expr]:
        return [*(at[self.plan.variables[axis]] for axis in self.plan.spatial), at[LANE]]

    def _element(self, at: Values, position: ir.Expr) -> ir.Expr:
        return substitute(self.element, {**self._at(at), self.last: position})


# Tuples whose parts are reductions by themselves, as a nest for each part.
#
#     for k: s = s + x[k];  q = q + x[k]·x[k]      →  for k: s = s + x[k];    for k: q = q + x[k]·x[k]
#
# TVM's vectoriser takes no block of several stores, so that a tuple stays a loop of scalars: one step an element, in
# which its parts run side by side. Where no part reads another one, each is a plain reduction. n parts of w lanes each
# take n/w steps an element, which is less where every w is more than n; they read the data n times, which is less time
# than a chain of scalar additions takes, from memory too. Parts that choose together, such as an extremum and its
# position, stay together.


def tuples_apart(func: tirx.PrimFunc, cpu: Cpu) -> tirx.PrimFunc:
    """The function with tuples taken apart where that takes fewer steps; the same object where none are.

    Parameters
    ----------
    func : plain nests, not scheduled.
    cpu : whose vectors the parts would run in.
    """
    names = {nest.block.name_hint for nest in read_nests(func)}

    def apart(nest: LoopNest, _plan: BlockPlan) -> Written | None:
        parts = _parts(nest, names)
        return (parts, []) if parts and _in_fewer_steps(parts, cpu) else None

    return rewritten(func, apart)


def _in_fewer_steps(parts: list[tirx.Stmt], cpu: Cpu) -> bool:
    nests = [nest for part in parts for nest in nests_in(part)]
    return all(reduction_lanes(plan_nest(nest), nest.block, cpu) > len(parts) for nest in nests)


def _parts(nest: LoopNest, names: set[str]) -> list[tirx.Stmt]:
    """A nest for each part, under names that no block has yet; none where the nest is no tuple of such parts."""
    block = nest.block
    if block.init is None:
        return []
    stores, starts = stores_at_once(block.body), stores_at_once(block.init)
    if stores is None or starts is None or not 1 < len(stores) == len(starts):
        return []
    found = []
    for part in stores:
        others = [other.buffer for other in stores if not other.buffer.same_as(part.buffer)]
        init = next((start for start in starts if start.buffer.same_as(part.buffer)), None)
        if len(others) < len(stores) - 1 or init is None or split_reduction(part) is None:
            return []
        if any(reads_buffer(part.value, other) for other in others):
            return []
        found.append(renewed(with_block(nest.statement, block, _part(block, part, init, names))))
    return found


def _part(block: s_tir.SBlock, store: tirx.BufferStore, init: tirx.BufferStore, names: set[str]) -> s_tir.SBlock:
    names.add(name := unused(f"{block.name_hint}_{store.buffer.name}", names))
    return rebuilt(replaced(block, store, init), name_hint=name)
