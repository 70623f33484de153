"""The segment of a row that one block folds; unaligned rows are peeled: head, aligned body, tail.

    |·····xxx|xxxxxxxx|xxxxxxxx|xxxx····|      memory, in vectors; a row is x
          head        body      tail

Rows whose length is no multiple of a vector start at another place in a vector each. Vectors start where those of
memory do, so that the body starts at a position that depends on the row. Head and tail are the rim of the row.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tvm import ir, sym, tirx

from tvm_cascade.analysis.tir import Extent, product
from tvm_cascade.tile.emit import bind, in_register, kernel_extent
from tvm_cascade.tile.memory import INDEX, VECTOR_BYTES, itemsize
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.row.linear import Access, factor, is_shifted
from tvm_cascade.tile.row.shape import Row
from tvm_cascade.transform.printer import cast


@dataclass(frozen=True)
class Segment:
    """Positions [start, end) of a row: so many at least and at most, where that is known."""

    start: ir.Expr
    end: ir.Expr
    least: int = 0
    most: int | None = None

    @classmethod
    def whole(cls, length: Extent) -> Segment:
        known = (length, length) if isinstance(length, int) else ()
        return cls(tirx.const(0, "int32"), kernel_extent(length), *known)

    @classmethod
    def share(cls, length: int, part: ir.Expr, parts: int, vector: int) -> Segment:
        """The part of a row that one block folds; the last may be short, or empty."""
        step = share_of(length, parts, vector)
        start = bind("start", part * step)
        if step * parts == length:
            return cls(start, start + step, step, step)
        return cls(start, bind("end", tirx.min(start + step, kernel_extent(length))))

    def cut(self, positions: int) -> tuple[Segment, Segment]:
        """The first positions of a segment whose length is not known, at most so many; and all others."""
        middle = bind("middle", tirx.min(self.start + positions, self.end))
        return Segment(self.start, middle, 0, positions), Segment(middle, self.end)


@dataclass(frozen=True)
class Peel:
    """The peeling of a row: head, aligned body, tail.

    Attributes
    ----------
    origin : the tensor whose vectors they are, an input of the fold where there is one.
    vector : neighbours of a vector, a power of two.
    slack : positions at the end that no body has, so that the vectors which cover others of a tensor of that length,
        wherever these start, are inside of it.
    """

    origin: Access
    vector: int
    length: Extent
    slack: int = 0

    @property
    def most(self) -> int:
        """Positions of the longest body: of a row that starts with a vector, and whose length is known."""
        assert isinstance(self.length, int)
        return (self.length - self.slack) // self.vector * self.vector

    @property
    def least(self) -> int:
        return self.most - self.vector

    def aligned(self, stream: Access) -> Access:
        apart = sym.Analyzer().simplify(stream.base - self.origin.base * stream.stride)
        return dataclasses.replace(stream, alignment=1 if factor(apart) % self.vector else self.vector)

    def shifted(self, row: Row) -> int:
        """Streams of outputs whose vectors are unaligned in the body, and have to be shifted."""
        return sum(is_shifted(self.aligned(stream), self.vector) for stream in row.written)

    def is_inside(self, stream: Access) -> bool:
        """Whether the vectors that cover one of a stream's within the body are inside of its tensor."""
        return stream.is_shared and self.slack >= VECTOR_BYTES // itemsize(stream.dtype) - 1

    def head(self, start: ir.Expr) -> ir.Expr:
        """Positions of a row before its body.

        Parameters
        ----------
        start : the place of the row in the origin's tensor.
        """
        return in_register("head", cast(-start & tirx.const(self.vector - 1, INDEX), "int32"))

    def end(self, head: ir.Expr) -> ir.Expr:
        within = (kernel_extent(self.length) - self.slack - head) & tirx.const(-self.vector, "int32")
        return in_register("body_end", head + (within if isinstance(self.length, int) else tirx.max(within, 0)))

    def share(self, head: ir.Expr, end: ir.Expr, part: ir.Expr, parts: int) -> Segment:
        """The part of a body that one block folds."""
        if parts == 1:
            return Segment(head, end, *((self.least, self.most) if isinstance(self.length, int) else ()))
        most = share_of(self.most, parts, self.vector)
        start = bind("start", head + part * most)
        least = max(0, self.least - (parts - 1) * most)
        return Segment(start, bind("end", tirx.min(start + most, end)), least, most)


def share_of(positions: int, parts: int, vector: int) -> int:
    """Positions of the largest share, of vectors that are distributed over some blocks."""
    return -(-positions // (parts * vector)) * vector


def even_share(length: int, parts: int, vector: int, peel: Peel | None) -> int | None:
    """Positions of each block's share of a row, or of the largest of its body; None where shares are not even."""
    if peel is not None:
        return share_of(peel.most, parts, vector)
    return None if length % (parts * vector) else length // parts


def peel_of(row: Row, vector: int) -> Peel | None:
    """The peeling of rows of any length; None where no contiguous tensor belongs to a single row."""
    length = product(row.axis.extents)
    own = [s for s in (*row.folded, *row.written) if s.stride == 1 and not s.is_shared]
    shared = [
        VECTOR_BYTES // itemsize(s.dtype) - 1 for s in (*row.folded, *row.written) if s.stride == 1 and s.is_shared
    ]
    slack = max(shared, default=0)
    slack = slack if 2 * (vector - 1) + slack <= WARP else 0  # the rim is at most what a warp has
    if row.is_strided or not own or (isinstance(length, int) and length < vector + slack):
        return None
    return Peel(own[0], vector, length, slack)
