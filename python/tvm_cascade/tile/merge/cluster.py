"""The cluster level: each block leaves its state in the shared memory of all blocks of its cluster, and all merge it.

Blocks of a cluster run at the same time and reach each other's shared memory (distributed shared memory). Nobody's may
be written before its block has started, nor be left before all have written: two barriers of the cluster.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.tile.emit import named, put, when
from tvm_cascade.tile.merge.lanes import Lanes
from tvm_cascade.tile.state import State

LARGEST_CLUSTER = 8
"""Blocks of a cluster that every GPU with clusters can have."""

_ARRIVE = """
__device__ __forceinline__ void cluster_arrive() { __cluster_barrier_arrive(); }
"""
_WAIT = """
__device__ __forceinline__ void cluster_wait() { __cluster_barrier_wait(); }
"""
_LEAVE = """
__device__ __forceinline__ void cluster_leave_{dtype}(void* own, int block, {c} value) {{
  *reinterpret_cast<{c}*>(__cluster_map_shared_rank(own, block)) = value;  // the same place in another block's memory
}}
"""
_C_TYPES = {
    "float32": "float", "float64": "double", "bool": "bool", "int8": "signed char", "uint8": "unsigned char",
    "int16": "short", "uint16": "unsigned short", "int32": "int", "uint32": "unsigned", "int64": "long long",
    "uint64": "unsigned long long",
}  # fmt: skip


class ClusterStates:
    """States of the blocks of a cluster in the shared memory of each, part by part.

    Parameters
    ----------
    pool : the block's shared memory.
    blocks : of a cluster: a power of two, at most `LARGEST_CLUSTER`.
    rows : of whose states a block has one each.
    """

    def __init__(self, pool: Any, state: State, blocks: int, rows: int = 1) -> None:
        self.blocks = blocks
        self.parts = [named("blocks", pool.alloc((rows * blocks,), dtype_of(part), align=8)) for part in state.parts]

    def start(self) -> None:
        """Says that the block has started."""
        _call("cluster_arrive", _ARRIVE)

    def started(self) -> None:
        """Waits until all blocks have."""
        _call("cluster_wait", _WAIT)

    def exchange(self, state: State, block: ir.Expr, thread: ir.Expr, lane: ir.Expr) -> Lanes:
        """Every lane takes a block's state of the one row, each as many times as lanes there are; what merges them.

        Parameters
        ----------
        block : the block's own number in the cluster.
        """
        row = tirx.const(0, "int32")
        self.started()
        self.leave(state, block, thread, row)
        self.meet()
        return self.take(state, lane, row)

    def leave(self, state: State, block: ir.Expr, other: ir.Expr, row: ir.Expr) -> None:
        """Leaves the block's state of a row with another block, if there is one of that number."""
        with when(other < self.blocks):
            for shared, own in zip(self.parts, state.parts, strict=True):
                dtype = dtype_of(own)
                text = _LEAVE.format(dtype=dtype, c=_C_TYPES[dtype])
                _call(f"cluster_leave_{dtype}", text, shared.ptr_to([row * self.blocks + block]), other, own[0])

    def meet(self) -> None:
        """Waits until all blocks have left what they leave."""
        _call("cluster_arrive", _ARRIVE)
        _call("cluster_wait", _WAIT)

    def take(self, state: State, lane: ir.Expr, row: ir.Expr) -> Lanes:
        """The lane takes a block's state of a row; the exchange that merges those of neighbouring lanes."""
        for shared, own in zip(self.parts, state.parts, strict=True):
            put(own, 0, shared[row * self.blocks + lane % self.blocks])
        return Lanes(lane, self.blocks)


def _call(name: str, source: str, *arguments: ir.Expr) -> None:
    T.evaluate(T.cuda.func_call(name, *arguments, source_code=source, return_type="void"))
