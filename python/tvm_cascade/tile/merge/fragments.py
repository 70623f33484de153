"""States of pieces in global memory as the accumulators of the tensor cores have them: a thread finds its own again.

Register by register, the threads of a warp group next to each other; so loads and stores are of whole lines. The merge
is in the order of the axis, whoever arrives last: its own piece comes from its registers, all others from memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tvm import ir

from tvm_cascade.tile.merge.pieces import PUT, PieceStates
from tvm_cascade.tile.state import Number, Part, State

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

    Counts of positions are not among it; who merges knows them.
    """

    def leave(self, slot: ir.Expr, thread: ir.Expr, states: Sequence[State]) -> None:
        """A thread stores the states of its rows."""
        for k, part in enumerate(_stored(states)):
            with part.each() as number:
                self._call("put", PUT, "void", self._index(slot, k, thread, number), part[number])

    def take(
        self, slot: ir.Expr, thread: ir.Expr, known: ir.Expr, own: Sequence[State], counter: Part
    ) -> Iterator[State]:
        """The states of a thread's rows in a piece, in place of its own registers.

        Parameters
        ----------
        known : the piece is the thread's own, or has no positions: nothing is loaded.
        counter : of the piece's positions.
        """
        first = 0
        for state in own:
            mine = _stored([state])
            parts = [self._loaded(slot, first + k, thread, known, part) for k, part in enumerate(mine)]
            first += len(parts)
            components = dict(zip(state.components, parts, strict=False))
            references = dict(zip(state.references, parts[len(components) :], strict=True))
            yield State(state.fold, components, references, counter)

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
