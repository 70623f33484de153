"""States of pieces in global memory as the accumulators of the tensor cores have them: a thread finds its own again.

Register by register, the threads of a warp group next to each other; so loads and stores are of whole lines. The merge
is in the order of the axis, whoever arrives last: its own piece comes from its registers, all others from memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir, tirx

from tvm_cascade.tile.emit import bind, put, registers
from tvm_cascade.tile.merge.pieces import PUT, PieceStates, as_float
from tvm_cascade.tile.state import COUNTER, Number, Part, State

_GET_UNLESS = """
__device__ __forceinline__ float {name}_get_unless(int index, bool known, float value) {{
  const float* address = &{name}_pieces[index];
  int absent = !known;  // a predicate, as a branch would have each load wait for the one before
  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %2, 0; @p ld.global.cg.f32 %0, [%1]; }}"
               : "+f"(value) : "l"(address), "r"(absent));
  return value;
}}
"""


_SPARE, _PER_PIECE = 208, 8
"""Registers of a thread that merging may use, and those that a piece's scalars take of them."""


def batch_of(pieces: int, own: int) -> int:
    """Registers of each piece that are loaded together, beside as many that are combined.

    Parameters
    ----------
    own : registers of the thread's own state.
    """
    batch = (_SPARE - own - _PER_PIECE * pieces) // (2 * pieces)
    return 1 << max(batch, 1).bit_length() - 1


@dataclass(frozen=True)
class _Loaded(Part):
    """Registers in whose place values are read from elsewhere, some at a time.

    Attributes
    ----------
    value : the number of a register -> what stands for it.
    ready : of those that were read last, and of those before, which are still in use.
    """

    value: Callable[[Number], ir.Expr] | None = None
    ready: Any = None

    def __getitem__(self, number: Number) -> ir.Expr:
        """The value that stands for a register's."""
        assert self.value is not None
        return self.value(number) if self.ready is None else self.ready[number % int(self.ready.ty.shape[0])]

    def fetch(self, first: int, count: int) -> None:
        """Loads what stands for registers [first, first + count)."""
        assert self.value is not None
        for number in range(count):
            put(self.ready, (first + number) % int(self.ready.ty.shape[0]), self.value(first + number))


@dataclass
class FragmentStates(PieceStates):
    """As `PieceStates`, with a thread in place of a row: `form` is of all rows that it has, one after the other.

    The count of positions, which they have in common, is its last part.
    """

    def leave(self, slot: ir.Expr, thread: ir.Expr, states: Sequence[State]) -> None:
        """A thread stores the states of its rows."""
        for k, part in enumerate(_stored(states)):
            with part.each() as number:
                self._call("put", PUT, "void", self._index(slot, k, thread, number), part[number])
        count = as_float(states[0].count)
        self._call("put", PUT, "void", self._index(slot, len(self.form) - 1, thread), count)

    def take(
        self, slot: ir.Expr, thread: ir.Expr, is_own: ir.Expr, exists: ir.Expr, own: Sequence[State], batch: int
    ) -> list[State]:
        """The states of a thread's rows in a piece, in place of its own registers, where it can be changed.

        Parameters
        ----------
        is_own : it is in those registers.
        exists : there is such a piece; the identity stands for others.
        batch : see `merge`.
        """
        known = bind("known", tirx.Or(is_own, tirx.Not(exists)))
        counter = Part(registers("piece_count", 1, COUNTER))
        index, count = self._index(slot, len(self.form) - 1, thread), as_float(own[0].count)
        loaded = self._call("get_unless", _GET_UNLESS, "float32", index, known, count)
        counter.put(tirx.Select(exists, tirx.reinterpret(COUNTER, loaded), 0))
        first, found = 0, []
        for state in own:
            mine = _stored([state])
            parts = [self._loaded(slot, first + k, thread, known, part, batch) for k, part in enumerate(mine)]
            first += len(parts)
            components = dict(zip(state.components, parts, strict=False))
            references = dict(zip(state.references, parts[len(components) :], strict=True))
            found.append(State(state.fold, components, references, counter))
        return found

    def _loaded(self, slot: ir.Expr, part: int, thread: ir.Expr, known: ir.Expr, own: Part, batch: int) -> Part:
        def value(number: Number) -> ir.Expr:
            index = self._index(slot, part, thread, number)
            return self._call("get_unless", _GET_UNLESS, "float32", index, known, own[number])

        ready = registers("loaded", min(2 * batch, own.width)) if own.width > 1 else None
        return _Loaded(own.array, own.width, own.place, value, ready)

    def _index(self, slot: ir.Expr, part: int, row: ir.Expr, column: Number = 0) -> ir.Expr:
        before = sum(form.width for form in self.form[:part])
        assert self.launch is not None
        return (self.launch * self.slots + slot) * self.words + (before + column) * self.rows + row


def _stored(states: Sequence[State]) -> list[Part]:
    """All parts but the counters."""
    return [part for state in states for part in (*state.components.values(), *state.references.values())]
