"""The cluster-level merge: each block's state in distributed shared memory; every block merges all.

Blocks of a cluster run at the same time and reach each other's shared memory (distributed shared memory). Nobody's may
be written before its block has started, nor be left before all have written: two barriers of the cluster.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import dtype_of
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
_SEND_FOUR = """
__device__ __forceinline__ void cluster_send_four(void* own, void* arrived, int block, float a, float b, float c,
                                                  float d) {
  unsigned place = __cvta_generic_to_shared(own), barrier = __cvta_generic_to_shared(arrived);
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(place) : "r"(place), "r"(block));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier) : "r"(barrier), "r"(block));
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];"
               : : "r"(place), "f"(a), "f"(b), "f"(c), "f"(d), "r"(barrier) : "memory");
}
"""
_TAKE_FOUR = """
__device__ __forceinline__ void take_four(const void* from, float* into) {
  __align__(16) float four[4];
  *reinterpret_cast<float4*>(four) = *reinterpret_cast<const float4*>(from);
  into[0] = four[0], into[1] = four[1], into[2] = four[2], into[3] = four[3];
}
"""
_C_TYPES = {
    "float32": "float", "float64": "double", "bool": "bool", "int8": "signed char", "uint8": "unsigned char",
    "int16": "short", "uint16": "unsigned short", "int32": "int", "uint32": "unsigned", "int64": "long long",
    "uint64": "unsigned long long",
}  # fmt: skip


def cluster_arrive() -> None:
    """Arrives at the barrier of the cluster; what the thread has written before can be read after it."""
    _call("cluster_arrive", _ARRIVE)


def cluster_wait() -> None:
    """Waits until all threads of the cluster that have not ended have arrived."""
    _call("cluster_wait", _WAIT)


def leave_at_rank(own: ir.Expr, rank: ir.Expr, value: ir.Expr) -> None:
    """Stores a value at the address `own` of this block in the memory of the block of a rank."""
    dtype = dtype_of(value)
    _call(f"cluster_leave_{dtype}", _LEAVE.format(dtype=dtype, c=_C_TYPES[dtype]), own, rank, value)


def send_four_to_rank(own: ir.Expr, arrived: ir.Expr, rank: ir.Expr, *four: ir.Expr) -> None:
    """As `leave_at_rank`, of four float32 that are neighbours; they arrive at that block's barrier as 16 bytes."""
    _call("cluster_send_four", _SEND_FOUR, own, arrived, rank, *four)


def take_four(own: ir.Expr, into: ir.Expr) -> None:
    """Loads four float32 that are neighbours in the block's own memory to an address of registers."""
    _call("take_four", _TAKE_FOUR, own, into)


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
        cluster_arrive()

    def started(self) -> None:
        """Waits until all blocks of the cluster have started."""
        cluster_wait()

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
                with part.each() as number:
                    place = self.slots.place(part.form, row * self.blocks + block, number)
                    leave_at_rank(shared.ptr_to([place]), other, part[number])

    def meet(self) -> None:
        """Waits until all blocks have stored their states."""
        cluster_arrive()
        cluster_wait()

    def take(self, state: State, lane: ir.Expr, row: ir.Expr) -> Lanes:
        """A lane loads a block's state of a row; returns the exchange of neighbouring lanes."""
        self.slots.take(state, row * self.blocks + lane % self.blocks)
        return Lanes(lane, self.blocks)


def _call(name: str, source: str, *arguments: ir.Expr) -> None:
    T.evaluate(T.cuda.func_call(name, *arguments, source_code=source, return_type="void"))
