"""Whole tiles: rows rounded up to vectors and operands padded with zeros, so that no inner loop is guarded.

    for i in 577: for tile: for j in 289: s[i, j] += if(at(j) < 577, q[i, d] * k[at(j), d], 0)
    ->  q_whole[i in 592] = if(i < 577, q[i], 0);  k_whole[p in 578] = if(p < 577, k[p], 0)
        for i in 592: for tile: for j in 289: s[i, j] += q_whole[i, d] * k_whole[at(j), d]

Rows past the last compute what the last one does, in temporaries that are as much longer; results stay as long as they
are. A schedule moves the copies into the loop, next to the tile that they are for, and may lay them out on the way.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.target import Target

from tvm_cascade.analysis.domain import dtype_of
from tvm_cascade.analysis.extent import Extent, as_index
from tvm_cascade.analysis.statements import block_names, replaced
from tvm_cascade.schedule.cpu_target import Machine, machine_of
from tvm_cascade.schedule.microkernel import find_contraction
from tvm_cascade.schedule.padding import PaddedCopies, without_guard
from tvm_cascade.schedule.roles import TILE_ROLES, BlockPlan, FusedLoop, read_fused_loops, read_nests
from tvm_cascade.schedule.row_plan import contracted_row, whole_rows

__all__ = ["whole_tiles"]


def whole_tiles(func: tirx.PrimFunc, target: Target) -> tirx.PrimFunc:
    """The fused function with whole tiles wherever a contraction runs over rows; the very one where nothing changes.

    Parameters
    ----------
    func : as the rewrite made it, not scheduled.
    target : an LLVM target; rows are rounded up to its vectors.
    """
    machine = machine_of(target)
    for number in range(len(read_fused_loops(func))):
        loop = read_fused_loops(func)[number]
        if loop.rows and (wider := _wider(func, loop, machine)) is not None:
            func = wider.rewritten()
    return func


def _wider(func: tirx.PrimFunc, loop: FusedLoop, machine: Machine) -> _Wider | None:
    """What is to be done about a loop; None where it contracts nothing over rows, or is whole already."""
    row = contracted_row(loop)
    outside = frozenset(loop.rows) - {row}
    products = frozenset(
        plan.name
        for plan in loop.blocks
        if plan.role in ("producer", "partial")
        and (find_contraction(plan, row, outside) or find_contraction(plan, None, outside))
    )
    rows = loop.blocks[0].extents[row]
    tiled = [plan for plan in loop.blocks if plan.role in TILE_ROLES]
    lanes = max(machine.lanes(str(plan.stores[0].buffer.ty.dtype)) for plan in tiled)
    whole = whole_rows(loop, row, machine, lanes)
    written = [store.buffer for plan in loop.blocks for store in plan.stores]
    if not products or rows == 1 or any(b.same_as(p) for b in written for p in func.params):
        return None
    if isinstance(rows, int) and whole == rows and not loop.guarded:
        return None
    return _Wider(func, loop, row, rows, whole, products)


@dataclass
class _Wider:
    """One fused loop and its rows rounded up.

    Attributes
    ----------
    row, rows, whole : the axis, its extent and the extent rounded up.
    products : names of the blocks whose operands are padded.
    """

    func: tirx.PrimFunc
    loop: FusedLoop
    row: int
    rows: Extent
    whole: Extent
    products: frozenset[str]
    _buffers: list[tuple[tirx.Var, tirx.Var]] = field(default_factory=list)

    def rewritten(self) -> tirx.PrimFunc:
        """The function with this loop over whole rows."""
        nests = read_nests(self.func)
        plans = {plan.name: plan for plan in self.loop.blocks}
        mine = [nest for nest in nests if nest.realize.block.name_hint in plans]
        for plan in self.loop.blocks:
            for place in plan.stores:
                self._widen(plan, place)
        rows = [
            value
            for nest in mine
            for iv, value in zip(nest.realize.block.iter_vars, nest.realize.iter_values, strict=True)
            if iv.var.same_as(plans[nest.realize.block.name_hint].variables[self.row])
        ]
        first = mine[0].loops[0]
        names = {name for nest in nests for name in block_names(nest.realize)}
        copies = PaddedCopies(dtype_of(first.loop_var), names)

        def in_block(block: s_tir.SBlock) -> s_tir.SBlock:
            plan = plans.get(block.name_hint)
            return self._moved(block) if plan is None else self._moved(self._widened(block, plan, copies))

        def in_loop(loop: tirx.For) -> tirx.For:
            if not any(loop.loop_var.same_as(var) for var in rows):
                return loop
            whole = as_index(self.whole, dtype_of(loop.loop_var))
            return tirx.For(loop.loop_var, loop.min, whole, loop.kind, loop.body, annotations=loop.annotations)

        root = self.func.body.block
        statements: list[tirx.Stmt] = []
        for part in root.body.seq if isinstance(root.body, tirx.SeqStmt) else [root.body]:
            mapped = tvm_ffi.structural_map(part, [(s_tir.SBlock, in_block), (tirx.For, in_loop)])
            here = isinstance(part, tirx.For) and part.loop_var.same_as(first.loop_var)
            statements += [*copies.nests(), mapped] if here else [mapped]
        allocated = [*(self._place(b) for b in root.alloc_buffers), *copies.buffers()]
        body = tirx.SeqStmt(statements) if len(statements) > 1 else statements[0]
        fields = (root.iter_vars, [], [], root.name_hint, body, root.init, allocated)
        new_root = s_tir.SBlock(*fields, root.match_buffers, root.annotations)
        func = self.func.with_body(s_tir.SBlockRealize([], True, new_root))
        return tvm.get_global_func("script.Complete")(func, [], True)

    def _widen(self, plan: BlockPlan, place: tirx.BufferStore) -> None:
        """Takes a longer buffer for one that the loop writes row by row."""
        shape = list(place.buffer.ty.shape)
        for dim, index in enumerate(place.indices):
            if plan.axis_at(index) == self.row:
                shape[dim] = as_index(self.whole, dtype_of(shape[dim]))
        if not any(old.same_as(place.buffer) for old, _ in self._buffers):
            wide = tirx.decl_buffer(shape, place.buffer.ty.dtype, name=place.buffer.name)
            self._buffers.append((place.buffer, wide))

    def _place(self, buffer: tirx.Var) -> tirx.Var:
        return next((wide for old, wide in self._buffers if old.same_as(buffer)), buffer)

    def _widened(self, block: s_tir.SBlock, plan: BlockPlan, copies: PaddedCopies) -> s_tir.SBlock:
        """A block of the loop over whole rows, its product unguarded and of padded operands."""
        row = plan.variables[self.row]
        iters = [iv if not iv.var.same_as(row) else self._whole_iter(iv) for iv in block.iter_vars]
        body = block.body
        if plan.name in self.products:
            domain = {iv.var: iv.dom.extent for iv in iters}
            inside = [store.buffer for other in self.loop.blocks for store in other.stores]
            kept = [store.buffer for other in self.loop.blocks if other.role == "element" for store in other.stores]
            body = copies.padded(body, domain, inside)
            body = without_guard(body, plan, copies, domain, (inside, kept))
        last = tirx.min(row, as_index(self.rows, dtype_of(row)) - 1)

        def in_place(statement: tirx.BufferStore) -> tirx.BufferStore:
            return tirx.BufferStore(statement.buffer, self._at_last(statement.value, row, last, copies), statement.indices)

        def bound(statement: tirx.Bind) -> tirx.Bind:
            return tirx.Bind(statement.var, self._at_last(statement.value, row, last, copies))

        body = tvm_ffi.structural_map(body, [(tirx.BufferStore, in_place), (tirx.Bind, bound)])
        return replaced(block, body, block.init, iters)

    def _whole_iter(self, iv: tirx.IterVar) -> tirx.IterVar:
        extent = as_index(self.whole, dtype_of(iv.var))
        return tirx.IterVar(ir.Range(tirx.const(0, dtype_of(iv.var)), extent), iv.var, iv.iter_type)

    def _at_last(self, value: ir.Expr, row: tirx.Var, last: ir.Expr, copies: PaddedCopies) -> ir.Expr:
        """A value as the last row has it in all rows after that; what is written in the loop is read row by row."""
        own = [*(old for old, _ in self._buffers), *copies.buffers()]

        def read(access: ir.TensorLoad, mutator: object) -> ir.Expr:
            if any(access.source.same_as(buffer) for buffer in own):
                return access
            return mutator.default_mutate(access)  # type: ignore[attr-defined]

        def at(var: tirx.Var, _mutator: object) -> ir.Expr:
            return last if var.same_as(row) else var

        if self.rows is self.whole or self.rows == self.whole:
            return value
        return tvm_ffi.structural_mutate(value, [(ir.TensorLoad, read), (ir.Var, at)])

    def _moved(self, block: s_tir.SBlock) -> s_tir.SBlock:
        """The block with longer buffers in the place of those that it reads and writes."""

        def read(access: ir.TensorLoad) -> ir.TensorLoad:
            place = self._place(access.source)
            return access if place.same_as(access.source) else tirx.BufferLoad(place, list(access.indices))

        def write(place: tirx.BufferStore) -> tirx.BufferStore:
            return tirx.BufferStore(self._place(place.buffer), place.value, place.indices)

        def mapped(node: object) -> object:
            if isinstance(node, (ir.Expr, tirx.Stmt)):
                return tvm_ffi.structural_map(node, [(ir.TensorLoad, read), (tirx.BufferStore, write)])
            return node

        notes = {name: mapped(value) for name, value in block.annotations.items()}
        fields = (block.iter_vars, block.reads, block.writes, block.name_hint)
        init = None if block.init is None else mapped(block.init)
        moved = s_tir.SBlock(*fields, mapped(block.body), init, block.alloc_buffers, block.match_buffers, notes)
        return replaced(moved, moved.body, moved.init)
