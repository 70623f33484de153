"""States of pieces in global memory as the accumulators of the tensor cores have them: a thread finds its own again.

Register by register, the threads of a warp group next to each other; so loads and stores are of whole lines. The merge
is in the order of the axis, whoever arrives last: its own piece comes from its registers, all others from memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import ir, tirx

from tvm_cascade.tile.emit import bind, registers
from tvm_cascade.tile.merge.pieces import PUT, PieceStates, as_float
from tvm_cascade.tile.state import COUNTER, Number, Part, State

_GET_UNLESS = """
__device__ __forceinline__ float {name}_get_unless(int index, bool known, float value) {{
  return known ? value : __ldcg(&{name}_pieces[index]);
}}
"""


@dataclass(frozen=True)
class _Loaded(Part):
    """Registers in whose place values are read from elsewhere."""

    value: Callable[[Number], ir.Expr] | None = None

    def __getitem__(self, number: Number) -> ir.Expr:
        """The value that stands for a register's."""
        assert self.value is not None
        return self.value(number)


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
        self, slot: ir.Expr, thread: ir.Expr, is_own: ir.Expr, exists: ir.Expr, own: Sequence[State]
    ) -> list[State]:
        """The states of a thread's rows in a piece, in place of its own registers, where it can be changed.

        Parameters
        ----------
        is_own : it is in those registers.
        exists : there is such a piece; the identity stands for others.
        """
        known = bind("known", tirx.Or(is_own, tirx.Not(exists)))
        counter = Part(registers("piece_count", 1, COUNTER))
        index, count = self._index(slot, len(self.form) - 1, thread), as_float(own[0].count)
        loaded = self._call("get_unless", _GET_UNLESS, "float32", index, known, count)
        counter.put(tirx.Select(exists, tirx.reinterpret(COUNTER, loaded), 0))
        first, found = 0, []
        for state in own:
            mine = _stored([state])
            parts = [self._loaded(slot, first + k, thread, known, part) for k, part in enumerate(mine)]
            first += len(parts)
            components = dict(zip(state.components, parts, strict=False))
            references = dict(zip(state.references, parts[len(components) :], strict=True))
            found.append(State(state.fold, components, references, counter))
        return found

    def _loaded(self, slot: ir.Expr, part: int, thread: ir.Expr, known: ir.Expr, own: Part) -> Part:
        def value(number: Number) -> ir.Expr:
            index = self._index(slot, part, thread, number)
            return self._call("get_unless", _GET_UNLESS, "float32", index, known, own[number])

        return _Loaded(own.array, own.width, own.place, value)

    def _index(self, slot: ir.Expr, part: int, row: ir.Expr, column: Number = 0) -> ir.Expr:
        before = sum(form.width for form in self.form[:part])
        assert self.launch is not None
        return (self.launch * self.slots + slot) * self.words + (before + column) * self.rows + row


def _stored(states: Sequence[State]) -> list[Part]:
    """All parts but the counters."""
    return [part for state in states for part in (*state.components.values(), *state.references.values())]
