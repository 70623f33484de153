"""Emits the kernel of a product whose rows are folded: the product kernel's loop, and the row kernel's fold of sums."""

from __future__ import annotations

from typing import Any

from tvm_cascade.tile.row.elements import Tensors
from tvm_cascade.tile.row.program import RowProgram
from tvm_cascade.tile.skeletons.product.folded.config import FoldedConfig
from tvm_cascade.tile.skeletons.product.folded.fold import RowEpilogue
from tvm_cascade.tile.skeletons.product.folded.shape import FoldedProduct
from tvm_cascade.tile.skeletons.product.kernel import ProductKernel


class FoldedKernel(ProductKernel):
    """Emits the kernel of a folded product."""

    def __init__(self, shape: FoldedProduct, program: RowProgram, config: FoldedConfig) -> None:
        super().__init__(shape.product, config.tile)
        self.folded, self.row_program, self.cut = shape, program, config

    def _outputs(self) -> RowEpilogue:
        self.tensors = Tensors(self.folded.row, self.buffers, {})
        return RowEpilogue(self.folded, self.row_program, self.cut, self.tensors, self.feed)

    def _exchange(self, pool: Any) -> None:
        """Parts of k are added up in whole rows, by the epilogue."""
        self.epilogue.rank = self.rank
        return

    def _initialise(self) -> None:
        super()._initialise()
        self.epilogue.sums.initialise()

    def _places(self) -> None:
        self.tensors.declare()
        super()._places()
