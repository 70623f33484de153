"""Lines: variables that a tile runs along as one, where the tensors have them in neighbouring dimensions.

t[b, s, k] of [B, S, K], along b and s   ->   t[l, k] of [B·S, K], along l = b·S + s
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import ir, sym, tirx
from tvm.ir import prim

from tvm_cascade.analysis.tir import Extent, as_index, dtype_of, extent_of, product, same_extent, uses
from tvm_cascade.tile.emit import kernel_extent
from tvm_cascade.transform.printer import cast

# Reshapes and transpositions: index maps between stages, and tensor views.
#
# out[b, i, h, c] = o[b·4 + h, i, c]   at o[n, i, c]             ->   out[n // 4, i, n % 4, c]
# t[b, i, h·64 + c] of [B, S, 4·64], along c below 64            ->   t[b, i, h, c] of [B, S, 4, 64]


def inverted(
    indices: Sequence[ir.Expr], dims: Sequence[ir.Expr], extents: Mapping[tirx.Var, Extent]
) -> dict[tirx.Var, ir.Expr] | None:
    """The inverse of an index map; None where it is no bijection.

    Parameters
    ----------
    indices : over the variables of a stage that reads a tensor.
    dims : what stands there where the tensor is written.
    extents : of the stage's variables.
    """
    domain = {
        var: ir.Range(tirx.const(0, dtype_of(var)), as_index(extent, dtype_of(var))) for var, extent in extents.items()
    }
    moving = [(i, d) for i, d in zip(indices, dims, strict=True) if not isinstance(d, prim.IntImm)]
    found = sym.detect_iter_map([index for index, _ in moving], domain, check_level="bijective")
    scaled = (split for index in found.indices for split in index.args if extent_of(split.scale) not in (1, -1))
    if not found.indices or next(scaled, None) is not None:  # every other place alone, by 2·v, is no bijection
        return None
    solved = sym.inverse_affine_iter_map(found.indices, [cast(dim, dtype_of(index)) for index, dim in moving])
    return {var: cast(solved[var], dtype_of(var)) for var in domain if var in solved}


def taken_apart(
    shape: Sequence[ir.Expr], indices: Sequence[ir.Expr], var: tirx.Var, extent: Extent
) -> tuple[tuple[ir.Expr, ...], tuple[ir.Expr, ...]]:
    """The shape and indices of a view with a separate dimension for a variable; those given where there is none.

    Parameters
    ----------
    shape, indices : of a compact tensor, and where an element of it is.
    extent : of the variable.
    """
    analyzer = sym.Analyzer()
    for d, index in enumerate(indices):
        width, own = as_index(extent, dtype_of(index)), cast(var, dtype_of(index))
        start = analyzer.simplify(index - own)
        whole = cast(shape[d], dtype_of(index))
        if not uses(index, [var]) or isinstance(index, ir.Var) or uses(start, [var]):
            continue
        if all(analyzer.can_prove_equal(tirx.floormod(e, width), 0) for e in (start, whole)):
            outer, first = (analyzer.simplify(tirx.floordiv(e, width)) for e in (whole, start))
            return (*shape[:d], outer, width, *shape[d + 1 :]), (*indices[:d], first, var, *indices[d + 1 :])
    return tuple(shape), tuple(indices)


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

    def holds(self, at: ir.Expr) -> ir.Expr:
        """Whether there is such a place."""
        return at < kernel_extent(self.extent)

    def inside(self, at: ir.Expr) -> ir.Expr:
        """A place, or the last one where it is past the end."""
        return tirx.min(at, kernel_extent(self.extent) - 1)

    def corner(self, at: ir.Expr) -> dict[tirx.Var, ir.Expr]:
        """The variables where a box starts; of a line without boxes, none."""
        return {}


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
    return any(uses(index, variables) for index in load.indices)


def in_order(view: View, variables: Sequence[tirx.Var]) -> list[tirx.Var]:
    """Variables in the order of the dimensions that run along them; those that none does are left out."""
    first = {v: next((d for d, index in enumerate(view.indices) if uses(index, [v])), None) for v in variables}
    return [v for v, _ in sorted(((v, d) for v, d in first.items() if d is not None), key=lambda pair: pair[1])]
