"""What each block of a cluster merges of a tile of rows: patches of eight rows and a span of columns.

A patch is what a warp has of a span in one register of every lane times four: it leaves or takes one by a store or load
of 512 neighbouring bytes, to or from one block. Patches are dealt out in turn, all rows of a span first; where there
are as many groups of eight rows as blocks, or a multiple, a block so has all spans of the rows that it has any of.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tvm import ir

from tvm_cascade.tile.merge.places import FOUR, SPAN

OCTET = 8
"""Rows of a patch."""


@dataclass(frozen=True)
class Patches:
    """The patches of a tile.

    Attributes
    ----------
    rows : of the tile.
    blocks : of the cluster.
    """

    rows: int
    blocks: int

    @property
    def octets(self) -> int:
        """Groups of eight rows."""
        return -(-self.rows // OCTET)

    @property
    def stride(self) -> int:
        """The block of a rank has patches of rows whose group has the same remainder by this, and of no others."""
        return math.gcd(self.octets, self.blocks)

    @property
    def has_whole_rows(self) -> bool:
        """Whether a block has all spans of the rows that it has any of."""
        return self.stride == self.blocks

    def most(self, width: int) -> int:
        """Patches of a vector that a block has at most."""
        return -(-self.octets * spans_of(width) // self.blocks)

    def count(self, spans: int, rank: ir.Expr) -> ir.Expr:
        """Patches of so many spans that the block of a rank has."""
        return (self.octets * spans - rank + (self.blocks - 1)) // self.blocks

    def number(self, row: ir.Expr, span: ir.Expr | int) -> ir.Expr:
        """The number of a patch, which the block whose rank is its remainder by the blocks has."""
        return span * self.octets + row // OCTET

    def words(self, widths: list[int], scalars: int) -> int:
        """Words of 4 bytes for what a block gets from all: of vectors, and of scalars of each row."""
        vectors = sum(self.most(width) for width in widths) * OCTET * SPAN
        return self.blocks * (vectors + self.octets * OCTET * whole_fours(scalars))


def spans_of(width: int) -> int:
    """Spans that cover a vector."""
    return -(-width // SPAN)


def whole_fours(count: int) -> int:
    """A number of words as whole fours."""
    return -(-count // FOUR) * FOUR
