"""Memory order of a row program's loads: whether neighbours are positions of the axis or rows.

x[row, l]        the axis: threads that share a row read neighbouring positions
x[l, row]        rows: threads read neighbouring rows, and each folds its own

What is read once a row says nothing of it.
"""

from __future__ import annotations

from tvm import ir, sym, tirx

from tvm_cascade.analysis.extent import Extent, as_index, more_than_one, same_extent
from tvm_cascade.analysis.frame import lookup
from tvm_cascade.analysis.tir import dtype_of, loads_of, uses
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.row.linear import Access, Axis, access_of

NO_LANES = Axis((), ())
"""Neighbours in memory are positions of the axis."""


def read_lanes(loads: list[ir.TensorLoad], axis: Axis, rows: dict[tirx.Var, Extent]) -> Axis:
    """The row variables along which memory is contiguous; none where the reduction axis is.

    Parameters
    ----------
    loads : of the fold and of its outputs.
    rows : variables of rows -> extents.

    Raises
    ------
    Unfit
        Where neighbours are neither.
    """
    apart = [load for load in loads if _lies_apart(load, axis)]
    for load in apart:
        trailing = _trailing(load, rows)
        for first in range(len(trailing)):
            lanes = Axis(trailing[first:], tuple(lookup(rows, v) for v in trailing[first:]))
            if all(access_of(other, lanes) is not None or _is_alike(other, lanes) for other in apart):
                return lanes
    for load in apart:
        if not _gathers(load, axis):
            raise Unfit(f"{load}: neighbours along {axis.variables[-1].name} lie apart in memory, and none are rows")
    return NO_LANES


def streams_of(
    loads: list[ir.TensorLoad], axis: Axis, lanes: Axis, extents: dict[tirx.Var, Extent]
) -> tuple[Access, ...]:
    """One access for each array of structures that varies with the position, along the axis or along the lanes.

    Streams are read ahead at every point, whatever conditions say: what may lie outside of its tensor is none.

    Parameters
    ----------
    extents : of all variables.

    Raises
    ------
    Unfit
        Where some run along rows, and another along the axis.
    """
    found: list[Access] = []
    for load in loads:
        if not any(uses(index, axis.variables) for index in load.indices):
            continue
        access = access_of(load, lanes if lanes.variables else axis)
        if access is None:
            _check_apart(load, lanes)
        elif _is_inside(load, extents) and not any(access.beside(other) for other in found):
            found.append(access)
    return tuple(found)


def _is_inside(load: ir.TensorLoad, extents: dict[tirx.Var, Extent]) -> bool:
    """Whether a load is provably in bounds at every point; gathers are not."""
    analyzer = sym.Analyzer()
    for var, extent in extents.items():
        analyzer.bind(var, ir.Range(tirx.const(0, dtype_of(var)), as_index(extent, dtype_of(var))))
    return all(
        loads_of(index)
        or any(index.same_as(v) and same_extent(extents[v], _extent(size)) for v in extents)
        or (analyzer.can_prove(index >= 0) and analyzer.can_prove(index < size))
        for index, size in zip(load.indices, load.source.ty.shape, strict=True)
    )


def _check_apart(load: ir.TensorLoad, lanes: Axis) -> None:
    """Refuses lanes whose separate loads are far apart in memory."""
    last = len(load.indices) - 1
    if any(uses(index, lanes.variables) for index in load.indices[:last]) and not _gathers(load, lanes):
        raise Unfit(f"{load}: neighbours along {lanes.variables[-1].name} lie apart in memory, those of others do not")


def _lies_apart(load: ir.TensorLoad, axis: Axis) -> bool:
    """Whether neighbours on the axis are no neighbours in memory."""
    along = [uses(index, axis.variables) for index in load.indices]
    return any(along) and not along[-1] and access_of(load, axis) is None


def _is_alike(load: ir.TensorLoad, lanes: Axis) -> bool:
    """Whether a load is the same for all neighbours, as the weight of a position is for the features of a row."""
    return not any(uses(index, lanes.variables) for index in load.indices)


def _gathers(load: ir.TensorLoad, axis: Axis) -> bool:
    """Whether where neighbours are is known at run time alone."""
    return any(uses(inner, axis.variables) for index in load.indices for inner in loads_of(index))


def _trailing(load: ir.TensorLoad, rows: dict[tirx.Var, Extent]) -> tuple[tirx.Var, ...]:
    """The variables of rows that a load's last indices are, in their order in memory."""
    found: list[tirx.Var] = []
    for index, extent in reversed(list(zip(load.indices, load.source.ty.shape, strict=True))):
        if any(index.same_as(v) for v in rows) and not any(index.same_as(f) for f in found):
            found.insert(0, index)
        elif more_than_one(_extent(extent)):
            break
    return tuple(found)


def _extent(extent: ir.Expr) -> Extent:
    return int(extent) if isinstance(extent, ir.prim.IntImm) else extent
