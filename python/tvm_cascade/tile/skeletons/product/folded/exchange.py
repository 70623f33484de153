"""Sums of a tile in shared memory, row after row; over parts of k, each block of a cluster has a share of the rows.

    every block     leaves its sums where its operands were, and copies each share of the rows to that share's block;
                    those of its own share it leaves beside those that come
    a share's block waits for all parts; who reads a sum adds up its parts in their order

So the result does not depend on who comes first, and a block has whole rows.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, named, ptx, put, registers, when
from tvm_cascade.tile.fragment import ROWS, register_index
from tvm_cascade.tile.hopper.barrier import Barriers, cluster_arrive, cluster_wait, in_block
from tvm_cascade.tile.memory import copy_vector
from tvm_cascade.tile.skeletons.product.config import SUM_BYTES
from tvm_cascade.tile.skeletons.product.folded.config import FoldedConfig
from tvm_cascade.tile.work import GROUP_ROWS, Threads

_ALL = 7
"""The named barrier of all consumers."""

_WARPS = 4
"""Of a consumer."""

_COPY = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"

_LEAVE = """
__device__ __forceinline__ void leave_pair(void* memory, void* own, bool is_own, int place, float a, float b) {
  float2 pair = {a, b};
  reinterpret_cast<float2*>(is_own ? own : memory)[place] = pair;
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
        """Initialises the barrier, which waits for the sums of all other blocks; called by one thread."""
        if self.arrived is not None:
            self.arrived.initialise()
            self.arrived.announce(0, self.share * SUM_BYTES * (self.config.tile.splits - 1))

    def fill(self, sums: Any, consumer: ir.Expr, rank: ir.Expr | int, memory: ir.Expr, threads: Threads) -> None:
        """Leaves the sums of all consumers in `rows`: for the block's own rows, one part of k after the other.

        Parameters
        ----------
        sums : of the thread, of 64 rows.
        rank : of the block in its cluster.
        memory : a pointer to shared memory that is free once all operands of a tile have been read.
        """
        if self.arrived is None:
            self._leave(sums, consumer, rank, self.rows.ptr_to([0]), threads)
            self.sync()
            return
        self.sync()
        self._leave(sums, consumer, rank, memory, threads)
        ptx("fence.proxy.async.shared::cta")
        cluster_wait()
        self.sync()
        with when(tirx.And(consumer == 0, threads.lane == 0)):
            self._send(rank, memory, threads)
        self.arrived.wait(0, 0)
        cluster_arrive(relaxed=True)

    def read(self, target: Any, to: ir.Expr, start: ir.Expr, width: int) -> None:
        """target[to:to + width] = the sums from a place of the block's rows on, all parts of k added up."""
        parts = [target, *(registers("part", width) for _ in range(1, self.config.tile.splits))]
        for split, part in enumerate(parts):
            copy_vector(
                part, to if split == 0 else tirx.const(0, "int32"), self.rows, start + split * self.share, width
            )
        for e in range(width):
            total = target[to + e]
            for part in parts[1:]:
                total = total + part[e]
            put(target, to + e, total)

    def at(self, place: ir.Expr) -> ir.Expr:
        """The sum at a place of the block's rows."""
        total = self.rows[place]
        for split in range(1, self.config.tile.splits):
            total = total + self.rows[place + split * self.share]
        return total

    def leave(self) -> None:
        """Waits until no block of the cluster has copies from here under way."""
        if self.arrived is not None:
            cluster_wait()

    def sync(self) -> None:
        """Waits for all consumers."""
        ptx("bar.sync", T.uint32(_ALL), T.uint32(self.config.threads))

    def _leave(self, sums: Any, consumer: ir.Expr, rank: ir.Expr | int, memory: ir.Expr, threads: Threads) -> None:
        """Rows of the block's own share in `rows`, at the place that they have among all; the others in `memory`."""
        pitch = self.config.pitch
        first = bind("own_row", consumer * GROUP_ROWS + threads.warp * 16 + threads.lane // 4)
        for row in ROWS:
            start = bind("row_pairs", ((first + 8 * row) * pitch + threads.lane % 4 * 2) // 2)
            own = bind("is_own", (first + 8 * row) // self.config.rows == rank)
            with T.unroll(self.config.tile.columns // 8) as j:
                values = [sums[register_index(j, row, e)] for e in (0, 1)]
                given = (memory, self.rows.ptr_to([0]), own, start + j * 4, *values)
                T.evaluate(T.cuda.func_call("leave_pair", *given, source_code=_LEAVE, return_type="void"))

    def _send(self, rank: ir.Expr | int, memory: ir.Expr, threads: Threads) -> None:
        """Starts the copies to every other block, from the next one on, so that not all send to one; warps in turn."""
        assert self.arrived is not None
        splits, size = self.config.tile.splits, self.share * SUM_BYTES
        source = bind("sums_address", T.cuda.cvta_generic_to_shared(memory))
        target = self.rows.ptr_to([rank * self.share])
        for first in range(1, splits, _WARPS):
            turn = bind("turn", first + threads.warp)
            with when(turn < splits):
                owner = bind("owner", (rank + turn) % splits)
                place = source + T.cast(owner * size, "uint32")
                ptx(_COPY, in_block(target, owner), place, T.uint32(size), self.arrived.of_block(owner))
