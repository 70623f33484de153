"""Where states are kept beside the registers they are folded in: one place a state, component by component.

Scalars go one by one. Vectors that are fragments of accumulators go in *spans* of sixteen elements, of which four lanes
have four neighbours each; those are stored and loaded at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    form : of the states.
    count : how many slots there are.
    allocate : (elements, dtype) -> an array for one part.
    """

    def __init__(self, form: Sequence[PartForm], count: int, allocate: Callable[[int, str], Any]) -> None:
        self.count, self.form = count, form
        self.arrays = [allocate(part.width * count, part.dtype) for part in form]

    def leave(self, state: State, slot: Number) -> None:
        """Stores a state in a slot."""
        for k, part, number in state.each_register():
            put(self.arrays[k], self.place(part.form, slot, number), part[number])

    def take(self, state: State, slot: Number) -> None:
        """Loads a state from a slot."""
        for k, part, number in state.each_register():
            part.put(self.arrays[k][self.place(part.form, slot, number)], number)

    def fill(self, slot: Number, other: Slots, its: Number) -> None:
        """Copies a state from another array's slot."""
        for mine, theirs, part in zip(self.arrays, other.arrays, self.form, strict=True):
            with part.each() as number:
                put(mine, self.place(part, slot, number), theirs[other.place(part, its, number)])

    def place(self, part: PartForm, slot: Number, number: Number) -> ir.Expr | int:
        """The array index of a register of a part."""
        return slot if part.width == 1 else number * self.count + slot


def shared_slots(name: str, pool: Any, form: Sequence[PartForm], count: int) -> Slots:
    """Slots in a block's shared memory."""
    return Slots(form, count, lambda elements, dtype: named(name, pool.alloc((elements,), dtype, align=8)))


def take_four(own: ir.Expr, into: ir.Expr) -> None:
    """Loads four float32 that are neighbours in the block's own memory to an address of registers."""
    device_call("take_four", _TAKE_FOUR, own, into)


def as_float(value: ir.Expr) -> ir.Expr:
    """The bits of a value of 32 bits, as memory of float32 keeps them."""
    return value if str(value.ty.dtype) == "float32" else tirx.reinterpret("float32", value)


def from_float(word: ir.Expr, dtype: str) -> ir.Expr:
    """The value of 32 bits whose bits those are."""
    return word if dtype == "float32" else tirx.reinterpret(dtype, word)
