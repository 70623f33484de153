"""A meeting of the blocks of a cluster, all of which have a piece of one item, in distributed shared memory.

Each sends to every other the patches that that one merges, and the scalars of their rows. Stores are asynchronous and
arrive at a barrier of their target, which knows how many bytes it gets. The memory of a block is written by none before
that block has started; and none ends before all that others send to it has arrived.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.attention.pieces import EachWork, PieceWork
from tvm_cascade.tile.emit import bind, named, ptx, when
from tvm_cascade.tile.fragment import DTYPE, QUAD
from tvm_cascade.tile.hopper.barrier import Barriers, cluster_arrive, cluster_wait, fence_barriers
from tvm_cascade.tile.merge.cluster import send_four_to_rank
from tvm_cascade.tile.merge.places import (
    BYTES,
    FOUR,
    OCTET,
    SPAN,
    Patches,
    as_float,
    from_float,
    take_four,
    whole_fours,
)
from tvm_cascade.tile.skeletons.stream.epilogue import Folded
from tvm_cascade.tile.skeletons.stream.pieces.meeting import HELD, Meeting, Unit
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.work import Threads, Work

_WARPS = 4
"""That merge."""


class ClusterMeeting(Meeting):
    """Emits it."""

    is_of_all = True

    def __init__(self, tiling: Tiling, blocks: int) -> None:
        super().__init__(tiling, blocks)
        self.blocks, self.patches = blocks, Patches(self.most_rows, blocks)
        if self.patches.stride == blocks:  # a block has all spans of the rows that it has any of
            most = min(self.patches.most(self.spans * SPAN) // _WARPS, HELD // (FOUR * (blocks + 1)))
            self.at_a_time = max(n for n in range(1, self.spans + 1) if self.spans % n == 0 and n <= max(most, 1))

    def allocate(self, pool: Any, threads: Threads) -> None:
        self.threads = threads
        self.places: dict[int, Any] = {}
        for k, part in enumerate(self.form):
            if part.width > 1:
                own = self.blocks, self.patches.most(part.width), OCTET, SPAN
                self.places[k] = named("met", pool.alloc(own, part.dtype, align=16))
        rows = self.patches.octets * OCTET
        shape = self.blocks, rows, whole_fours(len(self.scalars))
        self.met_scalars = named("met_scalars", pool.alloc(shape, DTYPE, align=16))
        self.arrived = Barriers(pool, 1, 1)

    def initialise(self) -> None:
        self.arrived.initialise()
        fence_barriers()
        ptx("fence.proxy.async.shared::cta")

    def start(self) -> None:
        """Arrives as one that has started."""
        cluster_arrive(relaxed=True)

    def leave(self, fold: Folded, work: PieceWork) -> None:
        """Sends the state of the block's piece, and waits for the others'."""
        self.rank = bind("own_rank", self.threads.block % self.blocks)
        with when(self.threads.leads):
            self.arrived.announce(0, self._bytes())
        cluster_wait()
        self._leave_state(fold)
        self.arrived.wait(0, 0)

    def settle(self, each_work: EachWork) -> None:
        """Merges the block's patches of the cluster's item."""
        self.rank = bind("own_rank", self.threads.block % self.blocks)
        count = bind("own_patches", self.patches.count(self.spans // self.at_a_time, self.rank))
        octets, lane = self.patches.octets, self.threads.lane
        with each_work() as work:
            rows = bind("merged_rows", self._rows(work))
            with T.serial((count + (_WARPS - 1)) // _WARPS) as step:
                patch = bind("patch", (step * _WARPS + self.threads.warp) * self.blocks + self.rank)
                row = bind("unit_row", patch % octets * OCTET + lane // QUAD)
                with when(tirx.And(step * _WARPS + self.threads.warp < count, row < rows)):
                    first = bind("first_span", patch // octets * self.at_a_time)
                    self._merge(Unit(work, row, [first + i for i in range(self.at_a_time)], lane % QUAD))

    def _bytes(self) -> ir.Expr:
        """That all blocks send to this one."""
        vectors = sum((self.patches.count(part.width // SPAN, self.rank) for part in self.form if part.width > 1),
                      T.int32(0))  # fmt: skip
        rows = self.patches.octets // self.patches.stride * OCTET
        words = vectors * (OCTET * SPAN) + rows * whole_fours(len(self.scalars))
        return T.cast(words * (BYTES * self.blocks), "uint32")

    def _has_row(self, work: Work, row: ir.Expr) -> ir.Expr:
        """Whole patches are sent, whatever rows they have."""
        return row < self.patches.octets * OCTET

    def _put_scalars(self, row: ir.Expr, values: list[ir.Expr]) -> None:
        """To the blocks that have patches of the row, a lane to every fourth of those."""
        stride, lane = self.patches.stride, self.threads.lane % QUAD
        words = [as_float(value) for value in values]
        words += [T.float32(0)] * (whole_fours(len(words)) - len(words))
        for first in range(0, self.blocks // stride, QUAD):
            with when(first + lane < self.blocks // stride):
                rank = (first + lane) * stride + row // OCTET % stride
                for k in range(0, len(words), FOUR):
                    self._send(self.met_scalars.ptr_to([self.rank, row, k]), rank, words[k : k + FOUR])

    def _put_four(self, part: int, row: ir.Expr, span: ir.Expr | int, values: list[ir.Expr]) -> None:
        patch, lane = bind("patch", self.patches.number(row, span)), self.threads.lane % QUAD
        place = self.places[part].ptr_to([self.rank, patch // self.blocks, row % OCTET, lane * FOUR])
        self._send(place, patch % self.blocks, values)

    def _send(self, place: ir.Expr, rank: ir.Expr, four: list[ir.Expr]) -> None:
        send_four_to_rank(place, self.arrived.pointer(0), rank, *four)

    def _get(self, unit: Unit, number: ir.Expr, part: int) -> ir.Expr:
        return from_float(self.met_scalars[number, unit.row, self.scalars.index(part)], self.form[part].dtype)

    def _get_four(self, unit: Unit, number: ir.Expr, part: int, span: ir.Expr, into: Any, first: int) -> None:
        own = self.patches.number(unit.row, span) // self.blocks
        place = self.places[part].ptr_to([number, own, unit.row % OCTET, unit.lane * FOUR])
        take_four(place, T.address_of(into[first]))
