"""The segment of a row that one block folds."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import ir

from tvm_cascade.analysis.extent import Extent
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.row.cut import Cut
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


def share_of_row(row: Row, config: Cut) -> int | None:
    """Positions that each block has of a row that is not peeled, at most; None where its length is not known."""
    if not isinstance(row.length, int):
        return None
    return -(-row.length // (config.segments * config.positions)) * config.positions


def check_kept(config: Cut, share: int | None) -> None:
    """Checks that what stays in registers is all that a block has of a row.

    Parameters
    ----------
    share : positions that it has, at most; None where that is not known.
    """
    if config.kept and (share is None or share > config.chunk):
        found = "a number that is not known" if share is None else str(share)
        raise Unfit(f"registers keep {config.chunk} positions of a row, of which a block has {found}")
