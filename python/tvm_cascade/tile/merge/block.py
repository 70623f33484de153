"""The block-level merge: states of a block's threads meet in shared memory, so that the lanes of a warp have one row's.

    warps       each leaves its state; every warp takes those of all, a lane each
    columns     thread (group, lane) leaves one state for each row of its vector; neighbouring lanes take the states
                that all groups have of one row

Lanes merge them as they do anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.tile.emit import in_register, named, put, registers, sync_block, when
from tvm_cascade.tile.merge.combine import Binary
from tvm_cascade.tile.merge.lanes import Lanes, exchanged
from tvm_cascade.tile.merge.places import Slots, shared_slots
from tvm_cascade.tile.state import State


class SharedStates:
    """States of the warps of a block.

    Parameters
    ----------
    warps : a power of two, at most 32.
    """

    def __init__(self, pool: Any, state: State, warps: int) -> None:
        self.warps = warps
        self.slots = shared_slots("states", pool, state.form, warps)

    def exchange(self, state: State, warp: ir.Expr, lane: ir.Expr) -> Lanes:
        """Every lane loads a warp's state, padded to the lanes of a warp; returns their exchange."""
        with when(tirx.EQ(lane, tirx.const(0, "int32"))):
            self.slots.leave(state, warp)
        sync_block()
        self.slots.take(state, lane % self.warps)
        return Lanes(lane, self.warps)


class SharedValues:
    """Single values of the warps of a block, one reduction after the other."""

    def __init__(self, pool: Any, dtypes: Iterable[str], warps: int, warp: ir.Expr, lane: ir.Expr) -> None:
        self.warps, self.warp, self.lane = warps, warp, lane
        self.arrays = {dtype: named("values", pool.alloc((warps,), dtype, align=8)) for dtype in sorted({*dtypes})}

    def all_reduce(self, value: ir.Expr, combine: Binary) -> ir.Expr:
        """⊕ of the values of the block's threads; all of them take part."""
        array = self.arrays[dtype_of(value)]
        own = in_register("of_warp", Lanes(self.lane).all_reduce(value, combine))
        with when(tirx.EQ(self.lane, tirx.const(0, "int32"))):
            put(array, self.warp, own)
        sync_block()
        found = in_register("of_a_warp", array[self.lane % self.warps])
        sync_block()  # before the next values are put there
        return exchanged(found, combine, self.warps)


class ThreadStates(Slots):
    """States of several rows in a thread's registers, one of them current."""

    def __init__(self, state: State, rows: int) -> None:
        self.state = state
        super().__init__(state.form, rows, lambda count, dtype: registers("states", count, dtype))

    def clear(self) -> None:
        self.state.clear()
        with T.unroll(self.count) as row:
            self.leave(self.state, row)


class ColumnStates:
    """States of the groups of a block, by group and row, part by part.

    Parameters
    ----------
    groups : a power of two, at most 32.
    lanes, vector : of a group, and rows of a lane.
    """

    def __init__(self, pool: Any, state: State, groups: int, lanes: int, vector: int) -> None:
        self.groups, self.lanes = groups, lanes
        self.pitch = lanes * vector + 1  # lanes that take one row's states from all groups find them in other banks
        self.slots = shared_slots("columns", pool, state.form, groups * self.pitch)

    def leave(self, states: ThreadStates, group: ir.Expr, lane: ir.Expr) -> None:
        """A thread stores its states; a block barrier has to follow before they are loaded."""
        with T.unroll(states.count) as row:
            self.slots.fill(group * self.pitch + row * self.lanes + lane, states, row)

    def exchange(self, state: State, row: ir.Expr, lane: ir.Expr, member: ir.Expr) -> Lanes:
        """Every lane loads one group's state of a row; returns their exchange.

        Parameters
        ----------
        row, lane : the number of the row in the vector of a lane of the groups.
        member : the group, the thread's own lane of a warp modulo their number.
        """
        self.slots.take(state, member * self.pitch + row * self.lanes + lane)
        return Lanes(member, self.groups)
