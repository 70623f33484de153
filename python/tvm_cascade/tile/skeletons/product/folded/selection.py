"""The best elements of a row on chip: selected as packed integers, then read again by their positions.

elements packed; network over the thread's, then over the lanes of the row
sure      keys and payloads of the best are computed again at their positions
tied      neighbours among these are ordered by their whole keys
unsure    the row is selected by whole keys, as any fold is folded
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import sympy as sp
from tvm import ir, tirx
from tvm.ir import prim
from tvm.tirx.script import builder as T

from tvm_cascade.algebra.reducer import Selection
from tvm_cascade.steps.program import Element, StepProgram, Tuple
from tvm_cascade.tile.emit import bind, branches, device_call, in_register, put, registers, when
from tvm_cascade.tile.fragment import Symbols
from tvm_cascade.tile.merge.combine import merge
from tvm_cascade.tile.merge.lanes import Lanes, exchanged, from_lane_at, in_no_lane
from tvm_cascade.tile.merge.ranks import Network, has_one_element, ranks_of
from tvm_cascade.tile.row.chunk import Chunk, ChunkFold
from tvm_cascade.tile.row.program import RowProgram
from tvm_cascade.tile.state import State

# Ranks as single integers: where an element's key lies between the row's extremes, and its position below that.
#
#     packed = ⌊2²³ · (key − least) / (greatest − least)⌉ · 2⁹ + (2⁹ − 1 − position) − 2³¹
#
# A comparator of a network is then a maximum and a minimum. The upper part is monotone in the key: what is found is
# exact where no two of the best elements, or of those next to them, agree in it. Two of the best that do may have to
# change places (`tied`). Where three do, or the last of the best and one that is not, or where a key is no number or
# infinite, the caller selects by whole keys (`unsure`).


DTYPE = "int32"

_POSITION_BITS = 9
LONGEST = 1 << _POSITION_BITS
"""Positions of a row."""

_NONE = tirx.min_value(DTYPE)
"""No element, below all others."""

_MASK = LONGEST - 1
_HIGHEST = float(2**24 - 1)
"""Numbers from 2²³ to this are integers, whose offset from 2²³ is in the lower bits of a float32."""

_STEPS = 0.99 * 2**23
"""Steps between the extremes: a little fewer than there are, since the width of a step is rounded."""

_LARGEST_RANGE = 1e30

_PACK = """
__device__ __forceinline__ int packed_key(float place, int position) {
  union { float number; unsigned bits; } own;
  own.number = place;
  return (int)(own.bits * 512u + ((unsigned)position + 0x80000000u));  // the exponent is beyond the upper end
}
"""


class PackedRanks:
    """Emits the selection of a row's best elements as packed integers, best first.

    Parameters
    ----------
    keys : registers of the keys of a chunk of the row.
    position : of an element of the chunk in the row.

    Attributes
    ----------
    best : those of the row, in every thread of it.
    tied : whether neighbours among them may be in another order.
    unsure : whether others may be the best, or in an order that is further off.
    """

    def __init__(
        self, selection: Selection, keys: Any, chunk: Chunk, position: Callable[[int], ir.Expr], lanes: int
    ) -> None:
        self.selection, self.count, self.lanes = selection, selection.count, lanes
        self.keys, self.chunk = keys, chunk
        self.network = Network(self.count, _larger, _ordered)
        self.packed = self._packed(position)
        self.best = self._best()
        self.unsure = self._unsure()

    def position(self, packed: ir.Expr) -> ir.Expr:
        place = packed & tirx.const(_MASK, DTYPE)
        return _MASK - place if self.selection.lower else place

    def _key(self, k: int, other: ir.Expr) -> ir.Expr:
        exists = self.chunk.exists
        return self.keys[k] if exists is None else tirx.Select(exists(k), self.keys[k], other)

    def _packed(self, position: Callable[[int], ir.Expr]) -> list[ir.Expr]:
        infinity = tirx.const(float("inf"), "float32")
        greatest, least = -infinity, infinity
        for k in range(self.chunk.count):
            greatest = in_register("greatest", tirx.max(greatest, self._key(k, -infinity)))
            least = in_register("least", tirx.min(least, self._key(k, infinity)))
        greatest = in_register("greatest", exchanged(greatest, tirx.max, self.lanes))
        least = in_register("least", exchanged(least, tirx.min, self.lanes))
        span = bind("span", greatest - least)
        some = tirx.And(span > 0, span < _LARGEST_RANGE)
        step = in_register("steps", tirx.Select(some, _STEPS / span, tirx.const(0.0, "float32")))
        best, sign = (greatest, 1) if self.selection.largest else (least, -1)
        nothing = in_register("nothing", tirx.const(0.0, "float32"))
        probe: ir.Expr = nothing
        packed = registers("packed", self.chunk.count, DTYPE)
        for k in range(self.chunk.count):
            below = in_register("below", (self._key(k, best) - best) * sign)
            probe = probe + below * nothing
            place = position(k)
            place = _MASK - place if self.selection.lower else place
            given = (below * step + tirx.const(_HIGHEST, "float32"), T.cast(place, DTYPE))
            value = device_call("packed_key", _PACK, *given, returned=DTYPE)
            exists = self.chunk.exists
            put(packed, k, value if exists is None else tirx.Select(exists(k), value, _NONE))
        self.odd = tirx.Or(tirx.Not(some), tirx.NE(probe, tirx.const(0.0, "float32")))
        return [packed[k] for k in range(self.chunk.count)]

    def _best(self) -> list[ir.Expr]:
        own = self.network.sorted(self.packed)
        own += [_NONE] * (self.count - len(own))
        distance = self.lanes // 2
        while distance:
            kept = [in_register("own", value) for value in own]
            others = [in_register("other", from_lane_at(value, distance)) for value in kept]
            own = self.network.merged(kept, others)
            distance //= 2
        return own

    def _unsure(self) -> ir.Expr:
        mask = tirx.const(_MASK, DTYPE)
        last = in_register("last", self.best[-1] & ~mask)
        count: ir.Expr = tirx.const(0, "int32")
        for element in self.packed:
            count = count + T.cast(element >= last, "int32")
        near = exchanged(in_register("near", count), lambda a, b: a + b, self.lanes)
        found = tirx.Or(self.odd, tirx.NE(near, self.count))
        self.tied = self._agree(self.best[1:])
        return in_register("unsure", tirx.Or(found, self._agree(self.best[2:])))

    def _agree(self, others: Sequence[ir.Expr]) -> ir.Expr:
        """Whether the upper part of one of the best is that of one of the others, by their places."""
        mask = tirx.const(_MASK, DTYPE)
        equal = [tirx.EQ(one | mask, other | mask) for one, other in zip(self.best, others, strict=False)]
        return reduce(tirx.Or, equal, tirx.const(False, "bool"))


def _larger(one: ir.Expr, other: ir.Expr) -> ir.Expr:
    return in_register("rank", tirx.max(one, other))


def _ordered(one: ir.Expr, other: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
    return _larger(one, other), in_register("rank", tirx.min(one, other))


@dataclasses.dataclass(frozen=True)
class RowSelection:
    """The selection of a row program, apart from the rest of it.

    Attributes
    ----------
    rest, alone : the program without its selection, and the selection with the values that it reads.
    """

    rest: RowProgram
    alone: RowProgram
    step: Tuple


def selection_of(program: RowProgram, length: int) -> RowSelection | None:
    """The selection that can be packed: of one key and the position itself, read once; None where there is none."""
    tuples = [step for step in program.body.steps if isinstance(step, Tuple)]
    if len(tuples) != 1 or not has_one_element(tuples[0]):
        return None
    (step,) = tuples
    ranks = ranks_of(step, program.dtypes)
    selection = step.reducer.selection
    if ranks is None or selection is None or selection.count > length:
        return None
    if length > LONGEST or not set(ranks.symbols[0]) <= {0, 1}:
        return None
    if program.dtypes[ranks.symbols[0][0]] != "float32":
        return None
    needed = _needed(program.body, step)
    inputs = program.position_inputs.keys() | program.row_inputs.keys() | program.conditions.keys()
    read = set().union(*(form.free_symbols for form in (*_lifts(step), *(one.expression for one in needed))))
    if not read <= inputs | {one.symbol for one in needed} or not _is_position(program, step, needed):
        return None
    rest = tuple(one for one in program.body.steps if one is not step)
    return RowSelection(_with(program, rest), _with(program, (*needed, step)), step)


def _with(program: RowProgram, steps: tuple[Any, ...]) -> RowProgram:
    return dataclasses.replace(program, body=StepProgram(steps, program.body.finish, program.body.remembered))


def _lifts(step: Tuple) -> list[sp.Expr]:
    return [lift for part, lift in zip(step.parts, step.lifts, strict=True) if part in (0, 1)]


def _needed(body: StepProgram, step: Tuple) -> list[Element]:
    needed: list[Element] = []
    read = set().union(*(lift.free_symbols for lift in _lifts(step)))
    for one in reversed(body.steps):
        if isinstance(one, Element) and one.symbol in read:
            needed.insert(0, one)
            read |= one.expression.free_symbols
    return needed


def _is_position(program: RowProgram, step: Tuple, elements: list[Element]) -> bool:
    if 1 not in step.parts:
        return True
    index = step.lifts[step.parts.index(1)]
    for element in reversed(elements):
        index = index.xreplace({element.symbol: element.expression})
    value = program.position_inputs.get(index)
    while isinstance(value, prim.Cast):
        value = value.value
    axis = program.row.axis.parts
    return value is not None and len(axis) == 1 and value.same_as(axis[0])


class _KeysOf(ChunkFold):
    """Keeps the keys of a chunk instead of selecting among them."""

    def _elements_of(self, step: Tuple) -> dict[int, Any] | None:
        self.keys = registers("keys", self.chunk.count, "float32")
        return {0: self.keys}

    def _put_element(
        self, step: Tuple, elements: dict[int, Any], symbols: Symbols, conditions: dict[sp.Symbol, ir.Expr], k: Any
    ) -> None:
        put(self.keys, k, self._write(step.lifts[step.parts.index(0)], symbols, "float32", conditions))

    def _select(self, step: Tuple, elements: dict[int, Any]) -> None:
        return


class _Reading(ChunkFold):
    """Puts the elements of a chunk into the ranks of the state, one after the other."""

    def _select(self, step: Tuple, elements: dict[int, Any]) -> None:
        ranks = ranks_of(step, self.state.dtypes)
        assert ranks is not None
        for k, rank in enumerate(ranks.symbols):
            for role, symbol in rank.items():
                self.state.components[symbol].put(elements[role][k])


@dataclasses.dataclass(frozen=True)
class Selecting:
    """Emits the selection of a row.

    Attributes
    ----------
    position : of an element of it, by its number.
    at : a value per position, at any position.
    """

    selection: RowSelection
    row_values: Mapping[sp.Symbol, Any]
    lanes: Lanes
    chunk: Chunk
    position: Callable[[Any], ir.Expr]
    at: Callable[[ir.Expr, ir.Expr], ir.Expr]

    def emit(self, state: State) -> None:
        """The selection's components of a state become the best of the row, in every thread of it."""
        alone, selection = self.selection.alone, self.selection.step.reducer.selection
        assert selection is not None
        folding = _KeysOf(alone, state.another("_keys"), self.row_values)
        folding.state.clear()
        folding.fold(self.chunk)
        ranks = PackedRanks(selection, folding.keys, self.chunk, self.position, self.lanes.width)
        found = state.another("_selected")
        with branches(in_no_lane(ranks.unsure)) as (sure, other):
            with sure:
                self._read(found, ranks)
                with when(tirx.Not(in_no_lane(ranks.tied))):
                    self._order(found)
                self._keep(state, found)
            with other:
                found.clear()
                ChunkFold(alone, found, self.row_values).fold(self.chunk)
                merge(alone.body, found, self.lanes, self.row_values, alone.offsets)
                self._keep(state, found)

    def _read(self, found: State, ranks: PackedRanks) -> None:
        best = ranks.best
        places = registers("places", len(best), "int32")
        for k, packed in enumerate(best):
            put(places, k, ranks.position(packed))

        def value(expression: ir.Expr, k: Any) -> ir.Expr:
            return self.at(expression, places[k])

        chunk = Chunk(len(best), 0, value, None, tirx.const(len(best), "int32"), True)
        _Reading(self.selection.alone, found, self.row_values).fold(chunk)

    def _order(self, found: State) -> None:
        ranks = ranks_of(self.selection.step, found.dtypes)
        assert ranks is not None
        before = {symbol: found.components[symbol][0] for rank in ranks.symbols for symbol in rank.values()}
        for symbol, value in ranks.with_neighbours_in_order(before).items():
            found.components[symbol].put(value)

    def _keep(self, state: State, found: State) -> None:
        for symbol in self.selection.step.components:
            state.components[symbol].put(found.components[symbol][0])
