"""The guards of a row and its fallback: a row whose results may not be used is folded again as the program has it.

    failed_d = d may not be used, or a result that d reads has failed            (`transform.guard`); a vote a row
    where one has, for each d that has failed, in order:
        for the thread's positions of the row, from memory: own ⊕= the program's element at the results so far
        d = ⊕ of the threads' own
    of the parts of a tuple, which fail together, each thread by itself takes all positions, in order

All threads that share a row know its state, and take the fallback together: the blocks of a cluster each by itself,
of blocks that meet in global memory the last. A thread that has rows of its own takes it alone. There are neither
references nor merges in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import sympy as sp
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.algebra.reducer import PROD, Reducer, first, second
from tvm_cascade.analysis.extract import Member
from tvm_cascade.analysis.reducers import combiner_of, identity_of
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.tile.emit import bind, in_register, kernel_extent, put, registers, variable, when
from tvm_cascade.tile.fragment import Symbols, TilePrinter
from tvm_cascade.tile.merge.combine import Alone, Reducing
from tvm_cascade.tile.merge.lanes import in_no_lane
from tvm_cascade.tile.row.program import of_results, result_dtype
from tvm_cascade.tile.row.shape import Row
from tvm_cascade.tile.row.sweep import Point
from tvm_cascade.tile.state import State
from tvm_cascade.transform.guard import fails
from tvm_cascade.transform.planning import read_by
from tvm_cascade.transform.printer import cast

Results = Mapping[sp.Symbol, ir.Expr]

_UNROLLED = 4
"""Positions of a thread at once: loops of known length, unrolled as a whole, take registers from rows that pass."""


@dataclass(frozen=True)
class Sharing:
    """The threads of a block that share a row.

    Attributes
    ----------
    member, count : the thread's number among them, and how many they are.
    exchange : how they reduce a value of each.
    several : a warp has several rows: it folds all of them again where one has failed, and keeps those that have not.
    """

    member: ir.Expr
    count: int
    exchange: Reducing
    several: bool = False

    @classmethod
    def alone(cls) -> Sharing:
        return cls(tirx.const(0, "int32"), 1, Alone())

    def vote(self, failed: ir.Expr) -> ir.Expr:
        """Whether the thread folds again: those of a warp do so together, as they exchange values."""
        return failed if isinstance(self.exchange, Alone) else tirx.Not(in_no_lane(failed))


class Guards:
    """Emits the guards of a row, and what the row's threads do where one fails."""

    def __init__(self, point: Point, sharing: Sharing) -> None:
        self.program, self.tensors, self.point, self.sharing = point.program, point.tensors, point, sharing
        self.row, self.guarded = self.program.row, self.program.row.guarded
        self.members = self.row.folded_again
        units = [[m for m in self.members if m.stage.block.same_as(own.stage.block)] for own in self.members]
        self.units = [unit for own, unit in zip(self.members, units, strict=True) if own is unit[0]]

    def emit(self, fused: Results, state: State) -> dict[sp.Symbol, ir.Expr]:
        failed = self._failed(fused, state)
        used = {m.result: registers(f"{m.result}_used", 1, result_dtype(self.row, m.result)) for m in self.members}
        for result, own in used.items():
            put(own, 0, fused[result])
        results = {**fused, **{result: own[0] for result, own in used.items()}}
        with when(self.sharing.vote(reduce(tirx.Or, failed.values()))):
            for unit in self.units:
                own = failed[unit[0].result]
                with when(self.sharing.vote(own)):
                    for result, again in self._fallback(unit, results).items():
                        kept = tirx.Select(own, again, results[result]) if self.sharing.several else again
                        put(used[result], 0, kept)
        return results

    def _failed(self, fused: Results, state: State) -> dict[sp.Symbol, ir.Expr]:
        known = Symbols(fused, self.point.values, state.symbols())
        stored = {r: cast(value, dtype_of(self.row.group.member_of(r).stage.buffer)) for r, value in fused.items()}
        values = Symbols(stored, state.symbols())

        def printer(dtype: str) -> TilePrinter:
            return TilePrinter(known, dtype, {}, self.program.offsets)

        failed: dict[sp.Symbol, ir.Expr] = {}
        for unit in self.units:
            own = [fails(self.guarded, self.row.group, member, values, printer) for member in unit]
            earlier = [failed[result] for member in unit for result in read_by(member, self.members)]
            one = bind(f"{unit[0].result}_fails", reduce(tirx.Or, [*own, *earlier]))
            failed |= {member.result: one for member in unit}
        return failed

    def _fallback(self, unit: Sequence[Member], results: Results) -> dict[sp.Symbol, ir.Expr]:
        """A reduction as it was written, by all threads that share the row, or that of a tuple, by each of them."""
        if _reducer(unit[0]).whole is not None:
            return self._tuple(unit, results)
        return {unit[0].result: self._number(unit[0], results)}

    def _number(self, member: Member, results: Results) -> ir.Expr:
        reducer, sharing, length = _reducer(member), self.sharing, kernel_extent(self.row.length)
        combine, result = combiner_of(reducer), result_dtype(self.row, member.result)
        dtype = dtype_again(self.row, member)
        drops_nan = reducer.ordered and "float" in dtype
        start = _start(member, dtype) if reducer.ordered else identity_of(reducer, dtype)
        part = variable(f"{member.result}_again", tirx.const(float("nan"), dtype) if drops_nan else start)
        with T.serial((length + (sharing.count - 1)) // sharing.count, unroll=_UNROLLED) as step:
            position = bind("position_again", step * sharing.count + sharing.member)
            with when(position < length):
                put(part, 0, combine(part[0], cast(self._element(member, results, position), dtype)))
        whole = sharing.exchange.all_reduce(part[0], combine)
        return cast(self._from_its_start(member, whole) if drops_nan else whole, result)

    def _tuple(self, unit: Sequence[Member], results: Results) -> dict[sp.Symbol, ir.Expr]:
        """Of tuples, in the order of positions: what meets a NaN depends on it."""
        whole, own = _reducer(unit[0]).whole, dict[sp.Symbol, Any]()
        assert whole is not None
        for member in unit:
            own[member.result] = registers(f"{member.result}_again", 1, result_dtype(self.row, member.result))
            put(own[member.result], 0, _start(member, result_dtype(self.row, member.result)))
        with T.serial(kernel_extent(self.row.length)) as position:
            symbols = dict[sp.Symbol, ir.Expr]()
            for member in unit:
                part, cell = _reducer(member).part, own[member.result]
                element = cast(self._element(member, results, position), result_dtype(self.row, member.result))
                symbols |= {first(part): cell[0], second(part): in_register("element", element)}
            new = dict[sp.Symbol, ir.Expr]()
            for member in unit:
                printer = TilePrinter(symbols, result_dtype(self.row, member.result), {})
                new[member.result] = in_register("new", printer(whole.combined[_reducer(member).part]))
            for result, value in new.items():
                put(own[result], 0, value)
        return {result: cell[0] for result, cell in own.items()}

    def _from_its_start(self, member: Member, extremum: ir.Expr) -> ir.Expr:
        """An extremum of a row is none beyond its start; of NaN alone it is NaN, as GPUs drop a NaN for a number."""
        found = in_register("extremum", extremum)
        within = combiner_of(_reducer(member))(_start(member, dtype_of(found)), found)
        return tirx.Select(tirx.isnan(found), found, within)

    def _element(self, member: Member, results: Results, position: ir.Expr) -> ir.Expr:
        """The member's element at a position; variables of one value are the row's, or of extent 1."""
        ones = {v: tirx.const(0, dtype_of(v)) for v in self.row.group.frame.extents}
        at = {**ones, **self.point.at, **self.row.axis.places(position)}
        return self.tensors.place(of_results(self.row, member.element, results), at)


def _reducer(member: Member) -> Reducer:
    assert member.stage.reducer is not None
    return member.stage.reducer


def _start(member: Member, dtype: str) -> ir.Expr:
    init = member.stage.init
    return cast(identity_of(_reducer(member), dtype) if init is None else init, dtype)


def exchanged_dtypes(row: Row) -> set[str]:
    return {dtype_again(row, member) for member in row.folded_again if _reducer(member).whole is None}


def dtype_again(row: Row, member: Member) -> str:
    """The dtype in which threads reduce a member's elements: as that of states is (`state_dtype`)."""
    dtype = result_dtype(row, member.result)
    return "float64" if member.stage.reducer is PROD and dtype == "float32" else dtype
