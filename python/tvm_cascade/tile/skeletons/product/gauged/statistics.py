"""Statistics of rows in registers: folded from the left operand as it is loaded, added up by the lanes of a row.

They end where the epilogue needs them: the thread that has a row of the sums has its statistics.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.analysis.reducers import combiner_of, identity_of
from tvm_cascade.tile.emit import put, registers
from tvm_cascade.tile.fragment import DTYPE, NEIGHBOURS, QUAD, ROWS, TilePrinter, placed
from tvm_cascade.tile.merge.lanes import exchanged
from tvm_cascade.tile.skeletons.product.gauged.hoist import Hoisted, hoist
from tvm_cascade.tile.skeletons.product.gauged.lifted import LeftRegisters
from tvm_cascade.tile.skeletons.product.gauged.shape import GaugedProduct
from tvm_cascade.transform.printer import cast

_PARTS = len(ROWS) * len(NEIGHBOURS)
"""Of a statistic in a thread: apart for each row and neighbour, so that chains of sums are half as long."""


class RowValues:
    """What a thread has of each of its two rows: statistics, values of rows, and what is computed of either.

    Attributes
    ----------
    known : registers by symbol, one for each row.
    """

    def __init__(self, shape: GaugedProduct) -> None:
        self.shape = shape
        of_element = [shape.element, *(statistic.lift for statistic in shape.statistics)]
        self.lifts = [hoist(lift, shape.per_row.keys(), f"of_row_{k}") for k, lift in enumerate(of_element)]

    @property
    def element(self) -> sp.Expr:
        """What is multiplied, over loaded elements, what runs along the sum, and values of rows."""
        return self.lifts[0].value

    @cached_property
    def finishes(self) -> dict[sp.Symbol, Hoisted]:
        """Each result over the sums of products and values of rows."""
        fold, shape = self.shape.product.fold, self.shape
        lifted = {
            state: lift.xreplace({shape.product.product: state})
            for state, lift in zip(shape.sums, shape.product.lifts, strict=True)
        }
        rows = [statistic.component.symbol for statistic in shape.statistics]
        found: dict[sp.Symbol, Hoisted] = {}
        plain: dict[sp.Symbol, sp.Expr] = {}
        for number, (result, formula) in enumerate(fold.finish.items()):
            plain[result] = formula.xreplace(plain).xreplace(lifted)
            found[result] = hoist(plain[result], rows, f"gauge_{number}")
        return found

    def allocate(self) -> None:
        """Registers of all of them."""
        self.parts = {
            s.component.symbol: registers(f"part_{s.component.symbol}", _PARTS) for s in self.shape.statistics
        }
        symbols = [*self.shape.per_row, *self.parts]
        for hoisted in (*self.lifts, *self.finishes.values()):
            symbols += hoisted.parts
        self.known = {symbol: registers(f"row_{symbol}", len(ROWS)) for symbol in symbols}

    def start(self, places: list[dict[tirx.Var, ir.Expr]], buffers: Mapping[tirx.Var, object]) -> None:
        """Loads values of both rows, and begins statistics."""
        for symbol, source in self.shape.per_row.items():
            for r in ROWS:
                put(self.known[symbol], r, cast(placed(source, places[r], buffers), DTYPE))
        for hoisted in self.lifts:
            self._compute(hoisted)
        for statistic in self.shape.statistics:
            for part in range(_PARTS):
                put(self.parts[statistic.component.symbol], part, identity_of(statistic.component.reducer, DTYPE))

    def fold(self, left: LeftRegisters, which: int, row: int, pair: int) -> None:
        """Folds the two elements that have been widened into the statistics of their row."""
        for statistic, lift in zip(self.shape.statistics, self.lifts[1:], strict=True):
            own, combine = self.parts[statistic.component.symbol], combiner_of(statistic.component.reducer)
            for e in NEIGHBOURS:
                value = TilePrinter({**left.symbols(which, pair, e), **self.of_row(row)}, DTYPE, {})(lift.value)
                put(own, 2 * row + e, combine(own[2 * row + e], value))

    def finish(self) -> None:
        """Statistics of whole rows in all lanes of a row, and what results take of them."""
        for statistic in self.shape.statistics:
            symbol, combine = statistic.component.symbol, combiner_of(statistic.component.reducer)
            for r in ROWS:
                own = combine(*(self.parts[symbol][2 * r + e] for e in NEIGHBOURS))
                put(self.known[symbol], r, exchanged(own, combine, QUAD))
        for hoisted in self.finishes.values():
            self._compute(hoisted)

    def of_row(self, row: int) -> dict[sp.Symbol, ir.Expr]:
        """All values of a row."""
        return {symbol: own[row] for symbol, own in self.known.items()}

    def _compute(self, hoisted: Hoisted) -> None:
        for symbol, formula in hoisted.parts.items():
            for r in ROWS:
                put(self.known[symbol], r, TilePrinter(self.of_row(r), DTYPE, {})(formula))
