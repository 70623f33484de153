"""The block-level merge: each warp's state in shared memory; every warp merges all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.tile.emit import in_register, named, put, when
from tvm_cascade.tile.merge.combine import Binary
from tvm_cascade.tile.merge.lanes import Lanes, exchanged
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


class SharedValues:
    """Single values of the warps of a block, one reduction after the other.

    Parameters
    ----------
    pool : the block's shared memory.
    dtypes : of the values.
    warps : a power of two, at most 32.
    warp, lane : of the thread.
    """

    def __init__(self, pool: Any, dtypes: Iterable[str], warps: int, warp: ir.Expr, lane: ir.Expr) -> None:
        self.warps, self.warp, self.lane = warps, warp, lane
        self.arrays = {dtype: named("values", pool.alloc((warps,), dtype, align=8)) for dtype in sorted({*dtypes})}

    def all_reduce(self, value: ir.Expr, combine: Binary) -> ir.Expr:
        """⊕ of the values of the block's threads; all of them take part."""
        array = self.arrays[dtype_of(value)]
        own = in_register("of_warp", Lanes(self.lane).all_reduce(value, combine))
        with when(tirx.EQ(self.lane, tirx.const(0, "int32"))):
            put(array, self.warp, own)
        T.evaluate(T.cuda.cta_sync())
        found = in_register("of_a_warp", array[self.lane % self.warps])
        T.evaluate(T.cuda.cta_sync())  # before the next values are put there
        return exchanged(found, combine, self.warps)
