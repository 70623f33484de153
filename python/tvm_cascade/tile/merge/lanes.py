"""The warp-level merge: a butterfly of shuffles, after which all lanes have the same bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.tile.emit import bind, in_register
from tvm_cascade.tile.merge.combine import Binary, Parts

ALL_LANES = 0xFFFFFFFF
"""Those that take part in a vote or a shuffle."""

WARP = 32
"""Lanes of a warp."""

_SHUFFLED = ("float32", "float64", "int32", "uint32", "int64", "uint64")


def from_lane(lane: ir.Expr | int, value: ir.Expr) -> ir.Expr:
    """The value of another lane of the warp; called by all of them."""
    return T.tvm_warp_shuffle(T.uint32(ALL_LANES), value, lane, WARP, WARP)


@dataclass(frozen=True)
class Lanes:
    """Lanes of a warp, neighbours or a stride apart.

    Attributes
    ----------
    width : how many exchange values: a power of two.
    stride : between one and the next: a power of two.
    """

    lane: ir.Expr
    width: int = WARP
    stride: int = 1

    def all_reduce(self, value: ir.Expr, combine: Binary) -> ir.Expr:
        return exchanged(value, combine, self.width, self.stride)

    def all_reduce_tuple(self, values: Parts, combine: Callable[[Parts, Parts], Parts], ordered: bool = True) -> Parts:
        """∘ of the lanes' tuples, in the order of the lanes."""
        for distance in _distances(self.width, self.stride):
            own = {symbol: in_register("own", value) for symbol, value in values.items()}
            other = {symbol: in_register("other", from_lane_at(value, distance)) for symbol, value in own.items()}
            if not ordered:
                values = combine(own, other)
                continue
            upper = tirx.NE(tirx.bitwise_and(self.lane, tirx.const(distance, "int32")), tirx.const(0, "int32"))
            lower = {s: in_register("lower", tirx.Select(upper, other[s], own[s])) for s in own}
            higher = {s: in_register("higher", tirx.Select(upper, own[s], other[s])) for s in own}
            values = combine(lower, higher)
        return values


def exchanged(value: ir.Expr, combine: Binary, width: int, stride: int = 1) -> ir.Expr:
    """⊕ of the values of so many lanes, a power of two, that are a stride apart."""
    for distance in _distances(width, stride):
        own = bind("own", value)
        other = bind("other", from_lane_at(own, distance))  # by itself: what decides a disjunction is not asked further
        value = combine(own, other)
    return value


def in_no_lane(condition: ir.Expr) -> ir.Expr:
    """Whether a condition holds in no lane of the warp; ptxas knows it to be uniform."""
    return T.cuda.any_sync(T.uint32(ALL_LANES), T.cast(condition, "int32")) == 0


def _distances(width: int, stride: int) -> list[int]:
    return [stride << k for k in reversed(range(width.bit_length() - 1))]


def from_lane_at(value: ir.Expr, distance: int) -> ir.Expr:
    dtype = dtype_of(value)
    wide = value if dtype in _SHUFFLED else value.astype("int32")
    found = T.tvm_warp_shuffle_xor(T.uint32(ALL_LANES), wide, distance, 32, 32)
    return found if dtype in _SHUFFLED else found.astype(dtype)
