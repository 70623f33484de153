"""Ranks as single integers: where an element's key lies between the row's extremes, and its position below that.

    packed = ⌊2²³ · (key − least) / (greatest − least)⌉ · 2⁹ + (2⁹ − 1 − position) − 2³¹

A comparator of a network is then a maximum and a minimum. The upper part is monotone in the key: what is found is exact
where no two of the best elements, or of those next to them, agree in it. `unsure` tells, and the caller then selects by
whole keys, as it does where a key is no number or infinite.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.algebra.reducer import Selection
from tvm_cascade.tile.emit import bind, device_call, in_register, put, registers
from tvm_cascade.tile.merge.lanes import exchanged, from_lane_at
from tvm_cascade.tile.merge.ranks import Network

DTYPE = "int32"

_POSITION_BITS = 9
LONGEST = 1 << _POSITION_BITS
"""Positions of a row."""

_NONE = tirx.min_value(DTYPE)
"""No element, below all others."""

_MASK = LONGEST - 1
_HIGHEST = float(2**24 - 1)
"""Numbers from 2²³ to this are integers, whose offset from 2²³ is in the lower bits of a float32."""

_STEPS = 0.99 * 2**23
"""Steps between the extremes: a little fewer than there are, since the width of a step is rounded."""

_LARGEST_RANGE = 1e30

_PACK = """
__device__ __forceinline__ int packed_key(float place, int position) {
  union { float number; unsigned bits; } own;
  own.number = place;
  return (int)(own.bits * 512u + ((unsigned)position + 0x80000000u));  // the exponent is beyond the upper end
}
"""


@dataclass(frozen=True)
class Keys:
    """The keys of a thread's elements.

    Attributes
    ----------
    at : registers.
    exists : whether an element is one; None where all are.
    position : of an element in the row.
    """

    at: Any
    count: int
    exists: Callable[[int], ir.Expr] | None
    position: Callable[[int], ir.Expr]

    def or_else(self, k: int, other: ir.Expr) -> ir.Expr:
        return self.at[k] if self.exists is None else tirx.Select(self.exists(k), self.at[k], other)


class PackedRanks:
    """Emits the selection of a row's best elements as packed integers, best first.

    Attributes
    ----------
    packed : the thread's elements.
    best : those of the row, in every thread of it.
    unsure : whether elements whose keys agree may be in another order.
    """

    def __init__(self, selection: Selection, keys: Keys, lanes: int) -> None:
        self.selection, self.count, self.lanes = selection, selection.count, lanes
        self.network = Network(self.count, _larger, _ordered)
        self.packed = self._packed(keys)
        self.best = self._best()
        self.unsure = self._unsure()

    def position(self, packed: ir.Expr) -> ir.Expr:
        place = packed & tirx.const(_MASK, DTYPE)
        return _MASK - place if self.selection.lower else place

    def _packed(self, keys: Keys) -> list[ir.Expr]:
        infinity = tirx.const(float("inf"), "float32")
        greatest, least = -infinity, infinity
        for k in range(keys.count):
            greatest = in_register("greatest", tirx.max(greatest, keys.or_else(k, -infinity)))
            least = in_register("least", tirx.min(least, keys.or_else(k, infinity)))
        greatest = in_register("greatest", exchanged(greatest, tirx.max, self.lanes))
        least = in_register("least", exchanged(least, tirx.min, self.lanes))
        span = bind("span", greatest - least)
        some = tirx.And(span > 0, span < _LARGEST_RANGE)
        step = in_register("steps", tirx.Select(some, _STEPS / span, tirx.const(0.0, "float32")))
        best, sign = (greatest, 1) if self.selection.largest else (least, -1)
        nothing = in_register("nothing", tirx.const(0.0, "float32"))
        probe: ir.Expr = nothing
        packed = registers("packed", keys.count, DTYPE)
        for k in range(keys.count):
            below = in_register("below", (keys.or_else(k, best) - best) * sign)
            probe = probe + below * nothing
            place = keys.position(k)
            place = _MASK - place if self.selection.lower else place
            given = (below * step + tirx.const(_HIGHEST, "float32"), T.cast(place, DTYPE))
            value = device_call("packed_key", _PACK, *given, returned=DTYPE)
            put(packed, k, value if keys.exists is None else tirx.Select(keys.exists(k), value, _NONE))
        self.odd = tirx.Or(tirx.Not(some), tirx.NE(probe, tirx.const(0.0, "float32")))
        return [packed[k] for k in range(keys.count)]

    def _best(self) -> list[ir.Expr]:
        own = self.network.sorted(self.packed)
        own += [_NONE] * (self.count - len(own))
        distance = self.lanes // 2
        while distance:
            kept = [in_register("own", value) for value in own]
            others = [in_register("other", from_lane_at(value, distance)) for value in kept]
            own = self.network.merged(kept, others)
            distance //= 2
        return own

    def _unsure(self) -> ir.Expr:
        mask = tirx.const(_MASK, DTYPE)
        last = in_register("last", self.best[-1] & ~mask)
        count: ir.Expr = tirx.const(0, "int32")
        for element in self.packed:
            count = count + T.cast(element >= last, "int32")
        near = exchanged(in_register("near", count), lambda a, b: a + b, self.lanes)
        found = tirx.Or(self.odd, tirx.NE(near, self.count))
        for one, other in pairwise(self.best):
            found = tirx.Or(found, tirx.EQ(one | mask, other | mask))
        return in_register("unsure", found)


def _larger(one: ir.Expr, other: ir.Expr) -> ir.Expr:
    return in_register("rank", tirx.max(one, other))


def _ordered(one: ir.Expr, other: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
    return _larger(one, other), in_register("rank", tirx.min(one, other))
