"""The grid-level merge: states in global memory, a set of them for each of several launches in flight.

    rows      a thread leaves the whole state of a segment of a row; the last block to arrive merges all, in order
    pieces    a block's threads leave the states of all rows of a piece; once all pieces of an item have arrived, each
              of their blocks merges a share

Words come back to zero with the last of a launch's blocks, so that no launch has to clear them.

A launch claims one set for all its blocks. Launches in flight have different numbers (%gridid); that of a graph's node
is the same in each of its runs, which do not overlap. The word of a set is zero while nobody has it, and else

    blocks of the launch that have not ended · unit          unit = number · 2²¹ + 2

so that blocks of one launch recognise it however many are left, each takes one unit away at its end, and nobody has to
make it zero. The lowest bit is free for a mark (below).

request    one compare-and-swap of the launch's home set, number mod sets; its answer is needed at the first state only
obtain     the answer was zero, or the launch's own: the set is its home. Else another launch has it, and a block looks,
           under a lock, for its launch in all sets, or claims one that is free
release    one addition, at the end of the block

A block that finds its home taken must not settle elsewhere while one of the same launch that comes later, when the home
is free again, claims that. So the home is *marked* by the compare-and-swap that sees it taken: no marked word is zero,
so that all later blocks look under the lock. The mark goes with the first claim of the home after the launches that
settled elsewhere have ended. Blocks wait only where more launches are in flight than there are sets.

Neither request nor release is a fence. What a launch reads of its states has arrived in registers before its blocks
release them; what it leaves for the next, words that are zero, it stores with a fence behind; and the next one's stores
depend on the number of the set.

Parameters of the kernel would not do as memory: TVM declares them __restrict__, which lets the compiler believe that no
other block writes them. A launch that is aborted takes the context with it, and this memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tvm import ir, tirx

from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.tile.emit import bind, device_call, device_functions, put, registers, when
from tvm_cascade.tile.merge.places import BYTES, FOUR, SPAN, as_float, from_float
from tvm_cascade.tile.state import Number, PartForm, State

_WORD_BYTES = 8

LAUNCHES = 16
"""Launches of a kernel that may be in flight at once without waiting, where memory allows."""

MOST_BYTES = 1 << 26
"""Of global memory for the states of all launches in flight."""

LEFT_BITS = 20
"""Of a set's word, for the blocks that are left: a launch has fewer than 2²⁰."""

_SETS = device_functions(Path(__file__).with_name("launches.cuh"))


class LaunchMemory:
    """Emits global memory of a kernel's module of which each of several launches in flight has a set.

    A block starts, tells its threads which set they have before their first state, and releases it at its end.

    Parameters
    ----------
    bytes_of_set : of all that a launch keeps there.
    claims : of a block: threads that request and release.

    Attributes
    ----------
    sets : how many there are.
    set : the number of the launch's own, once a thread knows it.
    functions : texts of those that read and write it, after that which declares it: `memory`.
    """

    set: ir.Expr
    functions: Mapping[str, str]

    def __init__(self, name: str, bytes_of_set: int, claims: int = 1) -> None:
        most = min(LAUNCHES, 1 << max(MOST_BYTES // bytes_of_set, 1).bit_length() - 1)
        self.name, self.sets, self.claims = name, max(most, 1), claims

    @property
    def fields(self) -> dict[str, object]:
        return {"name": self.name, "sets": self.sets, "claims": self.claims, "left_bits": LEFT_BITS}

    def start(self, leads: ir.Expr) -> None:
        """One thread of the block asks for the set; its register of the answer is in the scope of all that follows."""
        self.allocate()
        with when(leads):
            self.request()

    def allocate(self) -> None:
        self.answer = registers("home_set", 1, "uint64")

    def request(self) -> None:
        """Asks for the set; called once by one thread of every block of the launch."""
        put(self.answer, 0, self._call(_SETS, "request", returned="uint64"))

    def obtain(self) -> ir.Expr:
        """The number of the set, in the thread that has asked; the same each time."""
        return self._call(_SETS, "obtain", self.answer[0], returned="int32")

    def tell(self, leads: ir.Expr, told: Any, meet: Callable[[], None], place: ir.Expr | int = 0) -> None:
        """The thread that has asked tells the number to all others of its block, which then meet."""
        with when(leads):
            put(told, place, self.obtain())
        meet()
        self.find(told, place)

    def find(self, told: Any, place: ir.Expr | int = 0) -> None:
        """Takes the number that has been told, for all that follows in the scope."""
        self.set = bind("set_of_states", told[place])

    def release(self, number: ir.Expr) -> None:
        """Gives the block's share in the set back; called once by one thread of every block, after all others' use."""
        self._call(_SETS, "release", number)

    def call(self, function: str, *arguments: Any, returned: str = "void") -> Any:
        return self._call(self.functions, function, *arguments, returned=returned)

    def _call(self, texts: Mapping[str, str], function: str, *arguments: Any, returned: str = "void") -> Any:
        text = texts["memory"] + texts[function]
        return device_call(f"{self.name}_{function}", text, *arguments, returned=returned, **self.fields)


class GridStates(LaunchMemory):
    """States of the segments of rows, split index outermost."""

    functions = device_functions(Path(__file__).with_name("rows.cuh"))

    def __init__(self, name: str, segments: int, rows: int, form: Sequence[PartForm]) -> None:
        self.segments, self.rows, self.form = segments, rows, form
        super().__init__(name, _WORD_BYTES * self._words_of_set)

    @property
    def fields(self) -> dict[str, object]:
        words, counters = self.sets * self._words_of_set, self.sets * self.rows
        return {**super().fields, "words": words, "counters": counters, "segments": self.segments}

    def put(self, state: State, segment: ir.Expr, row: ir.Expr) -> None:
        for k, part, number in state.each_register():
            self.call("put", self._index(segment, row, k, number), _word(part[number]))

    def get(self, state: State, segment: ir.Expr, row: ir.Expr) -> None:
        state.clear()
        with when(segment < self.segments):
            for k, part, number in state.each_register():
                index = self._index(segment, row, k, number)
                part.put(_value(self.call("get", index, returned="uint64"), part.dtype), number)

    def arrive(self, row: ir.Expr) -> ir.Expr:
        """Whether all other segments of the row have arrived; called by one thread, after its stores."""
        return self.call("arrive", self.set * self.rows + row, returned="int32")

    @contextmanager
    def last(
        self, row: ir.Expr, leads: ir.Expr, flag: Any, meet: Callable[[], None], ends: bool = True
    ) -> Iterator[None]:
        """What is written within is done by the last block to arrive at a row, once its threads have left their states.

        Parameters
        ----------
        leads : whether a thread is the one that arrives.
        flag : shared memory by which it tells the others.
        ends : the block has no further rows, so that it gives its share in the set back.
        """
        meet()
        with when(leads):
            put(flag, 0, self.arrive(row))
            if ends:
                with when(flag[0] == 0):
                    self.release(self.set)
        meet()
        with when(flag[0] != 0):
            yield
            if ends:
                meet()
                with when(leads):
                    self.release(self.set)

    def _index(self, segment: ir.Expr, row: ir.Expr, part: int, number: Number) -> ir.Expr:
        word = sum(form.width for form in self.form[:part]) + number
        return self.set * self._words_of_set + (segment * self.rows + row) * self._words + word

    @property
    def _words(self) -> int:
        return sum(part.width for part in self.form)

    @property
    def _words_of_set(self) -> int:
        return self.segments * self.rows * self._words


def _word(value: ir.Expr) -> ir.Expr:
    dtype = dtype_of(value)
    if dtype in ("float32", "float64"):
        value = tirx.reinterpret("uint" + dtype.removeprefix("float"), value)
    return value.astype("uint64")


def _value(word: ir.Expr, dtype: str) -> ir.Expr:
    if dtype in ("float32", "float64"):
        bits = "uint" + dtype.removeprefix("float")
        return tirx.reinterpret(dtype, word if bits == "uint64" else word.astype(bits))
    return word.astype(dtype)


# Pieces of items: a slot holds the states of all rows of a piece, part by part: a scalar's rows, or a vector's spans,
# all rows of one span next to each other. An item's pieces meet once all have *arrived*; then each merges its share.
#
# No block waits for long, so that none has to run at the same time as another: one that has waited *gives up*, and
# those that come later merge all by themselves. An item's word counts all three,
#
#     arrived   bits 0…9     departed   bits 10…19     given up   bits 20…29
#
# each by one atomic addition. A block that gives up learns from its own addition whether all had arrived before; then
# it merges its share as any other. If not, the last to arrive finds it in the word when it looks, and so may others:
# they then store the same bits. The last to depart makes the word zero for the next launch.

NOTHING, SHARE, ALL = 0, 1, 2
"""What a block merges of an item after it has waited."""

_LOOKS = 4096
"""At an item's word before a block gives up: about a millisecond, as each is a load from the L2 cache."""


class PieceStates(LaunchMemory):
    """States of the pieces of items.

    Parameters
    ----------
    slots, counters : how many there are, of pieces and of items, of each warp group that merges by itself.
    form : of each part of a row's state, in order; vectors have a width above 1, a multiple of a span.
    groups, group : how many groups there are of those, and which of them it is.
    """

    functions = device_functions(Path(__file__).with_name("pieces.cuh"))

    def __init__(
        self, name: str, slots: int, counters: int, rows: int, form: Sequence[PartForm], groups: int = 1,
        group: ir.Expr | int = 0,
    ) -> None:  # fmt: skip
        self.slots, self.counters, self.rows, self.form = slots, counters, rows, form
        self.groups, self.group = groups, group
        super().__init__(name, BYTES * self._words_of_set, claims=groups)

    @property
    def fields(self) -> dict[str, object]:
        return {
            **super().fields, "words": self._words_of_set, "counters": self.groups * self.counters,
            "looks": _LOOKS, "nothing": NOTHING, "share": SHARE, "all": ALL,
        }  # fmt: skip

    def put(self, slot: ir.Expr, part: int, row: ir.Expr, value: ir.Expr) -> None:
        self.call("put", self._index(slot, part, row), as_float(value))

    def put_four(
        self, slot: ir.Expr, part: int, row: ir.Expr, span: ir.Expr | int, lane: ir.Expr, values: Sequence[ir.Expr]
    ) -> None:
        self.call("put_four", self._index(slot, part, row, span, lane), *values)

    def get(self, slot: ir.Expr, part: int, row: ir.Expr) -> ir.Expr:
        word = self.call("get", self._index(slot, part, row), returned="float32")
        return from_float(word, self.form[part].dtype)

    def get_four(self, slot: ir.Expr, part: int, row: ir.Expr, span: ir.Expr, lane: ir.Expr, into: ir.Expr) -> None:
        """Loads what a lane has of a span of a vector part to an address of registers."""
        self.call("get_four", self._index(slot, part, row, span, lane), into)

    def arrive(self, item: ir.Expr) -> None:
        """Arrives; called by one thread, after the stores of all of its block, and a barrier of it."""
        self.call("arrive", self._met(item))

    def wait(self, item: ir.Expr, pieces: ir.Expr) -> ir.Expr:
        """Waits until all pieces have arrived; what the block then merges of the item. Called by one thread."""
        return self.call("await", self._met(item), pieces, returned="int32")

    def depart(self, item: ir.Expr, pieces: ir.Expr) -> ir.Expr:
        """Departs from an item; whether all others have. Called by one thread, once it has waited."""
        return self.call("depart", self._met(item), pieces, returned="int32")

    def clear(self, item: ir.Expr) -> None:
        self.call("clear", self._met(item))

    @property
    def _words(self) -> int:
        return -(-sum(part.width for part in self.form) * self.rows // FOUR) * FOUR

    @property
    def _words_of_set(self) -> int:
        return self.groups * self.slots * self._words

    def _met(self, item: ir.Expr) -> ir.Expr:
        return self.set * (self.groups * self.counters) + (self.group * self.counters + item)

    def _index(
        self, slot: ir.Expr, part: int, row: ir.Expr, span: ir.Expr | int | None = None, lane: ir.Expr | int = 0
    ) -> ir.Expr:
        """Vectors come first, so that they are aligned."""
        order = sorted(range(len(self.form)), key=lambda k: self.form[k].width == 1)
        before = sum(self.form[k].width for k in order[: order.index(part)]) * self.rows
        own = row if span is None else ((span * self.rows + row) * (SPAN // FOUR) + lane) * FOUR
        number = self.set * (self.groups * self.slots) + (self.group * self.slots + slot)
        return number * self._words + before + own
