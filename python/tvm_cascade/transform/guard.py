"""Emits the guards of a fused loop and the second way of what fails.

    finish     d_fused = finish(state)
    guard      failed_d = d_fused may not be used, or a result that d reads has failed       (`transform.failing`)
               d = failed_d ? ⊕ of the program's own elements, at the results so far : d_fused

The second way has neither references nor merges: it is the reduction as it was written.
"""

from __future__ import annotations

from tvm import ir, tirx

from tvm_cascade.algebra.cascade import LENGTH
from tvm_cascade.analysis.extract import Member
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.reducers import combiner_of, identity_of
from tvm_cascade.analysis.tir import dtype_of, substitute
from tvm_cascade.transform.failing import fails
from tvm_cascade.transform.guarding import Guarding, loaded_by
from tvm_cascade.transform.loop import as_number
from tvm_cascade.transform.nest import GUARD, NestBuilder, Values, load, sequence, store
from tvm_cascade.transform.scope import Scope, Slots, cast_index, counting_dtype
from tvm_cascade.transform.tiling import TILE


class GuardEmitter:
    """Emits a nest for each guarded result, after `FinishEmitter` has stored what was fused."""

    def __init__(self, slots: Slots, nests: NestBuilder, guarded: Guarding) -> None:
        self.slots, self.nests, self.guarded = slots, nests, guarded
        self.members = [member for member in slots.group.members if member.result in guarded.results]
        self.group, self.fold = slots.group, slots.group.fold
        self.failed: list[tuple[tirx.Var, Member]] = []

    def run(self) -> list[tirx.Stmt]:
        """The nests, in the members' order."""
        return [self._nest(member) for member in self.members]

    def _nest(self, member: Member) -> tirx.Stmt:
        dims = tuple(dim for dim in member.dims if isinstance(dim, ir.Var))
        dtype, name = dtype_of(member.stage.buffer), member.stage.buffer.name
        flag = self.slots.allocate(("failed", member.result), f"{name}_failed", dims, "int32", per_segment=False)
        again = tirx.decl_buffer([1], dtype, name=f"{name}_again", layout=None)
        earlier = [one for one in self.failed if among(one[1].stage.buffer, loaded_by(member))]

        def body(at: Values) -> list[tirx.Stmt]:
            fused, dtype = self.slots.read(member.result, at), dtype_of(member.stage.buffer)
            known = {LENGTH: as_number(self.slots.tiling.length, counting_dtype(dtype))}
            scope = Scope(self.slots, {**at, TILE: tirx.const(0, self.nests.dtype)}, known)
            failed = fails(self.guarded, self.group, member, scope, scope.printer)
            for buffer, other in earlier:
                found = load(buffer, [self._placed(dim, at) for dim in other.dims] or [tirx.const(0, "int32")])
                failed = tirx.Or(failed, found != tirx.const(0, "int32"))
            where = self.slots.indices(flag, at)
            bound = tirx.Var(f"{name}_fails", "bool")
            place, zero = [self._placed(dim, at) for dim in member.dims], [tirx.const(0, "int32")]
            if not place:
                place = [tirx.const(0, "int32")] * len(member.stage.buffer.ty.shape)
            second = sequence(
                [*self._second_way(member, again, at), store(member.stage.buffer, load(again, zero), place)]
            )
            return [
                tirx.Bind(bound, failed),
                store(flag.buffer, tirx.Select(bound, tirx.const(1, "int32"), tirx.const(0, "int32")), where),
                tirx.IfThenElse(bound, second, store(member.stage.buffer, fused, place)),
            ]

        nest = self.nests.nest(f"{name}_guard", GUARD, self.slots.iters(dims), body, scratch=(again,))
        self.failed.append((flag.buffer, member))
        return nest

    def _placed(self, dim: ir.Expr, at: Values) -> ir.Expr:
        """A dimension of a result's buffer at a point of the nest."""
        return next(
            (v for key, v in at.items() if isinstance(key, ir.Var) and key.same_as(dim)), tirx.const(0, "int32")
        )

    def _second_way(self, member: Member, again: tirx.Var, at: Values) -> list[tirx.Stmt]:
        """The member's reduction as it was written, into a cell of its own."""
        stage, frame, zero = member.stage, self.group.frame, [tirx.const(0, "int32")]
        assert stage.reducer is not None
        loops = [tirx.Var(axis.name, self.nests.dtype) for axis in frame.axis]
        values = {v: cast_index(self._placed(v, at), v) for v in frame.extents}
        values |= {axis: cast_index(var, axis) for axis, var in zip(frame.axis, loops, strict=True)}
        element = substitute(member.element, values)
        statement: tirx.Stmt = store(again, combiner_of(stage.reducer)(load(again, zero), element), zero)
        for axis, var in reversed(list(zip(frame.axis, loops, strict=True))):
            statement = self.nests.loop(var, self.slots.extent(axis), statement)
        start = stage.init if stage.init is not None else identity_of(stage.reducer, dtype_of(stage.buffer))
        return [store(again, start, zero), statement]
