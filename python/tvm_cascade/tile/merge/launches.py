"""Sets of static device memory, one for each launch of a kernel in flight: a launch claims one for all its blocks.

Launches in flight have different numbers (%gridid); that of a graph's node is the same in each of its runs, which do
not overlap. The word of a set is zero while nobody has it, and else

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

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tvm import ir

from tvm_cascade.tile.emit import bind, device_call, device_functions, put, registers, when

LAUNCHES = 16
"""Launches of a kernel that may be in flight at once without waiting, where memory allows."""

MOST_BYTES = 1 << 26
"""Of global memory for the states of all launches in flight."""

LEFT_BITS = 20
"""Of a set's word, for the blocks that are left: a launch has fewer than 2²⁰."""

_SETS = device_functions(Path(__file__).with_suffix(".cuh"))


class LaunchMemory:
    """Emits global memory of a kernel's module of which each of several launches in flight has a set.

    A block starts, tells its threads which set they have before their first state, and releases it at its end.

    Parameters
    ----------
    name : of the kernel.
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
        self.name, self.sets, self.claims = name, sets_for(bytes_of_set), claims

    @property
    def fields(self) -> dict[str, object]:
        """Of the texts of its functions."""
        return {"name": self.name, "sets": self.sets, "claims": self.claims, "left_bits": LEFT_BITS}

    def start(self, leads: ir.Expr) -> None:
        """One thread of the block asks for the set; its register of the answer is in the scope of all that follows."""
        self.allocate()
        with when(leads):
            self.request()

    def allocate(self) -> None:
        """The register of the answer to the block's request."""
        self.answer = registers("home_set", 1, "uint64")

    def request(self) -> None:
        """Asks for the set; called once by one thread of every block of the launch."""
        put(self.answer, 0, self._call(_SETS, "request", returned="uint64"))

    def obtain(self) -> ir.Expr:
        """The number of the set, in the thread that has asked; the same each time."""
        return self._call(_SETS, "obtain", self.answer[0], returned="int32")

    def tell(self, leads: ir.Expr, told: Any, meet: Callable[[], None], place: ir.Expr | int = 0) -> None:
        """The thread that has asked tells the number to all others of its block.

        Parameters
        ----------
        told, place : shared memory, and where in it.
        meet : waits for all of them.
        """
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
        """Calls a function of the memory."""
        return self._call(self.functions, function, *arguments, returned=returned)

    def _call(self, texts: Mapping[str, str], function: str, *arguments: Any, returned: str = "void") -> Any:
        text = texts["memory"] + texts[function]
        return device_call(f"{self.name}_{function}", text, *arguments, returned=returned, **self.fields)


def sets_for(nbytes: int) -> int:
    """Sets of so many bytes that memory is taken for."""
    return max(min(LAUNCHES, 1 << max(MOST_BYTES // nbytes, 1).bit_length() - 1), 1)
