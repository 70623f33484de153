"""The frame of a group: shared variables for the rows, free axes and cascade axis of all its members."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.algebra.verdict import Reason
from tvm_cascade.analysis.program import Stage
from tvm_cascade.analysis.tir import (
    Classes,
    Extent,
    extent_of,
    loads_of,
    more_than_one,
    product,
    same,
    same_extent,
    substitute,
    uses,
)


@dataclass(frozen=True)
class Frame:
    """Common variables.

    Attributes
    ----------
    axis : the cascade axis, one variable a loop.
    variables : for each member, its own block variables -> the frame's.
    extents : of every frame variable.
    """

    axis: tuple[tirx.Var, ...]
    variables: tuple[dict[tirx.Var, tirx.Var], ...]
    extents: dict[tirx.Var, Extent]

    def dims(self, member: int, stage: Stage) -> tuple[ir.Expr, ...]:
        """Where the member's result is written, in frame variables."""
        own = self.variables[member]
        return tuple(own[index] if isinstance(index, ir.Var) else index for index in stage.indices)

    @property
    def length(self) -> Extent:
        """Positions on the cascade axis."""
        return product(self.extents[var] for var in self.axis)


class FrameBuilder:
    """Unifies the row variables of members that read each other's results."""

    def __init__(self, stages: list[Stage]) -> None:
        self.stages = stages
        self._classes = Classes()

    def unify(self, earlier: int, later: int, load: ir.TensorLoad) -> Reason | None:
        """Unifies rows: `later` reads the result of `earlier` at the load's indices."""
        for written, index in zip(self.stages[earlier].indices, load.indices, strict=True):
            if not isinstance(written, ir.Var):
                continue
            if index in {*self.stages[later].spatial}:
                if not same_extent(self.stages[earlier].extents[written], self.stages[later].extents[index]):
                    return Reason("result_index", f"{load}: part of {load.source.name} is read")
                self._classes.join((earlier, written), (later, index))
            elif not (isinstance(index, ir.prim.IntImm) and not more_than_one(self.stages[earlier].extents[written])):
                return Reason("result_index", str(load))
        return None

    def unify_pairs(self, earlier: int, later: int, rows: Iterable[tuple[tirx.Var, tirx.Var]]) -> None:
        """Unifies rows of two members, variable by variable."""
        for one, other in rows:
            self._classes.join((earlier, one), (later, other))

    def unify_rows(self, earlier: int, later: int) -> None:
        """Unifies the rows of two members that only share loops, in order, if they have equally many.

        Variables of one value count where all are alike, so that both members read a tensor at the same place.
        """
        for least in (1, 2):
            rows = [self._rows(member, least) for member in (earlier, later)]
            extents = [[self.stages[k].extents[v] for v in own] for k, own in zip((earlier, later), rows, strict=True)]
            if len(rows[0]) == len(rows[1]) and all(map(same_extent, *extents)):
                return self.unify_pairs(earlier, later, zip(*rows, strict=True))

    def _rows(self, member: int, least: int) -> list[tirx.Var]:
        """The rows of a member with so many values at least, 1 or 2."""
        stage = self.stages[member]
        return [v for v in stage.spatial if least == 1 or more_than_one(stage.extents[v])]

    def build(self, axis_orders: list[tuple[int, ...]]) -> Frame | Reason:
        """The frame, with the members' reduction variables put in the order of the first member's."""
        first = self.stages[0]
        axis = tuple(tirx.Var(var.name.removeprefix("v_"), var.ty) for var in first.reduce)
        extents = {new: first.extents[old] for new, old in zip(axis, first.reduce, strict=True)}
        classes: dict[object, tirx.Var] = {}
        variables: list[dict[tirx.Var, tirx.Var]] = []
        for k, stage in enumerate(self.stages):
            own = {var: axis[axis_orders[k][position]] for position, var in enumerate(stage.reduce)}
            for var in stage.spatial:
                root = self._classes.of((k, var))
                if root not in classes:
                    classes[root] = tirx.Var(var.name.removeprefix("v_"), var.ty)
                    extents[classes[root]] = stage.extents[var]
                if classes[root] in {*own.values()}:
                    return Reason(
                        "result_index", f"{stage.buffer.name} reads one earlier result at two of its own rows"
                    )
                own[var] = classes[root]
            variables.append(own)
        return Frame(axis, tuple(variables), extents)


# Which reductions share an axis, by the extents of their domains and the buffers that they read.


Positions = set[tuple[tirx.Var, int]]


def axis_positions(element: ir.Expr, variable: tirx.Var) -> Positions:
    """(buffer, dimension) pairs that the variable indexes in an element."""
    places = ((load.source, dim, index) for load in loads_of(element) for dim, index in enumerate(load.indices))
    return {(buffer, dim) for buffer, dim, index in places if uses(index, (variable,))}


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
        if len(found) != len(moving) or {*moving} != {pair[side] for pair in found}:
            return None
    rows = [(a, b) for a, b in found if a in {*earlier.spatial}]
    axis = [(a, b) for a, b in found if a in {*earlier.reduce}]
    order = [k for var in later.reduce for k, own in enumerate(earlier.reduce) if (own, var) in {*axis}]
    units = [[v for v in stage.spatial if not more_than_one(stage.extents[v])] for stage in (earlier, later)]
    rows += zip(*units, strict=True) if len(units[0]) == len(units[1]) else ()
    alike = len(order) == len(earlier.reduce) == len(later.reduce)
    alike = alike and all(same_extent(earlier.extents[a], later.extents[b]) for a, b in found)
    return Shared(tuple(rows), tuple(order)) if alike else None


def _moving(stage: Stage) -> list[tirx.Var]:
    return [var for var in (*stage.spatial, *stage.reduce) if more_than_one(stage.extents[var])]


def _conflict(left: Positions, right: Positions) -> bool:
    """Whether buffers that both index are indexed at different dimensions alone."""
    return not {buffer for buffer, _ in left}.isdisjoint(buffer for buffer, _ in right) and left.isdisjoint(right)


# Parts of a result that later reductions read separately: centre[b, 0] and centre[b, 1], or mean[i] and mean[j].
#
# Of a covariance matrix Σ (x[k, i] − mean[i])·(x[k, j] − mean[j]) the means of its rows and those of its columns are
# one result to the program, and two to the loop: each has a value for a row variable of its own.


Pattern = tuple[int | None, ...]


@dataclass(frozen=True)
class InlinedReduction:
    """A reduction stage and its element in inputs and other reductions alone, over the stage's own variables.

    Attributes
    ----------
    pattern : the fixed indices of a slice.
    further : it is the result once more, for the loads that read it at another row than their element's first.
    elsewhere : those loads, of which the result itself has none.
    """

    stage: Stage
    element: ir.Expr
    pattern: Pattern = ()
    further: bool = False
    elsewhere: tuple[ir.TensorLoad, ...] = ()

    @property
    def is_slice(self) -> bool:
        """Whether it is a constant slice of the stage's result, or the result once more."""
        return self.further or any(fixed is not None for fixed in self.pattern)

    @property
    def name(self) -> str:
        """The buffer's name, with the fixed indices of a part."""
        return "_".join([self.stage.buffer.name, *(str(fixed) for fixed in self.pattern if fixed is not None)])

    def holds(self, load: ir.TensorLoad) -> bool:
        """Whether a load reads this result: the same buffer, at the same fixed indices or the same other row."""
        if not load.source.same_as(self.stage.buffer):
            return False
        own = self.pattern or (None,) * len(load.indices)
        return pattern_of(load) == own and self.further == any(same(load, other) for other in self.elsewhere)

    def over(self, variables: dict[tirx.Var, tirx.Var]) -> InlinedReduction:
        """The same, for elements over other variables."""
        return dataclasses.replace(self, elsewhere=tuple(substitute(load, variables) for load in self.elsewhere))


def pattern_of(load: ir.TensorLoad) -> Pattern:
    """The constant index in each dimension of more than one element; None in the others."""
    return tuple(
        int(index) if isinstance(index, prim.IntImm) and more_than_one(extent_of(extent)) else None
        for index, extent in zip(load.indices, load.source.ty.shape, strict=True)
    )


def variants_of(reductions: list[InlinedReduction]) -> list[InlinedReduction]:
    """Each reduction, followed by the parts of it that the others read, and by itself for each further row."""
    found: list[InlinedReduction] = []
    for reduction in reductions:
        loads = [
            load
            for other in reductions
            for load in loads_of(other.element)
            if load.source.same_as(reduction.stage.buffer)
        ]
        patterns = dict.fromkeys(pattern_of(load) for load in loads)
        further = [load for other in reductions for load in _further(reduction, other)]
        reduction = dataclasses.replace(reduction, elsewhere=tuple(further))
        found += [reduction, *(dataclasses.replace(reduction, further=True, elsewhere=(load,)) for load in further)]
        found += [_slice(reduction, pattern) for pattern in patterns if any(fixed is not None for fixed in pattern)]
    return found


def _further(reduction: InlinedReduction, reader: InlinedReduction) -> list[ir.TensorLoad]:
    """The loads that read a result at another row of the reader than the first that does."""
    rows: list[ir.TensorLoad] = []
    for load in loads_of(reader.element):
        plain = {*load.indices} <= {*reader.stage.spatial}
        if load.source.same_as(reduction.stage.buffer) and plain and not any(same(load, other) for other in rows):
            rows.append(load)
    return rows[1:]


def _slice(reduction: InlinedReduction, pattern: Pattern) -> InlinedReduction:
    stage = reduction.stage
    at = {
        var: prim.IntImm(str(var.ty.dtype), fixed)
        for var, fixed in zip(stage.indices, pattern, strict=True)
        if fixed is not None
    }
    spatial = tuple(var for var in stage.spatial if var not in at)
    indices = tuple(at.get(index, index) for index in stage.indices)
    sliced = dataclasses.replace(stage, spatial=spatial, indices=indices)
    return InlinedReduction(sliced, substitute(reduction.element, at), pattern)
