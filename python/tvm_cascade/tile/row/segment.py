"""The segment of a row that one block folds."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import ir

from tvm_cascade.analysis.extent import Extent
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.row.shape import Row


@dataclass(frozen=True)
class Segment:
    """Positions [start, end) of a row: so many at least and at most, where that is known."""

    start: ir.Expr
    end: ir.Expr
    least: int = 0
    most: int | None = None


def check_segments(row: Row, segments: int, states: Extent) -> None:
    """Checks that length and number of rows are static, which several segments need."""
    if segments > 1 and not (isinstance(row.length, int) and isinstance(states, int)):
        raise Unfit(f"{row.count} rows of {row.length} positions: {segments} segments need extents that are known")
