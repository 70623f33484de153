"""Rows in boxes: places of an image, of which a bulk copy brings 64 with the same neighbour of each.

    Σ over i, j, c of x[n, s·p + i - o, s·q + j - o, c]·w[i, j, c, m]        rows n, p, q; windows at p, q

For one i and one j the elements of rows that are neighbours in each of n, p and q are a box of x, with steps of s,
and zeros where it is outside of x. Rows are numbered box after box, so that a tile of rows is some boxes. The last
ones along p and q may end outside of the image, and a box may have fewer places than rows: such rows are no places.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tvm import ir, sym, tirx
from tvm.ir import prim

from tvm_cascade.analysis.tir import Extent, ceil_div, extent_of, product, same_extent, substitute, uses
from tvm_cascade.tile.emit import kernel_extent
from tvm_cascade.tile.operand import Along
from tvm_cascade.tile.product.lines import Line, View, places_of, runs_along
from tvm_cascade.tile.work import GROUP_ROWS

MOST_STEP = 4
"""From place to place of an operand: a box spans 256 elements of a dimension at most."""


@dataclass(frozen=True)
class BoxedLine(Line):
    """Variables whose places are numbered box by box, as the rows of accumulators are.

    Attributes
    ----------
    counts : places of a box along each variable.
    """

    counts: tuple[int, ...]

    @cached_property
    def boxes(self) -> tuple[Extent, ...]:
        """How many there are along each variable."""
        return tuple(ceil_div(n, count) for n, count in zip(self.extents, self.counts, strict=True))

    @property
    def extent(self) -> Extent:
        """Numbers of rows, those of no place too."""
        return product([*self.boxes, GROUP_ROWS])

    @property
    def size(self) -> int:
        """Places of a box."""
        return math.prod(self.counts)

    def corner(self, at: ir.Expr) -> dict[tirx.Var, ir.Expr]:
        found = places_of(self.parts, self.boxes, at // GROUP_ROWS)
        return {part: found[part] * count for part, count in zip(self.parts, self.counts, strict=True)}

    def _place(self, at: ir.Expr) -> dict[tirx.Var, ir.Expr]:
        inside = places_of(self.parts, self.counts, at % GROUP_ROWS)
        return {part: first + inside[part] for part, first in self.corner(at).items()}

    def places(self, at: ir.Expr) -> dict[tirx.Var, ir.Expr]:
        """The variables at a number; the last of its places for one beyond."""
        pairs = zip(self._place(at).items(), self.extents, strict=True)
        return {self.var: at, **{part: tirx.min(place, kernel_extent(n) - 1) for (part, place), n in pairs}}

    def holds(self, at: ir.Expr) -> ir.Expr:
        inside = [place < kernel_extent(n) for place, n in zip(self._place(at).values(), self.extents, strict=True)]
        return tirx.all(*inside, at % GROUP_ROWS < self.size)

    def inside(self, at: ir.Expr) -> ir.Expr:
        return at


def boxed_line(line: Line) -> BoxedLine | None:
    """A line in the fewest boxes, of those the one with most places along the innermost variables.

    Boxes are of one place of a variable whose extent the launch alone knows; None where that is not the outermost one.
    """
    extents = [n for n in line.extents if isinstance(n, int)]
    unknown = (1,) * (len(line.extents) - len(extents))
    if unknown and (len(unknown) > 1 or isinstance(line.extents[0], int)):
        return None

    def order(counts: tuple[int, ...]) -> tuple[int, list[int]]:
        return math.prod(-(-n // c) for n, c in zip(extents, counts, strict=True)), [-c for c in reversed(counts)]

    return BoxedLine(line.var, line.parts, line.extents, unknown + min(_counts(extents, GROUP_ROWS), key=order))


def _counts(extents: Sequence[int], most: int) -> Iterator[tuple[int, ...]]:
    """Places along variables, so many together at most."""
    if not extents:
        yield ()
        return
    for count in range(1, min(extents[0], most) + 1):
        yield from ((count, *rest) for rest in _counts(extents[1:], most // count))


def windows_of(view: View, line: Line) -> tuple[Along, ...] | None:
    """The dimensions of a tensor that places run along by steps, from where other variables say; None of others.

    Every variable of the line has a dimension of its own, in the same order, and none is contiguous.
    """
    found: list[Along] = []
    for k, part in enumerate(line.parts):
        along = [d for d, index in enumerate(view.indices) if uses(index, [part])]
        if len(along) != 1 or (found and along[0] <= found[-1].dimension):
            return None
        index = view.indices[along[0]]
        step = sym.Analyzer().simplify(substitute(index, {part: part + 1}) - index)
        if not isinstance(step, prim.IntImm) or not 1 <= int(step) <= MOST_STEP:
            return None
        found.append(Along(along[0], line.counts[k] if isinstance(line, BoxedLine) else 1, int(step)))
    return tuple(found) if found[-1].dimension < len(view.indices) - 1 else None


def in_boxes(view: View, line: BoxedLine) -> tuple[View, tuple[Along, ...]] | None:
    """The view of a tensor that has a place for each of a line, and its dimensions along it; None of other tensors."""
    apart = view.apart(line)
    found = windows_of(apart, line)
    if found is None:
        return None
    own = [(apart.indices[one.dimension], extent_of(apart.shape[one.dimension])) for one in found]
    pairs = zip(own, line.parts, line.extents, strict=True)
    return (apart, found) if all(runs_along(i, v) and same_extent(n, m) for (i, n), v, m in pairs) else None
