"""The cluster-level merge: blocks of a cluster run at the same time and reach each other's shared memory.

    states    each block leaves its state with every other, and merges all
    shares    each block sends every other its part of what that one merges

Nobody's memory may be written before its block has started, nor be left before all have written. Of states, that takes
two barriers of the cluster; what is sent of shares arrives at a barrier of its target, which knows how many bytes it
gets: nobody waits for a peer but for those.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tvm import ir, tirx

from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.tile.emit import device_call, device_functions, named, when
from tvm_cascade.tile.hopper.barrier import Barriers, cluster_sync, cluster_wait
from tvm_cascade.tile.merge.lanes import Lanes
from tvm_cascade.tile.merge.places import shared_slots
from tvm_cascade.tile.state import State

COPY = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
"""An instruction that copies to another block of the cluster, and arrives at a barrier there."""


_C_TYPES = {
    "float32": "float", "float64": "double", "bool": "bool", "int8": "signed char", "uint8": "unsigned char",
    "int16": "short", "uint16": "unsigned short", "int32": "int", "uint32": "unsigned", "int64": "long long",
    "uint64": "unsigned long long",
}  # fmt: skip

_TEXTS = device_functions(Path(__file__).with_suffix(".cuh"))


def leave_at_rank(own: ir.Expr, rank: ir.Expr, value: ir.Expr) -> None:
    """Stores a value at the address `own` of this block in the memory of the block of a rank."""
    dtype = dtype_of(value)
    device_call(f"cluster_leave_{dtype}", _TEXTS["cluster_leave"], own, rank, value, dtype=dtype, c=_C_TYPES[dtype])


def send_four_to_rank(own: ir.Expr, arrived: ir.Expr, rank: ir.Expr, *four: ir.Expr) -> None:
    """As `leave_at_rank`, of four float32 that are neighbours; they arrive at that block's barrier as 16 bytes."""
    device_call("cluster_send_four", _TEXTS["cluster_send_four"], own, arrived, rank, *four)


class PartsOfSums:
    """Parts of sums over k, one part for each block of a cluster, each of which adds up a share of the sums.

    Every block leaves what it has of each share where its operands were, and copies it to the share's block; what it
    has of its own share it leaves beside those that come. A share's block waits for the others' parts, and adds all up
    in their order: so the result does not depend on who comes first.

    Parameters
    ----------
    name, shape : of the shared memory for all parts of the block's own share.
    size : bytes that the block gets from each of the others.
    """

    def __init__(self, pool: Any, name: str, shape: Sequence[int], blocks: int, size: int) -> None:
        self.parts = named(name, pool.alloc(tuple(shape), "float32", align=128))
        self.blocks, self.size, self.first = blocks, size, [0] * len(shape)
        if blocks > 1:
            self.arrived = Barriers(pool, 1, 1)

    def initialise(self) -> None:
        """Initialises the barrier, which waits for the parts of all other blocks; called by one thread."""
        if self.blocks > 1:
            self.arrived.initialise()
            self.arrived.announce(0, self.size * (self.blocks - 1))

    def keep(self, memory: ir.Expr, is_own: ir.Expr, place: ir.Expr, *sums: ir.Expr) -> None:
        """Leaves neighbouring sums, of the block's own share beside those that come, of others in other memory.

        Parameters
        ----------
        place : in units of so many sums: two or four.
        """
        name = {2: "leave_pair", 4: "leave_sums"}[len(sums)]
        device_call(name, _TEXTS[name], memory, self.parts.ptr_to(self.first), is_own, place, *sums)

    def leave(self) -> None:
        """Waits until no block of the cluster has copies from here under way."""
        if self.blocks > 1:
            cluster_wait()


class ClusterStates:
    """States of the blocks of a cluster in distributed shared memory, component by component.

    Parameters
    ----------
    rows : of whose states a block has one each.
    """

    def __init__(self, pool: Any, state: State, blocks: int, rows: int = 1) -> None:
        self.blocks = blocks
        self.slots = shared_slots("blocks", pool, state.form, rows * blocks)

    def exchange(self, state: State, block: ir.Expr, thread: ir.Expr, lane: ir.Expr) -> Lanes:
        """Every lane loads a block's state of the row, padded to the lanes of a warp; returns their exchange."""
        row = tirx.const(0, "int32")
        cluster_wait()
        self.leave(state, block, thread, row)
        cluster_sync()
        return self.take(state, lane, row)

    def leave(self, state: State, block: ir.Expr, other: ir.Expr, row: ir.Expr) -> None:
        """Stores the block's state of a row in another block's shared memory, if there is one of that rank."""
        with when(other < self.blocks):
            for k, part, number in state.each_register():
                place = self.slots.place(part.form, row * self.blocks + block, number)
                leave_at_rank(self.slots.arrays[k].ptr_to([place]), other, part[number])

    def take(self, state: State, lane: ir.Expr, row: ir.Expr) -> Lanes:
        """A lane loads a block's state of a row; returns the exchange of neighbouring lanes."""
        self.slots.take(state, row * self.blocks + lane % self.blocks)
        return Lanes(lane, self.blocks)
