"""The program of a folded product: its products, and what is done to a row of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tvm_cascade.steps.program import Tuple
from tvm_cascade.tile.estimate import operations_of
from tvm_cascade.tile.launch.fast_math import needs_exact
from tvm_cascade.tile.row.program import RowProgram
from tvm_cascade.tile.skeletons.product.folded.selection import selection_of
from tvm_cascade.tile.skeletons.product.folded.shape import FoldedProduct


@dataclass(frozen=True)
class FoldedProgram:
    """What a tile does: the products of a shape, and the program of a row of them."""

    shape: FoldedProduct
    row: RowProgram

    def __str__(self) -> str:
        return str(self.row)

    @property
    def exact_functions(self) -> int:
        """Logarithms and the like that make an element of a row of sums of products, and are not approximated."""
        exact = [expression for expression in self.row.position_inputs.values() if needs_exact(expression)]
        return sum(operations_of(expression)[1] for expression in exact)

    @cached_property
    def packed(self) -> bool:
        """Whether elements of a row on chip are selected as packed integers."""
        return selection_of(self.row, self.shape.columns) is not None

    @property
    def ranks(self) -> int:
        """Elements of a row that are selected, best first; 0 where none are."""
        selections = [step.reducer.selection for step in self.row.body.steps if isinstance(step, Tuple)]
        return max((selection.count for selection in selections if selection is not None), default=0)
