"""Partial sums over parts of k, one part for each block of a cluster: each block adds up a share of the columns.

Every block leaves what it has of a share in the shared memory of the share's block (distributed shared memory), and
adds what it finds in its own, in the order of the parts: so the result does not depend on who comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, named, put
from tvm_cascade.tile.hopper.barrier import cluster_sync
from tvm_cascade.tile.skeletons.product.config import ProductConfig
from tvm_cascade.tile.work import WARP_GROUP, Threads

_VECTOR = 4
"""Sums that are stored at once."""

_LEAVE = """
__device__ __forceinline__ void leave_sums(void* own, int block, float a, float b, float c, float d) {
  float4 sums = {a, b, c, d};
  *reinterpret_cast<float4*>(__cluster_map_shared_rank(own, block)) = sums;
}
"""


class PartialSums:
    """The exchange of partial sums.

    Parameters
    ----------
    pool : the block's shared memory.
    """

    def __init__(self, config: ProductConfig, pool: Any) -> None:
        self.config = config
        self.threads = WARP_GROUP * config.consumers
        self.own = config.own_rows // 64 * config.columns // 2 // config.splits
        shape = (config.splits, self.own // _VECTOR, self.threads, _VECTOR)
        self.slots = named("partial_sums", pool.alloc(shape, "float32", align=16))

    def exchange(self, sums: Sequence[Any], rank: ir.Expr, threads: Threads) -> None:
        """Adds up the sums of the block's own share, which are then the first registers of each array.

        Parameters
        ----------
        rank : of the block in its cluster.
        """
        thread = bind("consumer_thread", threads.thread - WARP_GROUP)
        share = self.config.columns // 2 // self.config.splits
        for owner in range(self.config.splits):
            for part, array in enumerate(sums):
                for k in range(0, share, _VECTOR):
                    target = self.slots.ptr_to([rank, (part * share + k) // _VECTOR, thread, 0])
                    values = [array[owner * share + k + e] for e in range(_VECTOR)]
                    T.evaluate(
                        T.cuda.func_call("leave_sums", target, owner, *values, source_code=_LEAVE, return_type="void")
                    )
        cluster_sync()
        for part, array in enumerate(sums):
            for k in range(share):
                at = (part * share + k) // _VECTOR, thread, k % _VECTOR
                total = self.slots[(0, *at)]
                for split in range(1, self.config.splits):
                    total = total + self.slots[(split, *at)]
                put(array, k, total)
