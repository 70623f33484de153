"""The table of skeletons: the one of least estimated time gives a function its kernel, the first of several."""

from __future__ import annotations

from typing import Any

from tvm_cascade.tile.row.skeleton import RowSkeleton
from tvm_cascade.tile.skeleton import Skeleton
from tvm_cascade.tile.skeletons.product.folded.skeleton import FoldedSkeleton
from tvm_cascade.tile.skeletons.product.prologue.skeleton import PrologueSkeleton
from tvm_cascade.tile.skeletons.product.skeleton import ProductSkeleton
from tvm_cascade.tile.skeletons.simt.skeleton import CoreSkeleton
from tvm_cascade.tile.skeletons.stream.skeleton import HalvesSkeleton, StreamSkeleton

SKELETONS: tuple[Skeleton[Any, Any], ...] = (
    StreamSkeleton(), HalvesSkeleton(), ProductSkeleton(), FoldedSkeleton(), PrologueSkeleton(), RowSkeleton(),
    CoreSkeleton(),
)  # fmt: skip
"""A row for each."""
