"""Which reductions share an axis, by the extents of their domains and the buffers that they read."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from tvm import ir, tirx

from tvm_cascade.analysis.extent import more_than_one, same_extent
from tvm_cascade.analysis.program import Stage
from tvm_cascade.analysis.tir import loads_of, same, uses

Positions = set[tuple[object, int]]


def axis_positions(element: ir.Expr, variable: tirx.Var) -> Positions:
    """(buffer, dimension) pairs that the variable indexes in an element."""
    found: Positions = set()
    for load in loads_of(element):
        for dimension, index in enumerate(load.indices):
            if uses(index, (variable,)):
                found.add((load.source, dimension))
    return found


def matching_axis(
    earlier: Stage, earlier_element: ir.Expr, later: Stage, later_element: ir.Expr
) -> tuple[int, ...] | None:
    """The variable of `earlier` for each reduction variable of `later`; None where the axes differ.

    Two reductions run over one axis when their reduction extents agree and no buffer that both read is indexed by it
    at different dimensions alone: x[i, l] and x[l, j] have equal extents and different axes.
    """
    if len(earlier.reduce) != len(later.reduce):
        return None
    for order in itertools.permutations(range(len(later.reduce))):
        pairs = [(earlier.reduce[order[k]], var) for k, var in enumerate(later.reduce)]
        if all(
            same_extent(earlier.extents[a], later.extents[b])
            and not _conflict(axis_positions(earlier_element, a), axis_positions(later_element, b))
            for a, b in pairs
        ):
            return order
    return None


@dataclass(frozen=True)
class Shared:
    """How two reductions read one tensor at the same places.

    Attributes
    ----------
    rows : pairs of row variables that are alike, the earlier's first; those of one value in order.
    order : the position among the earlier's reduction variables of each of the later.
    """

    rows: tuple[tuple[tirx.Var, tirx.Var], ...]
    order: tuple[int, ...]


def shared_tensor(earlier: Stage, earlier_element: ir.Expr, later: Stage, later_element: ir.Expr) -> Shared | None:
    """How two reductions read a tensor that has a value of its own at each row and position of both; None of none.

    The rows of x[i, k] and x[i, k]·y[k] are alike; of x[i, k]·a[k, j] and x[i, k]·b[k, j], which read x again for each
    j, they are not.
    """
    pairs = itertools.product(loads_of(earlier_element), loads_of(later_element))
    found = (_alike(earlier, one, later, other) for one, other in pairs if one.source.same_as(other.source))
    return next((shared for shared in found if shared is not None), None)


def reads_once(load: ir.TensorLoad, stage: Stage) -> bool:
    """Whether a load has a place of its own at each row and position of a stage."""
    return _alike(stage, load, stage, load) is not None


def _alike(earlier: Stage, one: ir.TensorLoad, later: Stage, other: ir.TensorLoad) -> Shared | None:
    """The variables at which two loads read one tensor, where these are all that move and each is read at once."""
    found: list[tuple[tirx.Var, tirx.Var]] = []
    for a, b in zip(one.indices, other.indices, strict=True):
        if isinstance(a, ir.Var) and isinstance(b, ir.Var) and a in earlier.extents and b in later.extents:
            found += [(a, b)] if more_than_one(earlier.extents[a]) or more_than_one(later.extents[b]) else []
        elif not same(a, b):
            return None
    for moving, side in ((_moving(earlier), 0), (_moving(later), 1)):
        if len(found) != len(moving) or not all(any(var.same_as(pair[side]) for pair in found) for var in moving):
            return None
    rows = [(a, b) for a, b in found if any(a.same_as(row) for row in earlier.spatial)]
    axis = [(a, b) for a, b in found if any(a.same_as(var) for var in earlier.reduce)]
    order = [k for var in later.reduce for k, own in enumerate(earlier.reduce) if _paired(own, var, axis)]
    units = [[v for v in stage.spatial if not more_than_one(stage.extents[v])] for stage in (earlier, later)]
    rows += zip(*units, strict=True) if len(units[0]) == len(units[1]) else ()
    alike = len(order) == len(earlier.reduce) == len(later.reduce)
    alike = alike and all(same_extent(earlier.extents[a], later.extents[b]) for a, b in found)
    return Shared(tuple(rows), tuple(order)) if alike else None


def _moving(stage: Stage) -> list[tirx.Var]:
    return [var for var in (*stage.spatial, *stage.reduce) if more_than_one(stage.extents[var])]


def _paired(one: tirx.Var, other: tirx.Var, pairs: list[tuple[tirx.Var, tirx.Var]]) -> bool:
    return any(one.same_as(a) and other.same_as(b) for a, b in pairs)


def _conflict(left: Positions, right: Positions) -> bool:
    shared = {id(a) for a, _ in left for b, _ in right if a.same_as(b)}  # type: ignore[attr-defined]
    if not shared:
        return False
    return not any(a.same_as(b) and m == n for a, m in left for b, n in right)  # type: ignore[attr-defined]
