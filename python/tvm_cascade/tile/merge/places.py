"""Where states are kept beside the registers they are folded in: one place a state, component by component.

Scalars go one by one. Vectors that are fragments of accumulators go in *spans* of sixteen elements, of which four lanes
have four neighbours each; those are stored and loaded at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir, tirx

from tvm_cascade.tile.emit import device_call, named, put
from tvm_cascade.tile.state import Number, PartForm, State

FOUR = 4
"""Elements of a vector that a thread writes or reads at once."""

BYTES = 4
"""Of an element."""

SPAN = 16
"""Elements of a vector that four lanes have, four neighbours each."""

_TAKE_FOUR = """
__device__ __forceinline__ void take_four(const void* from, float* into) {
  __align__(16) float four[4];
  *reinterpret_cast<float4*>(four) = *reinterpret_cast<const float4*>(from);
  into[0] = four[0], into[1] = four[1], into[2] = four[2], into[3] = four[3];
}
"""


class Slots:
    """Slots for states of one form, in shared memory or registers.

    Register `number` of a part in a slot is element number · count + slot.

    Parameters
    ----------
    allocate : (elements, dtype) -> an array for one part.
    """

    def __init__(self, form: Sequence[PartForm], count: int, allocate: Callable[[int, str], Any]) -> None:
        self.count, self.form = count, form
        self.arrays = [allocate(part.width * count, part.dtype) for part in form]

    def leave(self, state: State, slot: Number) -> None:
        for k, part, number in state.each_register():
            put(self.arrays[k], self.place(part.form, slot, number), part[number])

    def take(self, state: State, slot: Number) -> None:
        for k, part, number in state.each_register():
            part.put(self.arrays[k][self.place(part.form, slot, number)], number)

    def fill(self, slot: Number, other: Slots, its: Number) -> None:
        for mine, theirs, part in zip(self.arrays, other.arrays, self.form, strict=True):
            with part.each() as number:
                put(mine, self.place(part, slot, number), theirs[other.place(part, its, number)])

    def place(self, part: PartForm, slot: Number, number: Number) -> ir.Expr | int:
        return slot if part.width == 1 else number * self.count + slot


def shared_slots(name: str, pool: Any, form: Sequence[PartForm], count: int) -> Slots:
    return Slots(form, count, lambda elements, dtype: named(name, pool.alloc((elements,), dtype, align=8)))


def take_four(own: ir.Expr, into: ir.Expr) -> None:
    """Loads four float32 that are neighbours in the block's own memory to an address of registers."""
    device_call("take_four", _TAKE_FOUR, own, into)


def as_float(value: ir.Expr) -> ir.Expr:
    """The bits of a value of 32 bits, as memory of float32 keeps them."""
    return value if str(value.ty.dtype) == "float32" else tirx.reinterpret("float32", value)


def from_float(word: ir.Expr, dtype: str) -> ir.Expr:
    return word if dtype == "float32" else tirx.reinterpret(dtype, word)


# What each block of a cluster merges of a tile of rows: patches of eight rows and a span of columns.
#
# A patch is what a warp has of a span in one register of every lane times four: it leaves or takes one by a store or
# load of 512 neighbouring bytes, to or from one block. Blocks have patches in turn, all rows of a span first; where
# there are as many groups of eight rows as blocks, or a multiple, a block so has all spans of the rows that it has
# any of.


OCTET = 8
"""Rows of a patch."""


@dataclass(frozen=True)
class Patches:
    """The patches of a tile."""

    rows: int
    blocks: int

    @property
    def octets(self) -> int:
        return -(-self.rows // OCTET)

    @property
    def stride(self) -> int:
        """The block of a rank has patches of rows whose group has the same remainder by this, and of no others."""
        return math.gcd(self.octets, self.blocks)

    def most(self, width: int) -> int:
        """Patches of a vector that a block has at most."""
        return -(-self.octets * -(-width // SPAN) // self.blocks)

    def count(self, spans: int, rank: ir.Expr) -> ir.Expr:
        return (self.octets * spans - rank + (self.blocks - 1)) // self.blocks

    def number(self, row: ir.Expr, span: ir.Expr | int) -> ir.Expr:
        """The number of a patch, which the block whose rank is its remainder by the blocks has."""
        return span * self.octets + row // OCTET

    def words(self, widths: list[int], scalars: int) -> int:
        """Words of 4 bytes for what a block gets from all: of vectors, and of scalars of each row."""
        vectors = sum(self.most(width) for width in widths) * OCTET * SPAN
        return self.blocks * (vectors + self.octets * OCTET * whole_fours(scalars))


def whole_fours(count: int) -> int:
    return -(-count // FOUR) * FOUR
