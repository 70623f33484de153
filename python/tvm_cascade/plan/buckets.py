"""A function of symbolic extents as several kernels: a call takes the one that was chosen for its extents.

    n ≤ 64: softmax_0        64 < n ≤ 512: softmax_1        n > 512: softmax_2

Each is right at every length: what a bucket decides is speed alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tvm import ir, tirx

Cell: TypeAlias = tuple[int, ...]
"""Of each extent, how many of its bounds it is over."""


@dataclass(frozen=True)
class Split:
    """Lengths on either side of a bound.

    Attributes
    ----------
    extent : the place of the symbolic extent among those of the function.
    upto : the longest length that is within.
    within, beyond : the kernel, by number, or a further split.
    """

    extent: int
    upto: int
    within: Tree
    beyond: Tree


Tree: TypeAlias = Split | int


@dataclass(frozen=True)
class Bucket:
    """Lengths of a function of symbolic extents for which a kernel was chosen, for one reason.

    Attributes
    ----------
    lengths : in words.
    function : the name of the kernel's own.
    design : the values of its knobs, in words.
    origin : where these come from.
    chosen : its kernel or its plan, or why it has none; None where the backend has no kernels of skeletons.
    """

    lengths: str
    function: str
    design: Mapping[str, str]
    origin: str
    chosen: Any = None

    def __str__(self) -> str:
        values = ", ".join(f"{name}: {value}" for name, value in self.design.items())
        return f"{self.lengths}: {self.function}, {values}; chosen by {self.origin}"


@dataclass(frozen=True)
class Buckets:
    """What a function of symbolic extents is lowered to: a kernel for each bucket; some have one in common."""

    each: tuple[Bucket, ...]

    def __str__(self) -> str:
        count = len({bucket.function for bucket in self.each})
        return f"{count} kernels, of which a call takes the one for its lengths"


def tree_of(bounds: Sequence[Sequence[int]], kernels: Mapping[Cell, int]) -> Tree:
    """The fewest questions, about, that tell the kernel of each cell.

    Parameters
    ----------
    bounds : of each extent, ascending; a cell holds the lengths from one bound, left out, to the next.
    kernels : by cell, one for each combination.
    """
    return _tree(bounds, kernels, [(0, len(one)) for one in bounds])


def _tree(bounds: Sequence[Sequence[int]], kernels: Mapping[Cell, int], box: list[tuple[int, int]]) -> Tree:
    found = {kernels[cell] for cell in _cells(box)}
    if len(found) == 1:
        return found.pop()

    def sides(extent: int, place: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        first, last = box[extent]
        near, far = list(box), list(box)
        near[extent], far[extent] = (first, place), (place + 1, last)
        return near, far

    def mixed(cut: tuple[int, int]) -> tuple[int, int]:
        """Kernels on both sides, and how unequal the sides are."""
        both = [{kernels[cell] for cell in _cells(side)} for side in sides(*cut)]
        first, last = box[cut[0]]
        return sum(map(len, both)), abs(first + last - 1 - 2 * cut[1])

    def changes(extent: int, place: int) -> bool:
        """Whether some cell has another kernel than its neighbour across a cut."""
        edge = list(box)
        edge[extent] = (place, place)
        return any(kernels[cell] != kernels[(*cell[:extent], place + 1, *cell[extent + 1 :])] for cell in _cells(edge))

    cuts = [(extent, place) for extent, (first, last) in enumerate(box) for place in range(first, last)]
    extent, place = min((cut for cut in cuts if changes(*cut)), key=mixed)
    near, far = sides(extent, place)
    return Split(extent, bounds[extent][place], _tree(bounds, kernels, near), _tree(bounds, kernels, far))


def _cells(box: Sequence[tuple[int, int]]) -> Iterator[Cell]:
    return itertools.product(*(range(first, last + 1) for first, last in box))


def lengths_of(tree: Tree, names: Sequence[str]) -> dict[int, str]:
    """The lengths of each kernel of a tree, in words, by the names of the extents."""
    found: dict[int, list[_Ranges]] = {}
    for kernel, ranges in _leaves(tree, [(0, None)] * len(names)):
        found.setdefault(kernel, []).append(ranges)
    return {kernel: ", or ".join(_told(one, names) for one in _joined(several)) for kernel, several in found.items()}


_Ranges: TypeAlias = list[tuple[int, int | None]]
"""Of each extent, the length that it is over, and that up to which it is."""


def _leaves(tree: Tree, ranges: _Ranges) -> Iterator[tuple[int, _Ranges]]:
    """The kernels with the ranges of extents."""
    if isinstance(tree, int):
        yield tree, ranges
        return
    over, upto = ranges[tree.extent]
    for side, limits in ((tree.within, (over, tree.upto)), (tree.beyond, (tree.upto, upto))):
        yield from _leaves(side, [*ranges[: tree.extent], limits, *ranges[tree.extent + 1 :]])


def _joined(several: Sequence[_Ranges]) -> list[_Ranges]:
    """Ranges with those as one that lie beside each other along one extent."""
    found: list[_Ranges] = []
    for ranges in several:
        for place, other in enumerate(found):
            apart = [k for k, pair in enumerate(zip(other, ranges, strict=True)) if pair[0] != pair[1]]
            if len(apart) == 1 and other[apart[0]][1] == ranges[apart[0]][0]:
                found[place] = [*other]
                found[place][apart[0]] = (other[apart[0]][0], ranges[apart[0]][1])
                break
        else:
            found.append(ranges)
    return found


def _told(ranges: _Ranges, names: Sequence[str]) -> str:
    return " and ".join(_range(name, *one) for name, one in zip(names, ranges, strict=True) if one != (0, None))


def _range(name: str, over: int, upto: int | None) -> str:
    if upto is None:
        return f"{name} over {over}"
    return f"{name} of {over + 1} to {upto}" if over else f"{name} up to {upto}"


def dispatching(
    func: tirx.PrimFunc, extents: Sequence[tirx.Var], tree: Tree, name: str, called: Sequence[str]
) -> tirx.PrimFunc:
    """The function that a caller calls: it looks at its extents, and calls a kernel.

    Parameters
    ----------
    func : whose parameters all kernels have.
    extents : the symbolic ones that a tree asks for.
    called : names of the kernels' functions, in the same module.
    """

    def asked(tree: Tree) -> tirx.Stmt:
        if isinstance(tree, int):
            return tirx.Evaluate(tirx.call_cpacked(called[tree], *func.params))
        extent = extents[tree.extent]
        within: ir.Expr = extent <= tirx.const(tree.upto, str(extent.ty.dtype))
        return tirx.IfThenElse(within, asked(tree.within), asked(tree.beyond))

    return tirx.PrimFunc(list(func.params), asked(tree)).with_attr("global_symbol", name)
