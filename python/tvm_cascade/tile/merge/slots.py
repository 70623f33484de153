"""Storage for states, in shared memory or registers: one slot a state, component by component."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import ir

from tvm_cascade.tile.emit import named, put
from tvm_cascade.tile.state import Number, PartForm, State


class Slots:
    """Slots for states of one form. Register `number` of a part in a slot is element number · count + slot.

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
        for array, part in zip(self.arrays, state.parts, strict=True):
            with part.each() as number:
                put(array, self.place(part.form, slot, number), part[number])

    def take(self, state: State, slot: Number) -> None:
        """Loads a state from a slot."""
        for array, part in zip(self.arrays, state.parts, strict=True):
            with part.each() as number:
                part.put(array[self.place(part.form, slot, number)], number)

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
