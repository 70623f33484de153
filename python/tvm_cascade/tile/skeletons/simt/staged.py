"""Copies of operand tiles through registers: elements that are converted, and vectors along k that are turned.

A stage is copied piece by piece while another is multiplied, so that few registers wait for memory:

    read piece 0;  some products;  store piece 0, read piece 1;  the next products;  store piece 1;  …
"""

from __future__ import annotations

from collections.abc import Iterator

from tvm import ir, tirx

from tvm_cascade.tile.emit import branches, put, registers
from tvm_cascade.tile.row.copies import copy_vector
from tvm_cascade.tile.skeletons.simt.copies import Copies, Shares
from tvm_cascade.tile.skeletons.simt.shape import Factor
from tvm_cascade.transform.printer import cast

_PIECES = 4
"""Of a stage, at most."""


class StagedCopies(Copies):
    """The copies of one operand's tiles, through registers; see `Copies`."""

    def _allocate(self) -> None:
        unit, copies, self.dtype = self.shares.unit, len(self.shares.steps), str(self.memory.dtype)
        each = -(-copies // _PIECES)
        self.pieces = [range(u, min(u + each, copies)) for u in range(0, copies, each)]
        self.waiting = registers(f"{self.name}_waiting", each * unit, self.factor.dtype)
        self.converted = registers(f"{self.name}_converted", unit, self.dtype)

    def places(self, count: int) -> Iterator[tuple[int, int, range]]:
        """(first, last, piece) of each piece: the products among `count` that it is read before, and stored after."""
        for number, piece in enumerate(self.pieces):
            first, end = number * count // len(self.pieces), (number + 1) * count // len(self.pieces)
            yield first, max(first, end - 1), piece

    def read(self, piece: range, moved: ir.Expr, step: ir.Expr) -> None:
        """Reads a piece to registers: elements, or zeros outside."""
        unit = self.shares.unit
        for number, u in enumerate(piece):
            first, inside = tirx.const(number * unit, "int32"), self._inside(u, step)
            place = _as_vector(self._source(moved, u), unit)
            with self._has(u):
                if inside is None:
                    copy_vector(self.waiting, first, self.source, place, unit)
                    continue
                with branches(inside) as (there, elsewhere):
                    with there:
                        copy_vector(self.waiting, first, self.source, place, unit)
                    with elsewhere:
                        for e in range(unit):
                            put(self.waiting, number * unit + e, tirx.const(0, self.factor.dtype))

    def store(self, piece: range, stage: ir.Expr) -> None:
        """Stores a piece that was read to a stage."""
        unit, row = self.shares.unit, self.layout.row
        for number, u in enumerate(piece):
            target = self._target(stage, u)
            with self._has(u):
                values = [cast(self.waiting[number * unit + e], self.dtype) for e in range(unit)]
                if self.layout.is_turned or unit == 1:
                    for e, value in enumerate(values):
                        put(self.memory, target + e * row, value)
                    continue
                for e, value in enumerate(values):
                    put(self.converted, e, value)
                copy_vector(self.memory, _as_vector(target, unit), self.converted, tirx.const(0, "int32"), unit)


def _as_vector(place: ir.Expr, unit: int) -> ir.Expr:
    """A place that is a multiple of a vector's elements, said so that TVM can prove it."""
    return tirx.floordiv(place, unit) * unit if unit > 1 else place


def is_staged(factor: Factor, shares: Shares, dtype: str) -> bool:
    """Whether an operand goes through registers, rather than by cp.async."""
    return factor.dtype != dtype or (shares.layout.is_turned and shares.unit > 1)
