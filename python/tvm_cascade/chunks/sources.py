"""Where states to be merged are: stacked along a first axis, as a caller passes them, or in buffers of each chunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tvm import ir, tirx

from tvm_cascade.analysis.tir import Extent, as_index
from tvm_cascade.chunks.state import COUNTS, State
from tvm_cascade.transform.nest import load
from tvm_cascade.transform.scope import Slot, Slots, chosen
from tvm_cascade.transform.tiling import SEGMENT, Tiling

_UNIT = tirx.Var("unit", "int32")
"""What indexes the one dimension, of extent 1, of a state that no row has: no block runs over it."""

MOST_PIECES = 8
"""Pieces of a chunk whose states are merged without a loop, at most: what a thread loads at once."""

_WRITTEN_OUT = MOST_PIECES + 1
"""States that are merged without a loop, at most: those of a chunk's pieces, and that of another."""


class Source(Protocol):
    """The states of some chunks.

    Attributes
    ----------
    inputs : what the caller passes of them.
    chunks : how many there are.
    is_written_out : they are so few that their merge has no loop.
    """

    state: State
    inputs: tuple[tirx.Var, ...]
    chunks: Extent
    is_written_out: bool

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

    is_written_out = False

    def __init__(self, state: State, chunks: Extent, index_dtype: str) -> None:
        self.state, self.chunks = state, chunks
        self.states = [one.buffer(state.group, index_dtype, "s", leading=[chunks]) for one in state.leaving]
        shape = [as_index(chunks, index_dtype)]
        self.counts = tirx.decl_buffer(shape, COUNTS, name="counts", layout=None) if state.counted else None
        self.inputs = (*self.states, *([] if self.counts is None else [self.counts]))

    def slots(self, tiling: Tiling, index_dtype: str) -> Slots:
        states = zip(self.state.leaving, self.states, strict=True)
        return _slots(
            self.state,
            tiling,
            index_dtype,
            [Slot(buffer, (SEGMENT, *(one.dims or (_UNIT,)))) for one, buffer in states],
        )

    def count(self, chunk: ir.Expr) -> ir.Expr | None:
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
        self.state, self.segments, self.chunks = state, segments, len(segments)
        self.is_written_out = len(segments) <= _WRITTEN_OUT

    def slots(self, tiling: Tiling, index_dtype: str) -> Slots:
        places = [tuple((one.buffers[k], one.at) for one in self.segments) for k in range(len(self.state.leaving))]
        states = zip(self.state.leaving, places, strict=True)
        return _slots(self.state, tiling, index_dtype, [Slot(own[0][0], one.dims, apart=own) for one, own in states])

    def count(self, chunk: ir.Expr) -> ir.Expr | None:
        counts = [as_index(segment.count, COUNTS) for segment in self.segments]
        return chosen(chunk, counts) if self.state.counted else None


def _slots(state: State, tiling: Tiling, index_dtype: str, leaving: Sequence[Slot]) -> Slots:
    """The slots of what leaves; references that are components stand where those do."""
    slots = Slots(state.group, tiling, state.dims, index_dtype)
    slots.table.update({one.symbol: slot for one, slot in zip(state.leaving, leaving, strict=True)})
    for reference, component in state.standing_at.items():
        slots.table[reference] = slots.table[component]
    for move in state.program.moves:
        slots.table[move.moved] = slots.table[move.reference]
    return slots
