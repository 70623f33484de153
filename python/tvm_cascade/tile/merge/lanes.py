"""The warp level: lanes exchange values by shuffles, in a butterfly, so that all get the same bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.domain import dtype_of
from tvm_cascade.tile.hopper.script import bind, held
from tvm_cascade.tile.merge.combine import Binary, Tuple

_ALL_LANES = 0xFFFFFFFF
WARP = 32
"""Lanes of a warp."""

_SHUFFLED = ("float32", "float64", "int32", "uint32", "int64", "uint64")


@dataclass(frozen=True)
class Lanes:
    """Neighbouring lanes of a warp.

    Attributes
    ----------
    lane : the thread's own.
    width : how many exchange values: a power of two.
    """

    lane: ir.Expr
    width: int = WARP

    @property
    def _distances(self) -> list[int]:
        return [1 << k for k in reversed(range(self.width.bit_length() - 1))]

    def whole(self, value: ir.Expr, combine: Binary) -> ir.Expr:
        """⊕ of the lanes' values."""
        for distance in self._distances:
            own = bind("own", value)
            other = bind("other", _from(own, distance))  # by itself: what decides a disjunction is not asked further
            value = combine(own, other)
        return value

    def whole_tuple(self, values: Tuple, combine: Callable[[Tuple, Tuple], Tuple]) -> Tuple:
        """∘ of the lanes' tuples, in the order of the lanes."""
        for distance in self._distances:
            own = {symbol: held("own", value) for symbol, value in values.items()}
            other = {symbol: held("other", _from(value, distance)) for symbol, value in own.items()}
            upper = tirx.NE(tirx.bitwise_and(self.lane, tirx.const(distance, "int32")), tirx.const(0, "int32"))
            lower = {s: held("lower", tirx.Select(upper, other[s], own[s])) for s in own}
            higher = {s: held("higher", tirx.Select(upper, own[s], other[s])) for s in own}
            values = combine(lower, higher)
        return values


def _from(value: ir.Expr, distance: int) -> ir.Expr:
    """The value of the lane at a distance."""
    dtype = dtype_of(value)
    wide = value if dtype in _SHUFFLED else value.astype("int32")
    found = T.tvm_warp_shuffle_xor(T.uint32(_ALL_LANES), wide, distance, 32, 32)
    return found if dtype in _SHUFFLED else found.astype(dtype)
