"""Emits the guards of a fused loop: what may not be used is reduced a second time (`transform.second_way`).

finish     d_fused = finish(state)
guard      failed_d = d_fused may not be used, or a result that d reads has failed       (`transform.failing`)
           d = failed_d ? ⊕ of the program's own elements, at the results so far : d_fused
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from tvm import ir, tirx

from tvm_cascade.algebra.cascade import LENGTH
from tvm_cascade.analysis.extract import Member
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.transform.failing import fails
from tvm_cascade.transform.guarding import Guarding, loaded_by
from tvm_cascade.transform.loop import as_number
from tvm_cascade.transform.nest import GUARD, NestBuilder, Values, binding, load, sequence, store
from tvm_cascade.transform.printer import cast
from tvm_cascade.transform.producers import Producer
from tvm_cascade.transform.scope import Scope, Slot, Slots, counting_dtype, value_at
from tvm_cascade.transform.second_way import SecondWay
from tvm_cascade.transform.tiling import TILE

_NO, _YES = tirx.const(0, "int32"), tirx.const(1, "int32")


class GuardEmitter:
    """Emits a nest for each guarded result, after `FinishEmitter` has stored what was fused."""

    def __init__(self, slots: Slots, nests: NestBuilder, guarded: Guarding, producers: Sequence[Producer] = ()) -> None:
        self.slots, self.nests, self.guarded, self.producers = slots, nests, guarded, producers
        self.members = [member for member in slots.group.members if member.result in guarded.results]
        self.group = slots.group
        self.failed: list[tuple[Slot, Member]] = []

    def run(self) -> list[tirx.Stmt]:
        """The nests, in the members' order; the parts of a tuple are decided upon together."""
        units = [[m for m in self.members if m.stage.block.same_as(first.stage.block)] for first in self.members]
        return [self._nest(unit) for first, unit in zip(self.members, units, strict=True) if first is unit[0]]

    def _nest(self, unit: Sequence[Member]) -> tirx.Stmt:
        dims = tuple(dim for dim in unit[0].dims if isinstance(dim, ir.Var))
        name, block = unit[0].stage.buffer.name, unit[0].stage.block
        parts = [member for member in self.group.members if member.stage.block.same_as(block)]
        way = SecondWay(parts, self.producers, self.slots, self.nests)
        flags = [flag for member in unit if (flag := self._flag(member, dims)) is not None]

        def body(at: Values) -> list[tirx.Stmt]:
            bound = tirx.Var(f"{name}_fails", "bool")
            again = [self._stored(member, way.result(member), at) for member in unit]
            fused = [self._stored(member, self._fused(member, at), at) for member in unit]
            noted = tirx.Select(bound, _YES, _NO)
            decided = tirx.IfThenElse(bound, sequence([*way.statements(at), *again]), sequence(fused))
            flagged = [store(flag.buffer, noted, self.slots.indices(flag, at)) for flag in flags]
            failed = reduce(tirx.Or, [self._failed(member, at) for member in unit])
            return binding([(bound, failed)], [*flagged, decided])

        return self.nests.nest(f"{name}_guard", GUARD, self.slots.iters(dims), body, scratch=way.cells)

    def _failed(self, member: Member, at: Values) -> ir.Expr:
        """Whether a result may not be used at a point, by itself or by what it reads."""
        dtype = dtype_of(member.stage.buffer)
        known = {LENGTH: as_number(self.slots.tiling.length, counting_dtype(dtype))}
        scope = Scope(self.slots, {**at, TILE: tirx.const(0, self.nests.dtype)}, known)
        failed = fails(self.guarded, self.group, member, scope, scope.printer)
        for flag, other in self.failed:
            if among(other.stage.buffer, loaded_by(member)):
                failed = tirx.Or(failed, load(flag.buffer, self.slots.indices(flag, at)) != _NO)
        return failed

    def _flag(self, member: Member, dims: tuple[tirx.Var, ...]) -> Slot | None:
        """Where it is kept which values have failed, for those that read them."""
        if not any(among(member.stage.buffer, loaded_by(other)) for other in self.members):
            return None
        name = f"{member.stage.buffer.name}_failed"
        flag = self.slots.allocate(("failed", member.result), name, dims, "int32", per_segment=False)
        self.failed.append((flag, member))
        return flag

    def _fused(self, member: Member, at: Values) -> ir.Expr:
        return cast(self.slots.read(member.result, at), dtype_of(member.stage.buffer))

    def _stored(self, member: Member, value: ir.Expr, at: Values) -> tirx.Stmt:
        """A result in its own buffer."""
        place = [value_at(at, dim) if isinstance(dim, ir.Var) else dim for dim in member.dims]
        return store(member.stage.buffer, value, place)
