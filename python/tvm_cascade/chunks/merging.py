"""The functions that merge states: into one state, or into the results of the whole axis.

Both are the fold's own merge (`transform.merge`) over states that the caller stacked along a first axis.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import ir, tirx

from tvm_cascade.analysis.extent import Extent
from tvm_cascade.chunks.state import COUNTS, State
from tvm_cascade.transform.finish import FinishEmitter
from tvm_cascade.transform.merge import MergeEmitter
from tvm_cascade.transform.nest import Iter, NestBuilder, Values, load, store
from tvm_cascade.transform.scope import Slot, Slots
from tvm_cascade.transform.tiling import SEGMENT, Tiling

_UNIT = tirx.Var("unit", "int32")
"""What indexes the one dimension, of extent 1, of a state that no row has: no block runs over it."""


@dataclass(frozen=True)
class Chunks(Tiling):
    """The chunks of an axis as its segments.

    Attributes
    ----------
    counts : the number of positions of each, where merging needs it.
    together : positions of all of them; None for the whole axis.
    """

    counts: tirx.Var | None = None
    together: Extent | None = None

    @property
    def segmented(self) -> bool:
        """States are indexed by their chunk, also where there is one."""
        return True

    def segment_count(self, at: Values) -> ir.Expr:
        """Positions of a chunk."""
        return tirx.const(0, COUNTS) if self.counts is None else load(self.counts, [at[SEGMENT]])

    def segment_is_empty(self, at: Values) -> ir.Expr | bool:
        """Whether a chunk has no position; where nobody counts, a move does not matter to an empty state."""
        return False if self.counts is None else tirx.LE(self.segment_count(at), 0)

    @property
    def folded(self) -> Extent:
        """Positions of all chunks together."""
        return self.length if self.together is None else self.together


class MergingEmitter:
    """Emits the merge of the states of some chunks.

    Attributes
    ----------
    stacked : the states, one chunk after another, in the order of `State.leaving`.
    counts : the number of positions of each chunk, where the state is counted.
    """

    def __init__(self, state: State, chunks: Extent, length: Extent, nests: NestBuilder) -> None:
        self.state, self.chunks, self.length, self.nests = state, chunks, length, nests
        self.stacked = [one.buffer(state.group, nests.dtype, f"{one.name}s", leading=[chunks]) for one in state.leaving]
        shape = [tirx.const(chunks, nests.dtype) if isinstance(chunks, int) else chunks]
        self.counts = tirx.decl_buffer(shape, COUNTS, name="counts", layout=None) if state.counted else None

    @property
    def inputs(self) -> list[tirx.Var]:
        """What the caller passes of states."""
        return [*self.stacked, *([] if self.counts is None else [self.counts])]

    def slots(self, together: Extent | None = None) -> Slots:
        """The states as the segments of an axis."""
        tiling = Chunks((), self.length, 1, self.chunks, 1, 1, self.counts, together)
        slots = Slots(self.state.group, tiling, self.state.dims, self.nests.dtype)
        for one, buffer in zip(self.state.leaving, self.stacked, strict=True):
            slots.table[one.symbol] = Slot(buffer, one.dims or (_UNIT,))
        for reference, component in self.state.standing_at.items():
            slots.table[reference] = slots.table[component]
        for move in self.state.program.moves:
            slots.table[move.moved] = slots.table[move.reference]
        return slots

    def finished(self, asked: set[object]) -> tuple[list[tirx.Stmt], list[tirx.Var], list[tirx.Var]]:
        """The nests of results, the buffers that they bring along, and the results' own."""
        slots = self.slots()
        statements = MergeEmitter(slots, self.nests, self.state.program).run()
        finish = FinishEmitter(slots, self.nests, asked)
        statements += finish.run()
        return statements, slots.buffers, finish.written

    def combined(self) -> tuple[list[tirx.Stmt], list[tirx.Var], list[tirx.Var]]:
        """The nests of one state, the buffers that they bring along, and those that they leave."""
        total = tirx.decl_buffer([1], COUNTS, name="count", layout=None) if self.counts is not None else None
        slots = self.slots(None if total is None else load(total, [tirx.const(0, self.nests.dtype)]))
        left = [one.buffer(self.state.group, self.nests.dtype, one.name) for one in self.state.leaving]
        for one, buffer in zip(self.state.leaving, left, strict=True):
            slots.homes[one.symbol] = Slot(buffer, one.dims, per_segment=False)
        statements = [] if total is None else [self._counted(total)]
        statements += MergeEmitter(slots, self.nests, self.state.program).run()
        return statements, slots.buffers, [*left, *([] if total is None else [total])]

    def _counted(self, total: tirx.Var) -> tirx.Stmt:
        """The positions of all chunks."""
        where, counts = [tirx.const(0, self.nests.dtype)], self.counts
        assert counts is not None

        def body(at: Values) -> list[tirx.Stmt]:
            return [store(total, load(total, where) + load(counts, [at[SEGMENT]]), where)]

        def init(_at: Values) -> list[tirx.Stmt]:
            return [store(total, tirx.const(0, COUNTS), where)]

        return self.nests.nest("count", "", [Iter(SEGMENT, "chunk", self.chunks, reduce=True)], body, init)
