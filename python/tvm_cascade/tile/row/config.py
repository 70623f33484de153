"""The configuration of a row kernel: the threads of a row, and bytes in flight per thread."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.row.elements import why_not_staged
from tvm_cascade.tile.row.segment import Peel, even_share, peel_of, share_of
from tvm_cascade.tile.row.shape import Row

IN_FLIGHT_BYTES = 128
"""Bytes in flight per thread: more hides no more memory latency, and costs occupancy."""

PIECE_VECTORS, REST_VECTORS = 2, 4
"""Of rows of any length, vectors of a thread that are folded together: of what registers keep, and of the rest."""


@dataclass(frozen=True)
class RowConfig:
    """The cut of rows over blocks, threads and vectors.

    Attributes
    ----------
    threads : of a block.
    sharing : threads of a block that share a row, or a segment of it: all of them or neighbouring lanes of a warp, of
        contiguous rows; of strided rows a power of two, at most 32, each of another group of lanes.
    vector : neighbours in memory that a thread reads at once: positions of a row, or rows, all of which it folds.
    vectors : how many of those it has in flight.
    segments : blocks that share a row, a segment each; of strided rows at most 32.
    clustered : those blocks are a cluster, so that all of them know the whole; otherwise the last of them does.
    strided : neighbours in memory are rows.
    kept : a row's elements stay in registers until its outputs are written; otherwise they are read again. Of rows of
        any length the first ones do.
    staged : bulk copies bring a row's own elements to shared memory, where they are read, once or again.
    peeled : vectors start where those of memory do, and what of a row lies before and after them is read apart.
    ahead : what outputs alone read is read with the row, and waits in registers as well; for rows that are kept.
    resident : blocks of a multiprocessor that registers have to do for.
    why : it was chosen, in words; empty where a caller did.
    """

    threads: int
    sharing: int
    vector: int
    vectors: int
    segments: int = 1
    clustered: bool = False
    strided: bool = False
    kept: bool = False
    staged: bool = False
    peeled: bool = False
    ahead: bool = False
    resident: int = 1
    why: str = field(default="", compare=False)

    @property
    def is_of_warps(self) -> bool:
        """Whether a warp has rows by itself: one, or several of which each has a part of the lanes."""
        return self.sharing <= WARP and self.segments == 1 and not self.strided

    @property
    def positions(self) -> int:
        """Of a vector: all of it, or one where neighbours are rows."""
        return 1 if self.strided else self.vector

    @property
    def chunk(self) -> int:
        return self.sharing * self.positions * self.vectors

    @property
    def lanes(self) -> int:
        return self.threads // self.sharing

    @property
    def rows(self) -> int:
        return self.lanes * (self.vector if self.strided else 1)

    @property
    def pieces(self) -> tuple[RowConfig, ...]:
        """For what registers keep of rows of any length, piece by piece: what is absent is passed over."""
        full, rest = divmod(self.vectors, PIECE_VECTORS)
        return tuple(replace(self, vectors=each) for each in (*(PIECE_VECTORS,) * full, *([rest] if rest else [])))

    @property
    def of_the_rest(self) -> RowConfig:
        """For what they do not keep."""
        return replace(self, kept=False, ahead=False, vectors=min(self.vectors, REST_VECTORS))

    @property
    def is_alone(self) -> bool:
        return self.sharing == self.segments == 1

    def lacks(self, row: Row, gpu: Gpu) -> str:
        """Why a GPU cannot run it, in words; empty where it can.

        That is where neighbours in memory are others, nobody merges the segments of a row, the extents that they are
        cut from are not known, outputs read results that no block has, rows have no vectors to start at or break
        vectors, registers keep less than all of a share, or bulk copies cannot bring the shares of blocks.
        """
        peel = peel_of(row, self.vector) if self.peeled else None
        return _why_not_shared(row, self, gpu) or _why_not_read(row, self, peel, gpu)

    def __str__(self) -> str:
        kept = ", kept in registers" if self.kept else ""
        if self.ahead:
            kept += " with what else outputs read"
        if self.staged:
            kept = ", brought to shared memory by bulk copies"
        if self.peeled:
            kept += ", with the unaligned ends of rows element by element"
        because = f": {self.why}" if self.why else ""
        return f"{self._shared_out}{kept}{because}"

    @property
    def _shared_out(self) -> str:
        if self.is_alone:
            rows = f"a thread for {self.vector} neighbouring rows, {self.lanes} a block"
            return f"{rows}, {self.vectors} loads in flight"
        if self.strided:
            blocks = "a block" if self.segments == 1 else f"{self.segments} blocks"
            levels = "groups" if self.segments == 1 else "groups and blocks"
            return (
                f"{blocks} for {self.rows} neighbouring rows, {self.lanes} lanes of {self.vector}, positions split "
                f"over {self.sharing} groups of lanes, merged over {levels}, {self.vectors} loads of {self.vector} "
                f"rows in flight"
            )
        who, levels = "a block", "lanes and warps"
        if self.is_of_warps:
            who, levels = "a warp" if self.sharing == WARP else f"{self.sharing} lanes", "lanes"
        elif self.clustered:
            who, levels = f"a cluster of {self.segments} blocks", "lanes, warps and the blocks of a cluster"
        elif self.segments > 1:
            who, levels = f"{self.segments} blocks", "lanes, warps and blocks"
        return (
            f"{who} a row of {self.threads} threads, merged over {levels}, "
            f"{self.vectors} loads of {self.vector} positions in flight"
        )


def _why_not_shared(row: Row, config: RowConfig, gpu: Gpu) -> str:
    """Why the blocks and threads of a configuration cannot share rows; empty where they can."""
    segments, sharing = config.segments, config.sharing
    if config.strided != row.is_strided:
        layout = "not contiguous in memory" if row.is_strided else "contiguous in memory"
        return f"{config}: {row.axis.parts[-1].name} is {layout}"
    if config.strided and (sharing > WARP or sharing & (sharing - 1) or config.threads % sharing):
        return f"{sharing} threads a row: expected a power of two, up to {WARP} of the {config.threads} of a block"
    who, most = ("grids", WARP if config.strided else math.inf)
    if config.clustered:
        who, most = "clusters", min(gpu.largest_cluster, sharing)
    if not config.strided and sharing != config.threads:
        if sharing > WARP or sharing & (sharing - 1):
            return f"{sharing} threads a row: expected a power of two up to {WARP}, or all {config.threads} of a block"
        if sharing < WARP and not (isinstance(row.count, int) and row.count * sharing % WARP == 0):
            return f"{sharing} threads a row: {row.count} rows do not fill warps"
        who, most = "warps", 1
    if segments > most or (config.clustered and segments & (segments - 1)):
        return f"{segments} segments of a row, where {who} merge {most} at most"
    if segments > 1 and row.position_outputs and not config.clustered:
        return f"{config}: no block has the results that outputs along the axis read"
    counted = config.clustered or isinstance(row.count, int)
    if segments > 1 and not (counted and isinstance(row.length, int)):
        return f"{row.count} rows of {row.length} positions: {segments} segments need extents that are known"
    return ""


def _why_not_read(row: Row, config: RowConfig, peel: Peel | None, gpu: Gpu) -> str:
    """Why the vectors of a configuration cannot be read, or not be where it wants them; empty where they can."""
    length = row.length
    if config.peeled and peel is None:
        return f"rows of {length} positions have no vectors of {config.vector} to be peeled to"
    if config.strided and (config.staged or config.ahead):
        return f"{config}: rows whose neighbours are rows are neither staged nor read ahead"
    share = None
    if isinstance(length, int):
        share = share_of(length if peel is None else peel.most, config.segments, config.positions)
    if config.kept and share is not None and share > config.chunk:
        return f"registers keep {config.chunk} positions of a row, of which a block has {share}"
    if config.kept and config.strided and share is None:
        return f"{config}: registers keep no columns whose length is not known before the launch"
    if config.staged:
        even = even_share(length, config.segments, config.vector, peel) if isinstance(length, int) else None
        if even is None:
            return f"a row of {length} positions is no {config.segments} shares of one length"
        if reason := why_not_staged(row, even, config.chunk, gpu, peel):
            return reason
    if peel is None and (widest := row.widest_vector) % config.vector:
        return f"rows of {length} positions are aligned to vectors of {widest}, not of {config.vector}"
    return ""
