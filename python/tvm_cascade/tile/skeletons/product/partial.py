"""Partial sums over parts of k, one part for each block of a cluster: each block adds up a share of the columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, ptx, put, when
from tvm_cascade.tile.hopper.barrier import cluster_arrive, in_block
from tvm_cascade.tile.merge.cluster import COPY, PartsOfSums
from tvm_cascade.tile.skeletons.product.config import SUM_BYTES, ProductConfig
from tvm_cascade.tile.work import WARP_GROUP, Threads

_VECTOR = 4
"""Sums that a thread stores at once."""


class PartialSums(PartsOfSums):
    """The exchange of partial sums.

    Parameters
    ----------
    arrays : of sums that a consumer has.
    """

    def __init__(self, config: ProductConfig, arrays: int, pool: Any) -> None:
        self.config = config
        self.vectors = arrays * config.columns // 2 // config.splits // _VECTOR
        shape = (config.splits, config.consumers, self.vectors, WARP_GROUP, _VECTOR)
        self.bytes = self.vectors * WARP_GROUP * _VECTOR * SUM_BYTES  # that a consumer sends to each block
        super().__init__(pool, "partial_sums", shape, config.splits, self.bytes * config.consumers)

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
        threads.named.take("all consumers").sync(WARP_GROUP * config.consumers)  # all have read their operands
        for owner in range(config.splits):
            for part, array in enumerate(sums):
                for k in range(0, share, _VECTOR):
                    vector = (part * share + k) // _VECTOR
                    place = ((owner * config.consumers + consumer) * self.vectors + vector) * WARP_GROUP + thread
                    self.keep(memory, rank == owner, place, *(array[owner * share + k + e] for e in range(_VECTOR)))
        ptx("fence.proxy.async.shared::cta")
        own = threads.named.take("a consumer's own", config.consumers)
        own.sync(WARP_GROUP, own.first + consumer)  # all its sums are in shared memory
        with when(threads.leads):
            self._send(consumer, rank, memory)
        self.arrived.wait(0, 0)
        cluster_arrive(relaxed=True)
        for part, array in enumerate(sums):
            for k in range(share):
                at = consumer, (part * share + k) // _VECTOR, thread, k % _VECTOR
                total = self.parts[(0, *at)]
                for split in range(1, config.splits):
                    total = total + self.parts[(split, *at)]
                put(array, k, total)

    def _send(self, consumer: ir.Expr, rank: ir.Expr, memory: ir.Expr) -> None:
        """Starts the copies to every other block, from the next one on, so that not all send to one."""
        config = self.config
        source = bind("sums_address", T.cuda.cvta_generic_to_shared(memory))
        target = self.parts.ptr_to([rank, consumer, 0, 0, 0])
        for turn in range(1, config.splits):
            owner = bind("owner", (rank + turn) % config.splits)
            place = source + T.cast((owner * config.consumers + consumer) * self.bytes, "uint32")
            barrier = self.arrived.of_block(owner)
            ptx(COPY, in_block(target, owner), place, T.uint32(self.bytes), barrier)
