"""The block-level merge: each warp's state in shared memory; every warp merges all of them."""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import when
from tvm_cascade.tile.merge.lanes import Lanes
from tvm_cascade.tile.merge.slots import shared_slots
from tvm_cascade.tile.state import State


class SharedStates:
    """States of the warps of a block.

    Parameters
    ----------
    pool : the block's shared memory.
    warps : a power of two, at most 32.
    """

    def __init__(self, pool: Any, state: State, warps: int) -> None:
        self.warps = warps
        self.slots = shared_slots("states", pool, state.form, warps)

    def exchange(self, state: State, warp: ir.Expr, lane: ir.Expr) -> Lanes:
        """Every lane loads a warp's state, padded to the lanes of a warp; returns their exchange."""
        with when(tirx.EQ(lane, tirx.const(0, "int32"))):
            self.slots.leave(state, warp)
        T.evaluate(T.cuda.cta_sync())
        self.slots.take(state, lane % self.warps)
        return Lanes(lane, self.warps)
