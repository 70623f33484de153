"""The configuration of a product kernel: tile sizes, pipeline stages and clusters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from tvm_cascade.analysis.tir import Extent, ceil_div, product
from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.hopper.copy import CHUNK
from tvm_cascade.tile.hopper.stores import BOX_COLUMNS, MATRIX_COLUMNS
from tvm_cascade.tile.machine.family import WIDEST, Family
from tvm_cascade.tile.machine.wgmma import WGMMA
from tvm_cascade.tile.operand import Operand
from tvm_cascade.tile.product.fold import same_in_blocks
from tvm_cascade.tile.product.matrix import MatrixProduct
from tvm_cascade.tile.skeletons.product.shape import DEPTH_BYTES
from tvm_cascade.tile.work import GROUP_ROWS, WARP_GROUP, Registers

SUM_BYTES = 4
"""Of an accumulated sum."""

_FLAGS = 1024
"""Bytes of barriers and flags."""

_GATHERED = 16
"""Rows of 128 bytes that a warp group copies at once."""

_BEHIND = 4
"""Steps whose copies a thread has under way at most, where threads copy an operand."""

_FREE = 2
"""Stages that no such copies are under way to: products release one when those of the next have started."""

_AHEAD = 2
"""The same where copies do not go to stages, and so wait for none: they take as long as two steps do."""

REALIGNED_BYTES = DEPTH_BYTES + CHUNK
"""Of shared memory for what is around a row that starts anywhere, until threads move it into place."""

_SUMS = GROUP_ROWS * 256
"""That a consumer holds in registers at most: 128 of a thread."""

_SUMS_TWICE = GROUP_ROWS * 192
"""The same where each has a second one, of the steps since the last promotion."""


@dataclass(frozen=True)
class ProductConfig:
    """Tile sizes and stages.

    Attributes
    ----------
    rows, columns : of a tile of the result, and of each sum. Rows are 64 for each consumer, or 128.
    consumers : warp groups that compute.
    stages : tiles of both operands in flight.
    cluster : blocks one below the other that share the right operand by multicast.
    splits : blocks of a cluster that sum a part of k each; they have one tile.
    staged : boxes of 128 bytes a row of results that a consumer has under way to memory.
    blocks : that are launched at most; each does tiles in turn, and copies for the next while it computes.
    promoted : steps along k whose products the tensor cores sum before float32 sums take them over; 0: all of them.
    family : that multiplies; no choice, but the card's.
    ranges : see `Variants`: it is for any number of rows.
    """

    ranges: ClassVar[tuple[tuple[int, int], ...]] = ((1, 0),)

    rows: int = 128
    columns: int = 256
    consumers: int = 2
    stages: int = 4
    cluster: int = 1
    splits: int = 1
    staged: int = 2
    blocks: int = 1
    promoted: int = 0
    family: Family = field(default=WGMMA, compare=False, repr=False)

    @property
    def configs(self) -> tuple[ProductConfig]:
        return (self,)

    @property
    def own_rows(self) -> int:
        return self.rows // self.consumers

    @property
    def blocks_together(self) -> int:
        return self.cluster * self.splits

    @property
    def share(self) -> int:
        return self.columns // self.splits

    def stores_boxes(self, output: Operand) -> bool:
        """Whether boxes of 128 bytes a row cover what a block stores of an output; the last two may overlap."""
        return self.share % MATRIX_COLUMNS == 0 and self.share >= DEPTH_BYTES // output.size

    def registers(self, gathers: bool) -> Registers:
        """Registers of the roles.

        Parameters
        ----------
        gathers : the threads of the producer's warp group copy an operand.
        """
        moved = Registers(104, 200) if gathers else Registers(*((40, 232) if self.consumers == 2 else (56, 240)))
        return self.family.registers(moved, 1 + self.consumers)

    @property
    def threads(self) -> int:
        return WARP_GROUP * (self.consumers + 1)

    @property
    def computing(self) -> int:
        """Threads of the consumers."""
        return WARP_GROUP * self.consumers

    def stage_bytes(self, shape: MatrixProduct) -> int:
        return (self.rows + self.columns * len(shape.rights)) * DEPTH_BYTES

    def ring_bytes(self, shape: MatrixProduct) -> int:
        """Of the stages, and of barriers and flags."""
        return self.stages * self.stage_bytes(shape) + _FLAGS

    def shared_bytes(self, shape: MatrixProduct) -> int:
        boxes = any(map(self.stores_boxes, (*shape.tiled.values(), *shape.by_rows.values())))
        staging = self.rows * DEPTH_BYTES * self.staged if boxes else 0
        partial = self.rows * self.columns * len(shape.rights) * SUM_BYTES if self.splits > 1 else 0
        lengths = self.rows, *(self.columns for _ in shape.rights)
        rows = sum(length for side, length in zip(shape.sides, lengths, strict=True) if side.starts_anywhere)
        return self.ring_bytes(shape) + staging + partial + (self.behind(shape) + 1) * rows * REALIGNED_BYTES

    def behind(self, shape: MatrixProduct) -> int:
        """Steps whose copies threads have under way, where threads copy an operand."""
        if all(side.bulk or side.starts_anywhere for side in shape.sides):
            return min(self.stages - 1, _AHEAD)
        return max(0, min(self.stages - _FREE, _BEHIND))

    def lacks(self, shape: MatrixProduct, gpu: Gpu) -> str:
        """What of a GPU or of the shape it does not fit, in words; empty where it fits."""
        sums, most = self.own_rows * self.columns * len(shape.rights), _SUMS_TWICE if self.promoted else _SUMS
        if self.own_rows % GROUP_ROWS or sums > most or self.columns > WIDEST:
            return f"{self.own_rows}×{self.columns} sums of a consumer: expected rows in 64s, {most} sums at most"
        if self.stages < 2:
            return f"{self.stages} stages: products release one when those of the next are under way"
        if self.columns % 8 or self.share % 8:
            return f"{self.share} columns of a block are no multiple of 8"
        if self.cluster > 1 and self.family.arrivals > 1:
            return "a cluster that shares the right operand: warps that multiply alone do not tell other blocks"
        if self.blocks_together > gpu.largest_cluster:
            return f"{self.blocks_together} blocks in a cluster; {gpu.name} has {gpu.largest_cluster} at most"
        return (
            self._lacks_of_scales(shape)
            or self._lacks_of_operands(shape)
            or self._lacks_of_splits(shape)
            or lacks_memory(self.shared_bytes(shape), gpu)
        )

    def _lacks_of_scales(self, shape: MatrixProduct) -> str:
        """All columns of a tile have the same scale, and products leave the tensor cores for it every step."""
        if shape.scales is None:
            return ""
        line = shape.right.line
        whole = isinstance(line.extent, int) and line.extent % self.columns == 0
        if self.promoted != 1 or not whole or self.splits > 1:
            return f"tiles of {self.columns} columns, promoted every {self.promoted} steps, in {self.splits} parts of k"
        alike = all(same_in_blocks(factor, line, self.columns) for factor in shape.scales.across)
        return "" if alike else f"scales differ within {self.columns} columns"

    def _lacks_of_operands(self, shape: MatrixProduct) -> str:
        copied, dtypes = self.columns // self.cluster, self.family.dtypes
        if other := next((one for one in shape.dtypes if one not in dtypes), ""):
            return f"operands of {other}, of which {self.family.instructions.value} multiplies {' and '.join(dtypes)}"
        if self.cluster > 1 and not shape.right.bulk:
            return f"{shape.right.operand.buffer.name} is copied by threads, which cannot send it round a cluster"
        if not shape.right.bulk and self.columns % _GATHERED:
            return f"{self.columns} columns that threads copy are no multiple of {_GATHERED}"
        if shape.right.across and copied % BOX_COLUMNS:
            return f"{copied} columns that a block copies are no multiple of {BOX_COLUMNS}"
        return ""

    def _lacks_of_splits(self, shape: MatrixProduct) -> str:
        """Each part of k needs a step at least, and partial sums find room where right operands were."""
        if self.splits == 1:
            return ""
        if self.cluster > 1:
            return "a cluster shares either an operand or partial sums"
        if self.rows * SUM_BYTES > self.stages * DEPTH_BYTES:
            return f"{self.stages} stages leave no room for the partial sums of {self.rows} rows"
        return lacks_steps(shape, self.splits)


def steps_of(shape: MatrixProduct) -> Extent:
    depth = DEPTH_BYTES // shape.left.operand.size
    return product([ceil_div(shape.inner.extent, depth), *(shape.extent(var) for var in shape.outer)])


def lacks_steps(shape: MatrixProduct, splits: int) -> str:
    """Why k has not so many parts of a step at least, in words; empty where it has."""
    steps = steps_of(shape)
    return "" if isinstance(steps, int) and steps >= splits else f"{steps} steps along k in {splits} parts"


def lacks_memory(needed: int, gpu: Gpu) -> str:
    """Why a block has not so many bytes of shared memory, in words; empty where it has."""
    there = gpu.block_shared_bytes
    return f"{needed} bytes of shared memory; a block has {there} at most" if needed > there else ""
