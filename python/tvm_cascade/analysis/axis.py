"""Which reductions share an axis, by the extents of their domains and the buffers that they read."""

from __future__ import annotations

import itertools

from tvm import ir, tirx

from tvm_cascade.analysis.extent import same_extent
from tvm_cascade.analysis.program import Stage
from tvm_cascade.analysis.tir import loads_of, uses

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


def _conflict(left: Positions, right: Positions) -> bool:
    shared = {id(a) for a, _ in left for b, _ in right if a.same_as(b)}  # type: ignore[attr-defined]
    if not shared:
        return False
    return not any(a.same_as(b) and m == n for a, m in left for b, n in right)  # type: ignore[attr-defined]
