"""The frame of a group: shared variables for the rows, free axes and cascade axis of all its members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tvm import ir, tirx

from tvm_cascade.algebra.verdict import Reason
from tvm_cascade.analysis.extent import Extent, more_than_one, product, same_extent
from tvm_cascade.analysis.program import Stage

Key = tuple[int, tirx.Var]
T = TypeVar("T")


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
        return tuple(lookup(own, index) if isinstance(index, ir.Var) else index for index in stage.indices)

    @property
    def length(self) -> Extent:
        """Positions on the cascade axis."""
        return product(self.extents[var] for var in self.axis)


def lookup(table: Mapping[tirx.Var, T], var: tirx.Var) -> T:
    """Dictionary access by identity of the variable."""
    return next(value for key, value in table.items() if key.same_as(var))


class FrameBuilder:
    """Unifies the row variables of members that read each other's results."""

    def __init__(self, stages: list[Stage]) -> None:
        self.stages = stages
        self._parent: dict[int, int] = {}
        self._keys: list[Key] = [(k, var) for k, stage in enumerate(stages) for var in stage.spatial]

    def unify(self, earlier: int, later: int, load: ir.TensorLoad) -> Reason | None:
        """Unifies rows: `later` reads the result of `earlier` at the load's indices."""
        for written, index in zip(self.stages[earlier].indices, load.indices, strict=True):
            if not isinstance(written, ir.Var):
                continue
            if isinstance(index, ir.Var) and any(index.same_as(var) for var in self.stages[later].spatial):
                if not same_extent(self.stages[earlier].extents[written], self.stages[later].extents[index]):
                    return Reason("result_index", f"{load}: part of {load.source.name} is read")
                self._join(self._index(earlier, written), self._index(later, index))
            elif not (isinstance(index, ir.prim.IntImm) and not more_than_one(self.stages[earlier].extents[written])):
                return Reason("result_index", str(load))
        return None

    def unify_pairs(self, earlier: int, later: int, rows: Iterable[tuple[tirx.Var, tirx.Var]]) -> None:
        """Unifies rows of two members, variable by variable."""
        for one, other in rows:
            self._join(self._index(earlier, one), self._index(later, other))

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
        classes: dict[int, tirx.Var] = {}
        variables: list[dict[tirx.Var, tirx.Var]] = []
        for k, stage in enumerate(self.stages):
            own = {var: axis[axis_orders[k][position]] for position, var in enumerate(stage.reduce)}
            for var in stage.spatial:
                root = self._root(self._index(k, var))
                if root not in classes:
                    classes[root] = tirx.Var(var.name.removeprefix("v_"), var.ty)
                    extents[classes[root]] = stage.extents[var]
                if any(classes[root].same_as(taken) for taken in own.values()):
                    return Reason(
                        "result_index", f"{stage.buffer.name} reads one earlier result at two of its own rows"
                    )
                own[var] = classes[root]
            variables.append(own)
        return Frame(axis, tuple(variables), extents)

    def _index(self, member: int, var: tirx.Var) -> int:
        return next(k for k, (owner, key) in enumerate(self._keys) if owner == member and key.same_as(var))

    def _root(self, key: int) -> int:
        while key in self._parent:
            key = self._parent[key]
        return key

    def _join(self, a: int, b: int) -> None:
        a, b = self._root(a), self._root(b)
        if a != b:
            self._parent[b] = a
