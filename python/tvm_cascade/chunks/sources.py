"""Where states to be merged are: stacked along a first axis, as a caller passes them, or in buffers of each chunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tvm import ir, tirx

from tvm_cascade.analysis.tir import Extent, as_index
from tvm_cascade.chunks.state import COUNTS, State
from tvm_cascade.transform.nest import Values, load
from tvm_cascade.transform.scope import Slot, Slots
from tvm_cascade.transform.tiling import SEGMENT, Tiling

_UNIT = tirx.Var("unit", "int32")
"""What indexes the one dimension, of extent 1, of a state that no row has: no block runs over it."""

MOST_PIECES = 8
"""Pieces of a chunk whose states are merged without a loop, at most: what a thread loads at once."""

_WRITTEN_OUT = MOST_PIECES + 1
"""States that are merged without a loop, at most: those of a chunk's pieces, and that of another."""


class Source(Protocol):
    """The states of some chunks."""

    state: State
    inputs: tuple[tirx.Var, ...]

    @property
    def is_written_out(self) -> bool:
        """Whether there are so few that their merge has no loop."""

    @property
    def chunks(self) -> Extent:
        """How many there are."""

    def slots(self, tiling: Tiling, index_dtype: str) -> Slots:
        """The states as the segments of an axis."""

    def count(self, chunk: ir.Expr) -> ir.Expr | None:
        """The positions of a chunk; None where merging does not need it."""


class Stacked:
    """States that the caller passes, one chunk after another, and the positions of each where that is needed.

    Attributes
    ----------
    inputs : the states in the order of `State.leaving`, then `counts`.
    """

    def __init__(self, state: State, chunks: Extent, index_dtype: str) -> None:
        self.state, self._chunks = state, chunks
        self.states = [one.buffer(state.group, index_dtype, f"{one.name}s", leading=[chunks]) for one in state.leaving]
        shape = [as_index(chunks, index_dtype)]
        self.counts = tirx.decl_buffer(shape, COUNTS, name="counts", layout=None) if state.counted else None
        self.inputs = (*self.states, *([] if self.counts is None else [self.counts]))

    @property
    def is_written_out(self) -> bool:
        """A loop reads them one after another."""
        return False

    @property
    def chunks(self) -> Extent:
        """How many there are."""
        return self._chunks

    def slots(self, tiling: Tiling, index_dtype: str) -> Slots:
        """The states as the segments of an axis."""
        slots = Slots(self.state.group, tiling, self.state.dims, index_dtype)
        for one, buffer in zip(self.state.leaving, self.states, strict=True):
            slots.table[one.symbol] = Slot(buffer, one.dims or (_UNIT,))
        return with_references(slots, self.state)

    def count(self, chunk: ir.Expr) -> ir.Expr | None:
        """The positions of a chunk."""
        return None if self.counts is None else load(self.counts, [chunk])


@dataclass(frozen=True)
class Segment:
    """The state of a chunk, or of a piece of one, in buffers of a function that computes it.

    Attributes
    ----------
    buffers : in the order of `State.leaving`.
    at : the indices before those of rows: the number of the piece.
    count : of positions.
    """

    buffers: Sequence[tirx.Var]
    at: tuple[ir.Expr, ...]
    count: Extent


class Apart:
    """States in buffers of each chunk, of a function that computes them itself."""

    inputs: tuple[tirx.Var, ...] = ()

    def __init__(self, state: State, segments: Sequence[Segment]) -> None:
        self.state, self.segments = state, segments

    @property
    def is_written_out(self) -> bool:
        """Whether there are so few that their merge has no loop."""
        return len(self.segments) <= _WRITTEN_OUT

    @property
    def chunks(self) -> Extent:
        """How many there are."""
        return len(self.segments)

    def slots(self, tiling: Tiling, index_dtype: str) -> Slots:
        """The states as the segments of an axis."""
        slots = _SlotsApart(self.state.group, tiling, self.state.dims, index_dtype)
        for k, one in enumerate(self.state.leaving):
            places = [(segment.buffers[k], segment.at) for segment in self.segments]
            slots.table[one.symbol] = Slot(places[0][0], one.dims)
            slots.apart[one.symbol] = places
        with_references(slots, self.state)
        for reference, component in self.state.standing_at.items():
            slots.apart[reference] = slots.apart[component]
        return slots

    def count(self, chunk: ir.Expr) -> ir.Expr | None:
        """The positions of a chunk."""
        counts = [as_index(segment.count, COUNTS) for segment in self.segments]
        return _chosen(chunk, counts) if self.state.counted else None


@dataclass
class _SlotsApart(Slots):
    """Slots of segments that are in buffers of their own.

    Attributes
    ----------
    apart : where a key is, by segment: the buffer, and the indices before those of rows.
    """

    apart: dict[object, list[tuple[tirx.Var, tuple[ir.Expr, ...]]]] = field(default_factory=dict)

    def read(self, key: object, at: Values) -> ir.Expr:
        """The value of a key's slot; of one that is apart, that of the segment."""
        slot, places = self.table[key], self.apart.get(key, [])
        if not places or not slot.buffer.same_as(places[0][0]):
            return super().read(key, at)
        plain = Slot(slot.buffer, slot.dims, per_segment=False)
        return _chosen(at[SEGMENT], [load(buffer, self._within(plain, first, at)) for buffer, first in places])

    def _within(self, slot: Slot, first: tuple[ir.Expr, ...], at: Values) -> list[ir.Expr]:
        return [*first, *(self.indices(slot, at) if slot.dims or not first else ())]


def _chosen(number: ir.Expr, values: Sequence[ir.Expr]) -> ir.Expr:
    """The value of a number."""
    if isinstance(number, ir.prim.IntImm):
        return values[int(number)]
    found = values[-1]
    for k, value in reversed(list(enumerate(values[:-1]))):
        found = tirx.Select(tirx.EQ(number, as_index(k, str(number.ty.dtype))), value, found)
    return found


def with_references(slots: Slots, state: State) -> Slots:
    """Slots in which references that are components stand where those do."""
    for reference, component in state.standing_at.items():
        slots.table[reference] = slots.table[component]
    for move in state.program.moves:
        slots.table[move.moved] = slots.table[move.reference]
    return slots
