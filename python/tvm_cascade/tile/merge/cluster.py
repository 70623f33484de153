"""The cluster-level merge: each block's state in distributed shared memory; every block merges all.

Blocks of a cluster run at the same time and reach each other's shared memory (distributed shared memory). Nobody's may
be written before its block has started, nor be left before all have written: two barriers of the cluster.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import when
from tvm_cascade.tile.merge.lanes import Lanes
from tvm_cascade.tile.merge.slots import shared_slots
from tvm_cascade.tile.state import State

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
    """States of the blocks of a cluster in distributed shared memory, component by component.

    Parameters
    ----------
    pool : the block's shared memory.
    blocks : of a cluster: a power of two.
    rows : of whose states a block has one each.
    """

    def __init__(self, pool: Any, state: State, blocks: int, rows: int = 1) -> None:
        self.blocks = blocks
        self.slots = shared_slots("blocks", pool, state.form, rows * blocks)

    def start(self) -> None:
        """Arrives at the cluster barrier of starts."""
        _call("cluster_arrive", _ARRIVE)

    def started(self) -> None:
        """Waits until all blocks of the cluster have started."""
        _call("cluster_wait", _WAIT)

    def exchange(self, state: State, block: ir.Expr, thread: ir.Expr, lane: ir.Expr) -> Lanes:
        """Every lane loads a block's state of the row, padded to the lanes of a warp; returns their exchange.

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
        """Stores the block's state of a row in another block's shared memory, if there is one of that rank."""
        with when(other < self.blocks):
            for shared, part in zip(self.slots.arrays, state.parts, strict=True):
                text = _LEAVE.format(dtype=part.dtype, c=_C_TYPES[part.dtype])
                with part.each() as number:
                    place = self.slots.place(part.form, row * self.blocks + block, number)
                    _call(f"cluster_leave_{part.dtype}", text, shared.ptr_to([place]), other, part[number])

    def meet(self) -> None:
        """Waits until all blocks have stored their states."""
        _call("cluster_arrive", _ARRIVE)
        _call("cluster_wait", _WAIT)

    def take(self, state: State, lane: ir.Expr, row: ir.Expr) -> Lanes:
        """A lane loads a block's state of a row; returns the exchange of neighbouring lanes."""
        self.slots.take(state, row * self.blocks + lane % self.blocks)
        return Lanes(lane, self.blocks)


def _call(name: str, source: str, *arguments: ir.Expr) -> None:
    T.evaluate(T.cuda.func_call(name, *arguments, source_code=source, return_type="void"))
