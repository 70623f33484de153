"""Partial sums over parts of k, one part for each block of a cluster: each block adds up a share of the columns.

    every block     leaves what it has of each share where its operands were, and copies it to the share's block;
                    what it has of its own share it leaves beside those that come
    a share's block waits for the others' parts, and adds all up in their order

So the result does not depend on who comes first. Copies between the blocks of a cluster are asynchronous and complete
on a barrier of their target: nobody waits for a peer but for its sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, named, ptx, put, when
from tvm_cascade.tile.hopper.barrier import Barriers, cluster_arrive, cluster_wait, in_block
from tvm_cascade.tile.skeletons.product.config import ProductConfig
from tvm_cascade.tile.work import WARP_GROUP, Threads

_VECTOR = 4
"""Sums that a thread stores at once."""

_BYTES = 4
"""Of a sum."""

_ALL_READ = 7
"""The named barrier of the consumers: all have read their operands."""

_SENT = 8
"""The first named barrier of each consumer: all its sums are in shared memory."""

_COPY = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"

_LEAVE = """
__device__ __forceinline__ void leave_sums(void* memory, void* own, bool is_own, int place, float a, float b, float c,
                                           float d) {
  float4 sums = {a, b, c, d};
  reinterpret_cast<float4*>(is_own ? own : memory)[place] = sums;
}
"""


class PartialSums:
    """The exchange of partial sums.

    Parameters
    ----------
    arrays : of sums that a consumer has.
    """

    def __init__(self, config: ProductConfig, arrays: int, pool: Any) -> None:
        self.config = config
        self.vectors = arrays * config.columns // 2 // config.splits // _VECTOR
        shape = (config.splits, config.consumers, self.vectors, WARP_GROUP, _VECTOR)
        self.found = named("partial_sums", pool.alloc(shape, "float32", align=128))
        self.arrived = Barriers(pool, 1, 1)

    @property
    def bytes(self) -> int:
        """That a consumer sends to each block."""
        return self.vectors * WARP_GROUP * _VECTOR * _BYTES

    def initialise(self) -> None:
        """Initialises the barrier, which waits for the sums of all other blocks; called by one thread."""
        self.arrived.initialise()
        self.arrived.announce(0, self.bytes * self.config.consumers * (self.config.splits - 1))

    def exchange(
        self, sums: Sequence[Any], consumer: ir.Expr, rank: ir.Expr, memory: ir.Expr, threads: Threads
    ) -> None:
        """Adds up the sums of the block's own share, which are then the first registers of each array.

        Parameters
        ----------
        sums : arrays of registers.
        rank : of the block in its cluster.
        memory : a pointer to shared memory that is free once all operands of a tile have been read.
        """
        config = self.config
        thread = bind("thread_of_consumer", threads.warp * 32 + threads.lane)
        share = config.columns // 2 // config.splits
        ptx("bar.sync", T.uint32(_ALL_READ), T.uint32(WARP_GROUP * config.consumers))
        for owner in range(config.splits):
            for part, array in enumerate(sums):
                for k in range(0, share, _VECTOR):
                    vector = (part * share + k) // _VECTOR
                    place = ((owner * config.consumers + consumer) * self.vectors + vector) * WARP_GROUP + thread
                    values = [array[owner * share + k + e] for e in range(_VECTOR)]
                    given = (memory, self.found.ptr_to([0, 0, 0, 0, 0]), rank == owner, place, *values)
                    T.evaluate(T.cuda.func_call("leave_sums", *given, source_code=_LEAVE, return_type="void"))
        ptx("fence.proxy.async.shared::cta")
        ptx("bar.sync", T.cast(_SENT + consumer, "uint32"), T.uint32(WARP_GROUP))
        with when(threads.leads):
            self._send(consumer, rank, memory)
        self.arrived.wait(0, 0)
        cluster_arrive(relaxed=True)
        for part, array in enumerate(sums):
            for k in range(share):
                at = consumer, (part * share + k) // _VECTOR, thread, k % _VECTOR
                total = self.found[(0, *at)]
                for split in range(1, config.splits):
                    total = total + self.found[(split, *at)]
                put(array, k, total)

    def leave(self) -> None:
        """Waits until no block of the cluster has copies from here under way."""
        cluster_wait()

    def _send(self, consumer: ir.Expr, rank: ir.Expr, memory: ir.Expr) -> None:
        """Starts the copies to every other block, from the next one on, so that not all send to one."""
        config = self.config
        source = bind("sums_address", T.cuda.cvta_generic_to_shared(memory))
        target = self.found.ptr_to([rank, consumer, 0, 0, 0])
        for turn in range(1, config.splits):
            owner = bind("owner", (rank + turn) % config.splits)
            place = source + T.cast((owner * config.consumers + consumer) * self.bytes, "uint32")
            barrier = self.arrived.of_block(owner)
            ptx(_COPY, in_block(target, owner), place, T.uint32(self.bytes), barrier)
