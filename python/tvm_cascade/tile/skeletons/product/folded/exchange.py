"""Sums of a tile in shared memory, row after row; over parts of k, each block of a cluster has a share of the rows.

Who reads a sum adds up its parts: a block has whole rows.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, ptx, put, registers, when
from tvm_cascade.tile.fragment import ROWS, register_index
from tvm_cascade.tile.hopper.barrier import cluster_arrive, cluster_wait, in_block
from tvm_cascade.tile.memory import copy_vector
from tvm_cascade.tile.merge.cluster import COPY, PartsOfSums
from tvm_cascade.tile.skeletons.product.config import SUM_BYTES
from tvm_cascade.tile.skeletons.product.folded.config import FoldedConfig
from tvm_cascade.tile.work import GROUP_ROWS, Threads

_WARPS = 4
"""Of a consumer."""


class RowSums(PartsOfSums):
    """The sums of a tile as rows in shared memory, those of a row next to each other, `pitch` apart from the next.

    Attributes
    ----------
    share : sums of the rows of a block.
    """

    def __init__(self, config: FoldedConfig, pool: Any) -> None:
        self.config, self.share, splits = config, config.rows * config.pitch, config.tile.splits
        super().__init__(pool, "sums_of_rows", (splits * self.share,), splits, self.share * SUM_BYTES)

    def fill(self, sums: Any, consumer: ir.Expr, rank: ir.Expr | int, memory: ir.Expr, threads: Threads) -> None:
        """Leaves the sums of all consumers in `parts`: for the block's own rows, one part of k after the other.

        Parameters
        ----------
        sums : of the thread, of 64 rows.
        rank : of the block in its cluster.
        memory : a pointer to shared memory that is free once all operands of a tile have been read.
        """
        sync = partial(threads.named.take("all consumers").sync, self.config.threads)
        if self.blocks == 1:
            self._leave(sums, consumer, rank, self.parts.ptr_to([0]), threads)
            sync()
            return
        sync()
        self._leave(sums, consumer, rank, memory, threads)
        ptx("fence.proxy.async.shared::cta")
        cluster_wait()
        sync()
        with when(tirx.And(consumer == 0, threads.lane == 0)):
            self._send(rank, memory, threads)
        self.arrived.wait(0, 0)
        cluster_arrive(relaxed=True)

    def read(self, target: Any, to: ir.Expr, start: ir.Expr, width: int) -> None:
        """target[to:to + width] = the sums from a place of the block's rows on, all parts of k added up."""
        parts = [target, *(registers("part", width) for _ in range(1, self.config.tile.splits))]
        for split, part in enumerate(parts):
            copy_vector(
                part, to if split == 0 else tirx.const(0, "int32"), self.parts, start + split * self.share, width
            )
        for e in range(width):
            total = target[to + e]
            for part in parts[1:]:
                total = total + part[e]
            put(target, to + e, total)

    def at(self, place: ir.Expr) -> ir.Expr:
        """The sum at a place of the block's rows."""
        total = self.parts[place]
        for split in range(1, self.config.tile.splits):
            total = total + self.parts[place + split * self.share]
        return total

    def _leave(self, sums: Any, consumer: ir.Expr, rank: ir.Expr | int, memory: ir.Expr, threads: Threads) -> None:
        """Rows of the block's own share in `parts`, at the place that they have among all; the others in `memory`."""
        pitch = self.config.pitch
        first = bind("own_row", consumer * GROUP_ROWS + threads.warp * 16 + threads.lane // 4)
        for row in ROWS:
            start = bind("row_pairs", ((first + 8 * row) * pitch + threads.lane % 4 * 2) // 2)
            own = bind("is_own", (first + 8 * row) // self.config.rows == rank)
            with T.unroll(self.config.tile.columns // 8) as j:
                self.keep(memory, own, start + j * 4, *(sums[register_index(j, row, e)] for e in (0, 1)))

    def _send(self, rank: ir.Expr | int, memory: ir.Expr, threads: Threads) -> None:
        """Starts the copies to every other block, from the next one on, so that not all send to one; warps in turn."""
        splits, size = self.config.tile.splits, self.size
        source = bind("sums_address", T.cuda.cvta_generic_to_shared(memory))
        target = self.parts.ptr_to([rank * self.share])
        for first in range(1, splits, _WARPS):
            turn = bind("turn", first + threads.warp)
            with when(turn < splits):
                owner = bind("owner", (rank + turn) % splits)
                place = source + T.cast(owner * size, "uint32")
                ptx(COPY, in_block(target, owner), place, T.uint32(size), self.arrived.of_block(owner))
