"""Ranks as single integers: the upper bits of an element's key in their order, its position in the lower ones.

    packed = (order-preserving bits of the key, the lower b cleared) | (2^b − 1 − position)

A comparator of a network is then a maximum and a minimum. What it finds is exact where no two of the best elements, or
of those next to them, agree in the upper bits of their keys: `unsure` tells, and the caller selects by whole keys then.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.algebra.reducer import Selection
from tvm_cascade.tile.emit import in_register
from tvm_cascade.tile.merge.lanes import exchanged, from_lane_at

DTYPE = "int32"

_PACK = """
__device__ __forceinline__ int packed_key(float key, int position, int mask) {
  union { float number; int bits; } own;
  own.number = key + 0.0f;  // both zeros are equal
  return ((own.bits ^ ((own.bits >> 31) & 0x7fffffff)) & ~mask) | (mask - position);
}
"""


class PackedRanks:
    """The best of a row's elements, as packed integers, best first.

    Parameters
    ----------
    length : of the row.
    """

    def __init__(self, selection: Selection, length: int) -> None:
        self.selection, self.count = selection, selection.count
        self.mask = (1 << (length - 1).bit_length()) - 1

    @staticmethod
    def none() -> ir.Expr:
        """No element, below all others."""
        return tirx.min_value(DTYPE)

    def pack(self, key: ir.Expr, position: ir.Expr) -> ir.Expr:
        """An element."""
        key = key if self.selection.largest else -key
        place = position if self.selection.lower else self.mask - position
        given = (key, place, tirx.const(self.mask, DTYPE))
        return T.cuda.func_call("packed_key", *given, source_code=_PACK, return_type=DTYPE)

    def position(self, packed: ir.Expr) -> ir.Expr:
        """The position of an element."""
        place = packed & tirx.const(self.mask, DTYPE)
        return self.mask - place if self.selection.lower else place

    def best(self, elements: Sequence[ir.Expr], lanes: int) -> list[ir.Expr]:
        """The best of the elements of so many neighbouring lanes, in order, in all of them."""
        own = self._sorted(list(elements))
        own += [self.none()] * (self.count - len(own))
        distance = lanes // 2
        while distance:
            kept = [in_register("own", value) for value in own]
            others = [in_register("other", from_lane_at(value, distance)) for value in kept]
            own = self._merged(kept, others)
            distance //= 2
        return own

    def unsure(self, best: Sequence[ir.Expr], elements: Sequence[ir.Expr], lanes: int) -> ir.Expr:
        """Whether keys that agree in their upper bits may be in another order, in the lane's row."""
        mask = tirx.const(self.mask, DTYPE)
        last = in_register("last", best[-1] & ~mask)
        count: ir.Expr = tirx.const(0, DTYPE)
        for element in elements:
            count = count + T.cast(element >= last, DTYPE)
        found = tirx.NE(exchanged(in_register("near", count), lambda a, b: a + b, lanes), self.count)
        for one, other in pairwise(best):
            found = tirx.Or(found, tirx.EQ(one | mask, other | mask))
        return found

    def _sorted(self, elements: list[ir.Expr]) -> list[ir.Expr]:
        if len(elements) == 1:
            return elements
        middle = len(elements) // 2
        return self._merged(self._sorted(elements[:middle]), self._sorted(elements[middle:]))

    def _merged(self, left: list[ir.Expr], right: list[ir.Expr]) -> list[ir.Expr]:
        """See `merge.ranks`: the best of both by a bitonic network, in order."""
        count = min(len(left) + len(right), self.count)
        width = 1 << (count - 1).bit_length()
        ours, theirs = ([*side[:width], *[None] * (width - len(side))] for side in (left, right))
        ranks = [_larger(one, other) for one, other in zip(ours, reversed(theirs), strict=True)]
        distance = width // 2
        while distance:
            for k in range(width):
                if not k & distance:
                    one, other = ranks[k], ranks[k + distance]
                    ranks[k] = _larger(one, other)
                    smaller = None if one is None or other is None else in_register("rank", tirx.min(one, other))
                    ranks[k + distance] = smaller
            distance //= 2
        return [rank for rank in ranks[:count] if rank is not None]


def _larger(one: ir.Expr | None, other: ir.Expr | None) -> ir.Expr | None:
    if one is None or other is None:
        return other if one is None else one
    return in_register("rank", tirx.max(one, other))
