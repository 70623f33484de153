"""A meeting of the blocks of a cluster, all of which have a piece of one item, in distributed shared memory.

Each sends to every other what that one merges: the scalars of all rows, and what lanes have of spans whose numbers are
its own modulo the blocks. Stores are asynchronous and arrive at a barrier of their target, which knows how many bytes it
gets (plain stores and a barrier of the
cluster take three times as long). The memory of a block is written
by none before that block has started; and none ends before all that others send to it has arrived.
"""

from __future__ import annotations

from typing import Any

from tvm import ir
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, named, ptx, when
from tvm_cascade.tile.fragment import QUAD
from tvm_cascade.tile.hopper.barrier import Barriers, cluster_arrive, cluster_wait, fence_barriers
from tvm_cascade.tile.merge.cluster import send_four_to_rank, send_to_rank, take_four
from tvm_cascade.tile.merge.pieces import BYTES, FOUR, SPAN, as_float
from tvm_cascade.tile.pieces import Piece
from tvm_cascade.tile.skeletons.stream.pieces.meeting import EachPiece, Group, Meeting, Unit
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.work import WARP_GROUP


class ClusterMeeting(Meeting):
    """Emits it.

    Parameters
    ----------
    blocks : of a cluster.
    """

    is_of_all = True

    def __init__(self, tiling: Tiling, blocks: int) -> None:
        super().__init__(tiling, blocks)
        self.blocks = blocks

    def allocate(self, pool: Any) -> None:
        """Shared memory for the states of all blocks."""
        self.places: dict[int, Any] = {}
        for k in sorted(range(len(self.form)), key=lambda k: self.form[k].width == 1):
            part = self.form[k]
            own = 1 if part.width == 1 else own_elements(part.width, self.blocks)
            self.places[k] = named("met", pool.alloc((self.blocks, self.most_rows, own), part.dtype, align=16))
        self.arrived = Barriers(pool, 1, 1)

    def initialise(self) -> None:
        """Initialises the barrier at which states arrive; called by one thread."""
        self.arrived.initialise()
        fence_barriers()
        ptx("fence.proxy.async.shared::cta")

    def start(self) -> None:
        """Arrives as one that has started."""
        cluster_arrive(relaxed=True)

    def leave(self, fold: Group, piece: Piece) -> None:
        """Sends the state of the block's piece, and waits for the others'."""
        self.fold, self.rank = fold, bind("own_rank", fold.threads.block % self.blocks)
        with when(fold.threads.leads):
            self.arrived.announce(0, self._bytes(fold))
        cluster_wait()
        self._leave_state(fold)
        self.arrived.wait(0, 0)

    def _bytes(self, fold: Group) -> ir.Expr:
        """That all blocks send to this one."""
        vectors = [part.width for part in self.form if part.width > 1]
        fours = sum((own_fours(width, self.blocks, self.rank) for width in vectors), T.int32(0))
        scalars = len(self.form) - len(vectors)
        return T.cast((fours * FOUR + scalars) * BYTES * self._rows(fold.work) * self.blocks, "uint32")

    def settle(self, fold: Group, each_piece: EachPiece) -> None:
        """Merges the block's share of the cluster's item."""
        self.rank = bind("own_rank", fold.threads.block % self.blocks)
        count = bind("own_fours", own_fours(self.spans * SPAN, self.blocks, self.rank))
        thread = fold.threads.warp * 32 + fold.threads.lane
        with each_piece() as (piece, work):
            rows = bind("merged_rows", self._rows(work))
            with T.serial((rows * count + (WARP_GROUP - 1)) // WARP_GROUP) as step:
                unit = bind("unit", step * WARP_GROUP + thread)
                with when(unit < rows * count):
                    four = bind("four", unit % count * self.blocks + self.rank)
                    self._merge(Unit(work, piece, bind("unit_row", unit // count), [four // QUAD], four % QUAD))

    def _put(self, part: int, row: ir.Expr, value: ir.Expr) -> None:
        place, lane = self.places[part].ptr_to([self.rank, row, 0]), self.fold.threads.lane % QUAD
        for first in range(0, self.blocks, QUAD):
            with when(lane + first < self.blocks):
                send_to_rank(place, self.arrived.pointer(0), lane + first, as_float(value))

    def _put_four(self, part: int, row: ir.Expr, span: ir.Expr | int, values: list[ir.Expr]) -> None:
        four = span * QUAD + self.fold.threads.lane % QUAD
        place = self.places[part].ptr_to([self.rank, row, four // self.blocks * FOUR])
        send_four_to_rank(place, self.arrived.pointer(0), four % self.blocks, *values)

    def _get(self, unit: Unit, number: ir.Expr, part: int) -> ir.Expr:
        return self.places[part][number, unit.row, 0]

    def _get_four(self, unit: Unit, number: ir.Expr, part: int, span: ir.Expr, into: Any, first: int) -> None:
        own = (span * QUAD + unit.lane) // self.blocks * FOUR
        take_four(self.places[part].ptr_to([number, unit.row, own]), T.address_of(into[first]))


def own_fours(width: int, blocks: int, rank: ir.Expr) -> ir.Expr:
    """How many fours of a row of a vector the block of a rank merges."""
    return (width // FOUR - rank + (blocks - 1)) // blocks


def own_elements(width: int, blocks: int) -> int:
    """Elements of a row of a vector that one of the blocks merges, at most."""
    return -(-width // FOUR // blocks) * FOUR
