"""Column halves: which of two warp groups has which columns of a product, and which boxes of a tile those are.

box        0  1  2  3 | 4  5  6  7 | 8        576 columns, of which the first 512 are values
group      0          | 1          | neither
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp
from tvm import ir

from tvm_cascade.tile.attention.pieces import PieceWork
from tvm_cascade.tile.attention.shape import Product, Stream, check_one_score, same_tile
from tvm_cascade.tile.fragment import ROWS
from tvm_cascade.tile.hopper.copy import BOX_BYTES
from tvm_cascade.tile.merge.places import FOUR
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.skeletons.stream.epilogue import Columns
from tvm_cascade.tile.work import Work

GROUPS = 2
"""Warp groups that share rows."""

_MOST_BOXES = 2
"""Of a part: products begin with 16 KiB, which one copying thread moves as fast as larger parts (measured)."""


def half_of(product: Product, group: int, spread: int = 1) -> range:
    """The columns of a product that a group has: whole boxes of the value's tile.

    Parameters
    ----------
    spread : over how many blocks the columns are spread; they are counted from the first of the block's.
    """
    per_box, width = BOX_BYTES // product.value.size, product.width // spread
    boxes = -(-width // per_box)
    middle = boxes // GROUPS * per_box
    return range(middle) if group == 0 else range(middle, width)


@dataclass(frozen=True)
class HalfColumns(Columns):
    """The columns of one of the groups.

    Attributes
    ----------
    group : its number; where the groups are alike, both may run the same code, which knows it at run time only.
    """

    group: int | ir.Expr
    spread: int = 1

    def of(self, product: Product) -> range:
        if isinstance(self.group, int):
            return half_of(product, self.group, self.spread)
        return range(len(half_of(product, 0, self.spread)))

    def first(self, product: Product, work: Work) -> ir.Expr | int:
        """As of `Columns`; counted from the group's half where it is known at run time only."""
        assert isinstance(work, PieceWork)
        chunk = 0 if self.spread == 1 else work.piece.item % self.spread * (product.width // self.spread)
        return chunk if isinstance(self.group, int) else self.group * len(self.of(product)) + chunk


def are_alike(stream: Stream) -> bool:
    return all(len(half_of(product, 0)) == len(half_of(product, 1)) for product in stream.products)


def may_spread(product: Product, spread: int) -> bool:
    return spread == 1 or product.width % (spread * GROUPS * (BOX_BYTES // product.value.size)) == 0


def sent_registers(stream: Stream, blocks: int) -> int:
    """Registers of a thread that another block of a cluster gets: of its share of the columns, and scalars.

    Those are of both rows, and followed by a count; in units of four.
    """
    vectors = sum(len(half_of(product, 0)) // 2 // blocks for product in stream.products)
    return vectors + -(-(len(ROWS) * len(sent_scalars(stream)) + 1) // FOUR) * FOUR


def sent_scalars(stream: Stream) -> list[sp.Symbol]:
    """What has a value per row: components, and where their references have moved to."""
    wide = {product.component.symbol for product in stream.products}
    components = [c.symbol for c in stream.fold.components if c.symbol not in wide]
    return [*components, *(reference.moved for reference in stream.fold.references)]


def parts_of(stream: Stream, spread: int) -> list[tuple[range, tuple[int, ...]]]:
    """The parts of a tile of the right operand, in the order in which its stage becomes free.

    Each by its boxes, which are neighbours, and by the groups whose products read them; none where only scores do.

    What the scores alone read is free once they are there, then what group 1 reads, whose products come early. Where
    columns are spread over blocks, which of them a group reads is known at run time only.
    """
    per_box = BOX_BYTES // stream.right.size
    found: list[tuple[range, tuple[int, ...]]] = []
    for box in range(-(-stream.depth // per_box)):
        own = range(box * per_box, (box + 1) * per_box)
        readers = tuple(
            group
            for group in range(GROUPS)
            if any(set(own) & set(_read_by(product, group, spread)) for product in stream.products)
        )
        if found and found[-1][1] == readers and len(found[-1][0]) < _MOST_BOXES:
            found[-1] = range(found[-1][0].start, box + 1), readers
        else:
            found.append((range(box, box + 1), readers))
    return sorted(found, key=lambda part: (len(part[1]), -max(part[1], default=0)))


def check_shared(stream: Stream) -> None:
    """Checks that every value is the right operand's own tile, so that one copy serves both; Unfit where it is not."""
    check_one_score(stream)
    if not stream.products:
        raise Unfit("no product has columns to halve")
    if stream.right.widened is not None:
        raise Unfit(f"{stream.right} is {stream.right.stored}, which no warps of these kernels convert")
    for product in stream.products:
        if product.is_transposed or not same_tile(product.value, stream.right):
            raise Unfit(f"{product.value} is not the tile of {stream.right}")


def _read_by(product: Product, group: int, spread: int) -> range:
    return half_of(product, group) if spread == 1 else range(product.width)
