"""Row states of a warp group for the merge levels: two rows a thread, and a fragment of their products.

Threads of two groups that have the same place in their groups have the same rows and the same elements of fragments.
"""

from __future__ import annotations

from functools import partial

import sympy as sp

from tvm_cascade.tile.attention.shape import Stream
from tvm_cascade.tile.fragment import NEIGHBOURS, QUAD, register_index
from tvm_cascade.tile.skeletons.stream.epilogue import Folded
from tvm_cascade.tile.state import Number, Part, State


def row_states(stream: Stream, folded: Folded, counter: Part) -> list[State]:
    """The state of each of a thread's rows that the program has, over the registers that it is in.

    Parameters
    ----------
    counter : of the positions that the group has folded in.
    """
    widths = {p.component.symbol: len(folded.columns_of(p)) // QUAD for p in stream.products}

    def of_row(symbol: sp.Symbol, row: int) -> Part:
        if symbol in folded.accumulators:
            return Part(folded.accumulators[symbol], widths[symbol], partial(_accumulator_index, row))
        return Part(folded.rows.values[symbol], 1, partial(_row_index, row))

    fold = stream.fold
    return [
        State(
            fold,
            {c.symbol: of_row(c.symbol, r) for c in fold.components},
            {reference.symbol: of_row(reference.moved, r) for reference in fold.references},
            counter,
        )
        for r in folded.rows.own
    ]


def _accumulator_index(row: int, number: Number) -> Number:
    return register_index(number // len(NEIGHBOURS), row, number % len(NEIGHBOURS))


def _row_index(row: int, number: Number) -> Number:
    return row
