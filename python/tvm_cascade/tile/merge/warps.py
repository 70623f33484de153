"""The block level: each warp leaves its state in shared memory; every warp merges all of them, and has the whole."""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.tile.emit import named, put, when
from tvm_cascade.tile.merge.lanes import Lanes
from tvm_cascade.tile.state import State


class SharedStates:
    """States of the warps of a block, part by part.

    Parameters
    ----------
    pool : the block's shared memory.
    warps : a power of two, at most 32.
    """

    def __init__(self, pool: Any, state: State, warps: int) -> None:
        self.warps = warps
        self.parts = [named("states", pool.alloc((warps,), dtype_of(part), align=8)) for part in state.parts]

    def exchange(self, state: State, warp: ir.Expr, lane: ir.Expr) -> Lanes:
        """Every lane takes a warp's state, each as many times as lanes there are; the exchange that merges them."""
        with when(tirx.EQ(lane, tirx.const(0, "int32"))):
            for shared, own in zip(self.parts, state.parts, strict=True):
                put(shared, warp, own[0])
        T.evaluate(T.cuda.cta_sync())
        for shared, own in zip(self.parts, state.parts, strict=True):
            put(own, 0, shared[lane % self.warps])
        return Lanes(lane, self.warps)
