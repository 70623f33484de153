"""The merge of states: into one state, or into the results of the whole axis.

Both are the fold's own merge (`transform.merge`), with chunks for segments.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.analysis.extent import Extent
from tvm_cascade.chunks.sources import Source
from tvm_cascade.chunks.state import COUNTS
from tvm_cascade.transform.finish import FinishEmitter
from tvm_cascade.transform.merge import MergeEmitter
from tvm_cascade.transform.nest import Iter, NestBuilder, Values, load, store
from tvm_cascade.transform.scope import Slot, Slots
from tvm_cascade.transform.tiling import SEGMENT, Tiling


@dataclass(frozen=True)
class Emitted:
    """Nests, the buffers that they bring along, and those that they are emitted for."""

    statements: list[tirx.Stmt]
    allocated: list[tirx.Var]
    left: list[tirx.Var]


def finished(source: Source, length: Extent, nests: NestBuilder, asked: set[sp.Symbol]) -> Emitted:
    """The nests of the results that are asked for, of all chunks of an axis."""
    slots = _slots(source, length, nests)
    statements = MergeEmitter(slots, nests, source.state.program).run()
    finish = FinishEmitter(slots, nests, asked)
    statements += finish.run()
    return Emitted(statements, slots.buffers, finish.written)


def combined(source: Source, length: Extent, nests: NestBuilder) -> Emitted:
    """The nests of one state, and of the number of its positions where the state is counted."""
    state = source.state
    total = tirx.decl_buffer([1], COUNTS, name="count", layout=None) if state.counted else None
    together = None if total is None else load(total, [tirx.const(0, nests.dtype)])
    slots = _slots(source, length, nests, together)
    left = [one.buffer(state.group, nests.dtype, one.name) for one in state.leaving]
    for one, buffer in zip(state.leaving, left, strict=True):
        slots.homes[one.symbol] = Slot(buffer, one.dims, per_segment=False)
    statements = [] if total is None else [_counted(source, total, nests)]
    statements += MergeEmitter(slots, nests, state.program).run()
    return Emitted(statements, slots.buffers, [*left, *([] if total is None else [total])])


@dataclass(frozen=True)
class _Chunks(Tiling):
    """The chunks of an axis as its segments.

    Attributes
    ----------
    source : of their states.
    together : positions of all of them; None for the whole axis.
    """

    source: Source | None = None
    together: Extent | None = None

    @property
    def segmented(self) -> bool:
        """States are indexed by their chunk, also where there is one."""
        return True

    def _count(self, at: Values) -> ir.Expr | None:
        return None if self.source is None else self.source.count(at[SEGMENT])

    def segment_count(self, at: Values) -> ir.Expr:
        """Positions of a chunk."""
        count = self._count(at)
        return tirx.const(0, COUNTS) if count is None else count

    def segment_is_empty(self, at: Values) -> ir.Expr | bool:
        """Whether a chunk has no position; where nobody counts, a move does not matter to an empty state."""
        count = self._count(at)
        return False if count is None else tirx.LE(count, 0)

    @property
    def none(self) -> None:
        """Of no positions at all, the states of no chunk are merged: that of an empty one has a finish."""
        return None

    @property
    def unrolls_segments(self) -> bool:
        """Whether a merge is written out, chunk by chunk: a map of states, which a kernel's epilogue may be."""
        return self.source is not None and self.source.is_written_out

    @property
    def folded(self) -> Extent:
        """Positions of all chunks together."""
        return self.length if self.together is None else self.together


def _slots(source: Source, length: Extent, nests: NestBuilder, together: Extent | None = None) -> Slots:
    return source.slots(_Chunks((), length, 1, source.chunks, 1, 1, source, together), nests.dtype)


def _counted(source: Source, total: tirx.Var, nests: NestBuilder) -> tirx.Stmt:
    """The positions of all chunks."""
    where = [tirx.const(0, nests.dtype)]

    def body(at: Values) -> list[tirx.Stmt]:
        count = source.count(at[SEGMENT])
        assert count is not None
        return [store(total, load(total, where) + count, where)]

    def init(_at: Values) -> list[tirx.Stmt]:
        return [store(total, tirx.const(0, COUNTS), where)]

    return nests.nest("count", "", [Iter(SEGMENT, "chunk", source.chunks, reduce=True)], body, init)
