"""The part of a row that one block folds."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import ir


@dataclass(frozen=True)
class Segment:
    """Positions [start, end) of a row: so many at least and at most, where that is known."""

    start: ir.Expr
    end: ir.Expr
    least: int = 0
    most: int | None = None
