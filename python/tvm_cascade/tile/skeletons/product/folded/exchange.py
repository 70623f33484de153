"""Sums of a tile in shared memory, row after row; over parts of k, each block of a cluster adds up a share of the rows.

    every block     leaves its sums where its operands were, and copies each share of the rows to that share's block
    a share's block waits for all parts, and adds them up in their order

So the result does not depend on who comes first, and a block has whole rows.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, named, ptx, put, registers, when
from tvm_cascade.tile.fragment import ROWS, register_index
from tvm_cascade.tile.hopper.barrier import Barriers, cluster_arrive, cluster_wait, in_block
from tvm_cascade.tile.row.copies import copy_vector
from tvm_cascade.tile.skeletons.product.config import SUM_BYTES
from tvm_cascade.tile.skeletons.product.folded.config import FoldedConfig
from tvm_cascade.tile.work import GROUP_ROWS, WARP_GROUP, Threads

_ALL = 7
"""The named barrier of all consumers."""

_VECTOR = 4
"""Sums that a thread adds up at once."""

_COPY = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"

_LEAVE = """
__device__ __forceinline__ void leave_pair(void* memory, int place, float a, float b) {
  float2 pair = {a, b};
  reinterpret_cast<float2*>(memory)[place] = pair;
}
"""


class RowSums:
    """The sums of a tile as rows in shared memory.

    Attributes
    ----------
    rows : the sums, those of a row next to each other, `pitch` apart from those of the next row.
    """

    def __init__(self, config: FoldedConfig, pool: Any) -> None:
        self.config, tile = config, config.tile
        self.rows = named("sums_of_rows", pool.alloc((tile.splits * self.share,), "float32", align=128))
        self.arrived = Barriers(pool, 1, 1) if tile.splits > 1 else None

    @property
    def share(self) -> int:
        """Sums of the rows of a block."""
        return self.config.rows * self.config.pitch

    def initialise(self) -> None:
        """Initialises the barrier, which waits for the sums of all blocks; called by one thread."""
        if self.arrived is not None:
            self.arrived.initialise()
            self.arrived.announce(0, self.share * SUM_BYTES * self.config.tile.splits)

    def fill(self, sums: Any, consumer: ir.Expr, rank: ir.Expr | int, memory: ir.Expr, threads: Threads) -> None:
        """Leaves the sums of all consumers in `rows`: those of the block's own rows, all parts of k added up.

        Parameters
        ----------
        sums : of the thread, of 64 rows.
        rank : of the block in its cluster.
        memory : a pointer to shared memory that is free once all operands of a tile have been read.
        """
        self.sync()
        target = self.rows.ptr_to([0]) if self.arrived is None else memory
        self._leave(sums, consumer, target, threads)
        if self.arrived is None:
            self.sync()
            return
        ptx("fence.proxy.async.shared::cta")
        self.sync()
        with when(threads.thread == WARP_GROUP):
            self._send(rank, memory)
        self.arrived.wait(0, 0)
        cluster_arrive(relaxed=True)
        self._add_up(consumer, threads)
        self.sync()

    def leave(self) -> None:
        """Waits until no block of the cluster has copies from here under way."""
        if self.arrived is not None:
            cluster_wait()

    def sync(self) -> None:
        """Waits for all consumers."""
        ptx("bar.sync", T.uint32(_ALL), T.uint32(self.config.threads))

    def _leave(self, sums: Any, consumer: ir.Expr, memory: ir.Expr, threads: Threads) -> None:
        pitch = self.config.pitch
        first = bind("own_row", consumer * GROUP_ROWS + threads.warp * 16 + threads.lane // 4)
        for row in ROWS:
            start = bind("row_pairs", ((first + 8 * row) * pitch + threads.lane % 4 * 2) // 2)
            with T.unroll(self.config.tile.columns // 8) as j:
                values = [sums[register_index(j, row, e)] for e in (0, 1)]
                call = T.cuda.func_call(
                    "leave_pair", memory, start + j * 4, *values, source_code=_LEAVE, return_type="void"
                )
                T.evaluate(call)

    def _send(self, rank: ir.Expr | int, memory: ir.Expr) -> None:
        """Starts the copies to every block, from the next one on, so that not all send to one."""
        assert self.arrived is not None
        splits, size = self.config.tile.splits, self.share * SUM_BYTES
        source = bind("sums_address", T.cuda.cvta_generic_to_shared(memory))
        target = self.rows.ptr_to([rank * self.share])
        for turn in range(1, splits + 1):
            owner = bind("owner", (rank + turn) % splits)
            place = source + T.cast(owner * size, "uint32")
            ptx(_COPY, in_block(target, owner), place, T.uint32(size), self.arrived.of_block(owner))

    def _add_up(self, consumer: ir.Expr, threads: Threads) -> None:
        """The parts of the block's rows, in their order, into the first."""
        member = bind("member_of_all", consumer * WARP_GROUP + threads.warp * 32 + threads.lane)
        vectors, splits = self.share // _VECTOR, self.config.tile.splits
        parts = registers("parts", splits * _VECTOR)
        with T.unroll(-(-vectors // self.config.threads)) as step:
            vector = bind("sum_vector", step * self.config.threads + member)
            with when(vector < vectors):
                for split in range(splits):
                    place = vector * _VECTOR + split * self.share
                    copy_vector(parts, tirx.const(split * _VECTOR, "int32"), self.rows, place, _VECTOR)
                for e in range(_VECTOR):
                    total = parts[e]
                    for split in range(1, splits):
                        total = total + parts[split * _VECTOR + e]
                    put(parts, e, total)
                copy_vector(self.rows, vector * _VECTOR, parts, 0, _VECTOR)
