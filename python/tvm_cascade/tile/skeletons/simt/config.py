"""The configuration of a product on CUDA cores: tiles of blocks, warps and threads, and pipeline stages."""

from __future__ import annotations

from dataclasses import dataclass, field

from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.row.linear import itemsize
from tvm_cascade.tile.skeletons.simt.copies import Shares, shares_of
from tvm_cascade.tile.skeletons.simt.cut import Cut
from tvm_cascade.tile.skeletons.simt.shape import CoreProduct, Factor
from tvm_cascade.tile.skeletons.simt.shared import Layout

_ADDRESSES = 24
"""Registers of a thread beside its sums and fragments."""


@dataclass(frozen=True)
class CoreConfig:
    """The partition of a product.

    Attributes
    ----------
    rows, columns : how the sides of the result are cut.
    depth : positions of k of a pipeline stage.
    stages : of the pipeline in shared memory.
    slices : parts of every stage that warps of their own sum; a power of two.
    resident : blocks of a multiprocessor that registers have to do for.
    ahead : fragments are read while those before them are multiplied, which takes registers.
    turns_vectors : tiles that are turned on the way are read as vectors along k, through registers; else one by one.
    why : it was chosen, in words; empty where a caller did.
    """

    rows: Cut
    columns: Cut
    depth: int = 16
    stages: int = 4
    slices: int = 1
    resident: int = 1
    ahead: bool = False
    turns_vectors: bool = False
    why: str = field(default="", compare=False)

    def __str__(self) -> str:
        sliced = f", {self.slices} slices of k" if self.slices > 1 else ""
        because = f": {self.why}" if self.why else ""
        return (
            f"tiles of {self.rows.block}x{self.columns.block} for {self.threads} threads of {self.rows.own}x"
            f"{self.columns.own}{sliced}, {self.stages} stages of {self.depth} positions{because}"
        )

    @property
    def slice_threads(self) -> int:
        """Threads that sum the same part of k."""
        return self.rows.warps * self.columns.warps * WARP

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.slice_threads * self.slices

    @property
    def cuts(self) -> tuple[Cut, Cut]:
        """Of rows and of columns."""
        return self.rows, self.columns

    def layouts(self, shape: CoreProduct) -> tuple[Layout, Layout]:
        """Of the operands' tiles."""
        left, right = (
            Layout(cut.block, self.depth, factor.own != 1, itemsize(shape.dtype))
            for cut, factor in zip(self.cuts, shape.operands, strict=True)
        )
        return left, right

    def shares(self, factor: Factor, layout: Layout, shape: CoreProduct) -> Shares:
        """How the copies of an operand are shared out."""
        if layout.is_turned and not self.turns_vectors and factor.dtype == shape.dtype:
            return Shares(layout, 1, self.threads)
        return shares_of(factor, layout, shape.depth, self.threads)

    def why_not(self, shape: CoreProduct, gpu: Gpu) -> str:
        """Why a GPU cannot run the product in this configuration; empty where it can."""
        if any(n < 1 or n & (n - 1) for cut in self.cuts for n in (cut.warps, cut.own)):
            return "warps and elements are powers of two"
        if (self.rows.lanes, self.columns.lanes) not in ((8, 4), (4, 8)):
            return "a warp has 8 lanes along one side and 4 along the other"
        if self.slices & (self.slices - 1) or self.rows.own % self.slices:
            return "slices are a power of two of a thread's rows"
        if self.stages < 2 + self.ahead or self.depth % (2 * self.slices):
            return "stages are two or more, or three, of an even number of positions for each slice"
        for layout, cut, factor in zip(self.layouts(shape), self.cuts, shape.operands, strict=True):
            if cut.own % layout.vector:
                return "a thread's part is no whole vector"
            if reason := self.shares(factor, layout, shape).why_not:
                return reason
        if self.threads > gpu.max_threads or self.threads * self.registers(shape) * self.resident > gpu.registers:
            return f"{self.threads} threads take more registers than there are"
        if self.shared_elements(shape) * itemsize(shape.dtype) > gpu.block_shared_bytes:
            return "its stages take more shared memory than there is"
        return ""

    def registers(self, shape: CoreProduct) -> int:
        """Registers of a thread: sums, fragments, and what addresses take."""
        own = self.rows.own, self.columns.own
        needed = (own[0] * own[1] + (1 + self.ahead) * sum(own)) * itemsize(shape.dtype) // 4 + _ADDRESSES
        return -(-needed // 8) * 8

    def shared_elements(self, shape: CoreProduct) -> int:
        """Elements of shared memory of a block: its stages, and afterwards the sums of its slices."""
        staged = self.stages * sum(layout.elements for layout in self.layouts(shape))
        return max(staged, self.slices * self.rows.block * self.columns.block if self.slices > 1 else 0)
