"""Whether rows can be cut as a configuration says: decided before a kernel is emitted."""

from __future__ import annotations

from tvm_cascade.analysis.extent import Extent
from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.row.column_config import ColumnConfig
from tvm_cascade.tile.row.config import RowConfig, Team
from tvm_cascade.tile.row.peel import Peel, peel_of, share_of
from tvm_cascade.tile.row.shape import Row
from tvm_cascade.tile.row.staging import why_not_staged


def check_row_config(row: Row, config: RowConfig, gpu: Gpu) -> None:
    """Whether contiguous rows can be cut so on a GPU.

    Raises
    ------
    Unfit
        Where the extents that segments are cut from are not known, rows have no vectors to start at, or bulk copies
        cannot bring the shares of blocks.
    """
    _check_segments(row, config.segments, row.count if config.team is Team.GRID else 0)
    peel = peel_of(row, config.vector) if config.peeled else None
    if config.peeled and peel is None:
        raise Unfit(f"rows of {row.length} positions have no vectors of {config.vector} to be peeled to")
    if not config.staged:
        return
    if (positions := staged_positions(row, config, peel)) is None:
        raise Unfit(f"a row of {row.length} positions is no {config.segments} shares of one length")
    if reason := why_not_staged(row, positions, config.chunk, gpu, peel):
        raise Unfit(reason)


def staged_positions(row: Row, config: RowConfig, peel: Peel | None) -> int | None:
    """Positions that a block has in shared memory, at most; None where shares of whole rows differ in length."""
    if peel is not None:
        return share_of(peel.most, config.segments, config.vector)
    if not isinstance(row.length, int) or row.length % config.segments:
        return None
    return row.length // config.segments


def check_column_config(row: Row, config: ColumnConfig, gpu: Gpu) -> None:
    """Whether columns of memory can be cut so on a GPU.

    Raises
    ------
    Unfit
        Where the extents that segments are cut from are not known, or outputs read results that no block has.
    """
    if row.whole_rows and not config.is_cluster(gpu):
        raise Unfit(f"{config}: no block has the results that outputs along the axis read")
    _check_segments(row, config.segments, 0 if row.whole_rows else row.count)


def _check_segments(row: Row, segments: int, states: Extent) -> None:
    """Segments are cut from a length, and their states are kept for a number of rows, that are known."""
    if segments > 1 and not (isinstance(row.length, int) and isinstance(states, int)):
        raise Unfit(f"{row.count} rows of {row.length} positions: {segments} segments need extents that are known")
