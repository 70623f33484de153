"""The block-level merge of columns: states are transposed through shared memory, so that a warp has one row's.

    before     thread (group, lane) has one state for each row of its vector
    after      neighbouring lanes have the states that all groups have of one row

Lanes merge them as they do anywhere.
"""

from __future__ import annotations

from typing import Any

from tvm import ir
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import registers
from tvm_cascade.tile.merge.lanes import Lanes
from tvm_cascade.tile.merge.slots import Slots, shared_slots
from tvm_cascade.tile.state import State


class ThreadStates:
    """States of several rows in a thread's registers, one of them current."""

    def __init__(self, state: State, rows: int) -> None:
        self.state, self.rows = state, rows
        self.slots = Slots(state.form, rows, lambda count, dtype: registers("states", count, dtype))

    def clear(self) -> None:
        """Initialises all of them to the identity."""
        self.state.clear()
        with T.unroll(self.rows) as row:
            self.leave(row)

    def take(self, row: ir.Expr) -> None:
        """Makes the state of a row the current one."""
        self.slots.take(self.state, row)

    def leave(self, row: ir.Expr) -> None:
        """Stores the current state back."""
        self.slots.leave(self.state, row)


class ColumnStates:
    """States of the groups of a block, by group and row, part by part.

    Parameters
    ----------
    pool : the block's shared memory.
    groups : a power of two, at most 32.
    lanes, vector : of a group, and rows of a lane.
    """

    def __init__(self, pool: Any, state: State, groups: int, lanes: int, vector: int) -> None:
        self.groups, self.lanes = groups, lanes
        self.pitch = lanes * vector + 1  # lanes that take one row's states from all groups find them in other banks
        self.slots = shared_slots("columns", pool, state.form, groups * self.pitch)

    def leave(self, states: ThreadStates, group: ir.Expr, lane: ir.Expr) -> None:
        """A thread stores its states; a block barrier has to follow before they are loaded."""
        with T.unroll(states.rows) as row:
            self.slots.fill(group * self.pitch + row * self.lanes + lane, states.slots, row)

    def exchange(self, state: State, row: ir.Expr, lane: ir.Expr, member: ir.Expr) -> Lanes:
        """Every lane loads one group's state of a row; returns their exchange.

        Parameters
        ----------
        row, lane : the number of the row in the vector of a lane of the groups.
        member : the group, the thread's own lane of a warp modulo their number.
        """
        self.slots.take(state, member * self.pitch + row * self.lanes + lane)
        return Lanes(member, self.groups)
