"""The best elements of a row on chip: selected as packed integers, then read again by their positions.

elements packed; network over the thread's, then over the lanes of the row
sure      keys and payloads of the best are computed again at their positions
unsure    the row is selected by whole keys, as any fold is folded
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import sympy as sp
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.steps.program import Element, StepProgram, Tuple
from tvm_cascade.tile.emit import branches, put, registers
from tvm_cascade.tile.fragment import Symbols
from tvm_cascade.tile.merge.combine import merge
from tvm_cascade.tile.merge.lanes import Lanes, in_no_lane
from tvm_cascade.tile.merge.packed import LONGEST, Keys, PackedRanks
from tvm_cascade.tile.merge.ranks import has_one_element, ranks_of
from tvm_cascade.tile.row.chunk import Chunk, ChunkFold
from tvm_cascade.tile.row.program import RowProgram
from tvm_cascade.tile.state import State


@dataclasses.dataclass(frozen=True)
class RowSelection:
    """The selection of a row program, apart from the rest of it.

    Attributes
    ----------
    rest, alone : the program without its selection, and the selection with the values that it reads.
    step : the selection.
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
    """The elements that a selection's lifts are computed from, in order."""
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
    """Keeps the keys of a chunk instead of selecting among them.

    Attributes
    ----------
    keys : of the elements.
    """

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
    chunk : what the thread has of the row.
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
        keys = Keys(folding.keys, self.chunk.count, self.chunk.exists, self.position)
        ranks = PackedRanks(selection, keys, self.lanes.width)
        found = state.another("_selected")
        with branches(in_no_lane(ranks.unsure)) as (sure, other):
            with sure:
                self._read(found, ranks)
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

    def _keep(self, state: State, found: State) -> None:
        for symbol in self.selection.step.components:
            state.components[symbol].put(found.components[symbol][0])
