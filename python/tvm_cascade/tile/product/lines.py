"""Lines: variables that a tile runs along as one, where the tensors have them in neighbouring dimensions.

t[b, s, k] of [B, S, K], along b and s   ->   t[l, k] of [B·S, K], along l = b·S + s
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import ir, tirx

from tvm_cascade.analysis.tir import Extent, as_index, dtype_of, extent_of, product, same_extent, uses
from tvm_cascade.tile.reshape import taken_apart


@dataclass(frozen=True)
class Line:
    """Variables, outermost first, as one.

    Attributes
    ----------
    var : that stands for all of them; the variable itself where it is one.
    parts, extents : the variables, and how far each runs.
    """

    var: tirx.Var
    parts: tuple[tirx.Var, ...]
    extents: tuple[Extent, ...]

    @property
    def extent(self) -> Extent:
        return product(self.extents)

    def places(self, at: ir.Expr) -> dict[tirx.Var, ir.Expr]:
        return {self.var: at, **places_of(self.parts, self.extents, at)}


def places_of(parts: Sequence[tirx.Var], extents: Sequence[Extent], at: ir.Expr) -> dict[tirx.Var, ir.Expr]:
    """The variables at a place of all of them, in row-major order, outermost first."""
    found: dict[tirx.Var, ir.Expr] = {}
    for part, extent in list(zip(parts, extents, strict=True))[:0:-1]:
        width = as_index(extent, dtype_of(at))
        found[part] = tirx.floormod(at, width)
        at = tirx.floordiv(at, width)
    return {parts[0]: at, **found}


def runs_along(index: ir.Expr, var: tirx.Var) -> bool:
    return isinstance(index, ir.Var) and index.same_as(var)


@dataclass(frozen=True)
class View:
    """A compact tensor as accesses see it: its shape, and the index in each dimension."""

    shape: tuple[ir.Expr, ...]
    indices: tuple[ir.Expr, ...]

    @classmethod
    def of(cls, tensor: tirx.Var, indices: Sequence[ir.Expr]) -> View:
        """The view that a tensor is itself."""
        return cls(tuple(tensor.ty.shape), tuple(indices))

    def apart(self, *lines: Line) -> View:
        """The view with a dimension of its own for each variable of some lines that an index adds to others."""
        shape, indices = self.shape, self.indices
        for line in lines:
            for part, extent in zip(line.parts, line.extents, strict=True):
                shape, indices = taken_apart(shape, indices, part, extent)
        return View(shape, indices)

    def dimension(self, var: tirx.Var) -> int | None:
        """The dimension whose index is the variable itself, where no other index uses it."""
        along = [d for d, index in enumerate(self.indices) if uses(index, [var])]
        return along[0] if len(along) == 1 and runs_along(self.indices[along[0]], var) else None

    def along(self, line: Line) -> View | None:
        """The view with one dimension for a line; None where there is none."""
        apart = self.apart(line)
        shape, indices = apart.shape, apart.indices
        first = apart.dimension(line.parts[0])
        if first is None or len(line.parts) == 1:
            return None if first is None else apart
        end = first + len(line.parts)
        if [apart.dimension(part) for part in line.parts] != list(range(first, end)):
            return None
        inside = zip(shape[first + 1 : end], line.extents[1:], strict=True)
        if not all(same_extent(extent_of(width), extent) for width, extent in inside):
            return None
        whole = shape[first]
        for width in shape[first + 1 : end]:
            whole = whole * width
        return View((*shape[:first], whole, *shape[end:]), (*indices[:first], line.var, *indices[end:]))


def line_of(variables: Sequence[tirx.Var], extents: Mapping[tirx.Var, Extent]) -> Line:
    own = tuple(extents[var] for var in variables)
    whole = variables[0] if len(variables) == 1 else tirx.Var("_".join(v.name for v in variables), "int32")
    return Line(whole, tuple(variables), own)


def runs(load: ir.TensorLoad, *variables: tirx.Var) -> bool:
    """Whether a load's place depends on any of some variables."""
    return any(uses(index, variables) for index in load.indices)


def in_order(view: View, variables: Sequence[tirx.Var]) -> list[tirx.Var]:
    """Variables in the order of the dimensions that run along them; those that none does are left out."""
    first = {v: next((d for d, index in enumerate(view.indices) if uses(index, [v])), None) for v in variables}
    return [v for v, _ in sorted(((v, d) for v, d in first.items() if d is not None), key=lambda pair: pair[1])]
