"""Assembles the functions of a split from nests of chunks and of merges."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.statements import buffers_read
from tvm_cascade.analysis.tir import Extent
from tvm_cascade.chunks.cut import Chunk, Cut, cut
from tvm_cascade.chunks.partial import PartialEmitter
from tvm_cascade.chunks.sources import Apart, Source, Stacked
from tvm_cascade.chunks.state import COUNTS, SingleFold, State
from tvm_cascade.steps.program import Move, Reduce, Tuple
from tvm_cascade.transform.assemble import Piece, at, build, in_dependency_order, index_dtype, live_stages, stage_piece
from tvm_cascade.transform.finish import FinishEmitter
from tvm_cascade.transform.guard import GuardEmitter
from tvm_cascade.transform.merge import MergeEmitter
from tvm_cascade.transform.nest import Iter, NestBuilder, Values, load
from tvm_cascade.transform.planning import Guarding
from tvm_cascade.transform.scope import Slot, Slots
from tvm_cascade.transform.tiling import SEGMENT, Tiling


def cut_into(
    fold: SingleFold, state: State, chunks: Sequence[Chunk], numbered: bool = False, cuts_inputs: bool = True
) -> list[Cut]:
    """The chunks of a fold.

    Parameters
    ----------
    numbered : what is cut has the number of its chunk after its name.
    cuts_inputs : see `cut`.
    """
    read, dtype = _read(state), index_dtype(fold.program)
    suffixes = [f"_{k}" if numbered else "" for k in range(len(chunks))]
    pairs = zip(chunks, suffixes, strict=True)
    return [cut(fold.program, fold.group, read, chunk, dtype, suffix, cuts_inputs) for chunk, suffix in pairs]


def _read(state: State) -> set[sp.Symbol]:
    """Symbols that lifts, and values of references, read."""
    expressions: list[sp.Expr] = []
    for step in state.program.steps:
        if isinstance(step, Tuple):
            expressions += step.lifts
        elif isinstance(step, (Reduce, Move)):
            expressions.append(step.lift if isinstance(step, Reduce) else step.value)
    return {symbol for expression in expressions for symbol in expression.free_symbols}


def partial_functions(fold: SingleFold, state: State, parts: Sequence[Cut]) -> tuple[tirx.PrimFunc, ...]:
    """A function for each chunk, from inputs to state; chunks that differ in nothing that is read have the same."""
    made: dict[object, tirx.PrimFunc] = {}
    found = []
    for k, part in enumerate(parts):
        same = (part.chunk.length, part.chunk.shared, k if part.reads_positions else None)
        if same not in made:
            name = f"partial_{k}" if len(parts) > 1 else "partial"
            emitter = _of_chunk(fold, state, part, NestBuilder(part.index_dtype, annotated=False))
            statements = emitter.run()
            inputs = _inputs(fold, part, statements)
            made[same] = build(fold.program, name, statements, inputs, emitter.buffers, emitter.allocated)
        found.append(made[same])
    return tuple(found)


def _of_chunk(fold: SingleFold, state: State, part: Cut, nests: NestBuilder, suffix: str = "") -> PartialEmitter:
    group, leaving = part.of_group(), [one.along(tuple(part.chunk.pieces)) for one in state.leaving]
    left = [one.buffer(group, part.index_dtype, suffix) for one in leaving]
    return PartialEmitter(part, state, left, fold.group.frame.length, nests)


def _inputs(fold: SingleFold, part: Cut, statements: Sequence[tirx.Stmt]) -> list[tirx.Var]:
    """The parameters that nests of a chunk read, or what stands for them there, in order."""
    loaded = buffers_read(statements)
    return [b for b in (part.replaced.get(param, param) for param in fold.program.params) if among(b, loaded)]


def combine_function(fold: SingleFold, stacked: Stacked) -> tirx.PrimFunc:
    """From the states of some chunks to one state."""
    merge = combined(stacked, fold.group.frame.length, _nests(fold))
    read = buffers_read(merge.statements)
    further = [param for param in fold.program.params if among(param, read)]
    return build(fold.program, "combine", merge.statements, [*stacked.inputs, *further], merge.left, merge.allocated)


def merge_function(fold: SingleFold, stacked: Stacked) -> tirx.PrimFunc:
    """From the states of all chunks to results."""
    statements, inputs, outputs, brought = _after(fold, stacked, _nests(fold))
    return build(fold.program, "merge", statements, [*stacked.inputs, *inputs], outputs, brought)


def joined_function(
    fold: SingleFold, state: State, parts: Sequence[Cut], params: Sequence[tirx.Var] | None = None
) -> tirx.PrimFunc:
    """The states of all chunks, each in temporaries of its own, and their merge.

    Parameters
    ----------
    params : of the function; those that it uses by default.
    """
    nests, statements = _nests(fold), list[tirx.Stmt]()
    emitters = [_of_chunk(fold, state, part, nests, f"_{k}") for k, part in enumerate(parts)]
    inputs: list[tirx.Var] = []
    for emitter in emitters:
        own = emitter.run()
        inputs += [b for b in _inputs(fold, emitter.part, own) if not among(b, inputs)]
        statements += own
    source = Apart(state, [segment for emitter in emitters for segment in emitter.segments])
    after, read, outputs, brought = _after(fold, source, nests)
    inputs += [b for b in read if not among(b, inputs)]
    own = [b for emitter in emitters for b in (*emitter.allocated, *emitter.buffers)]
    given, outputs = (inputs, outputs) if params is None else (list(params), [])
    return build(fold.program, "joined", [*statements, *after], given, outputs, [*own, *brought])


def _after(
    fold: SingleFold, source: Source, nests: NestBuilder
) -> tuple[list[tirx.Stmt], list[tirx.Var], list[tirx.Var], list[tirx.Var]]:
    """What comes after the states: nests, parameters of the program that they read and write, and temporaries.

    The merge stands for the reductions, and what follows these stays.
    """
    program = fold.program
    merge = finished(source, fold.group.frame.length, nests, fold.guarding)
    stages = live_stages(program, [fold.group], [buffers_read(merge.statements)])
    whole = [stage for stage in stages if stage is program.together(stage)[0]]
    pieces = [stage_piece(program, stage, [], program.position(stage)) for stage in whole]
    results = [member.stage for member in fold.group.members]
    order = min(map(program.position, results))
    writes = at([stage.buffer for stage in results], order)
    pieces.append(Piece(tuple(merge.statements), (), writes, (*merge.allocated, *merge.left), order))
    ordered = in_dependency_order(pieces)
    statements = [statement for piece in ordered for statement in piece.statements]
    read, stored = buffers_read(statements), [b for piece in ordered for b, _ in piece.writes]
    outputs = [*(param for param in program.params if among(param, stored)), *merge.flags]
    inputs = [param for param in program.params if among(param, read) and not among(param, outputs)]
    return statements, inputs, outputs, [buffer for piece in ordered for buffer in piece.allocates]


def _nests(fold: SingleFold) -> NestBuilder:
    replaced = [member.stage.name for member in fold.group.members]
    kept = {stage.name for stage in fold.program.stages if stage.name not in replaced}
    return NestBuilder(index_dtype(fold.program), kept, annotated=False)


# The merge of states: into one state, or into the results of the whole axis.
#
# Both are the fold's own merge (`transform.merge`), with chunks for segments.


@dataclass(frozen=True)
class Emitted:
    """Nests, the buffers that they bring along, those that they are emitted for, and those that guards decide by."""

    statements: list[tirx.Stmt]
    allocated: list[tirx.Var]
    left: list[tirx.Var]
    flags: Sequence[tirx.Var] = ()


def finished(source: Source, length: Extent, nests: NestBuilder, guarded: Guarding) -> Emitted:
    """The nests of the results that are asked for, of all chunks of an axis, and of what tells where they failed."""
    slots = _slots(source, length, nests)
    statements = MergeEmitter(slots, nests, source.state.program).run()
    finish = FinishEmitter(slots, nests, set(guarded.asked))
    statements += finish.run()
    flags = GuardEmitter(slots, nests, guarded).told()
    statements += [nest for _, nest in flags]
    return Emitted(statements, slots.buffers, finish.written, [flag for flag, _ in flags])


def combined(source: Source, length: Extent, nests: NestBuilder) -> Emitted:
    """The nests of one state, and of the number of its positions where the state is counted."""
    state = source.state
    total = tirx.decl_buffer([1], COUNTS, name="count", layout=None) if state.counted else None
    together = None if total is None else load(total, [tirx.const(0, nests.dtype)])
    slots = _slots(source, length, nests, together)
    left = [one.buffer(state.group, nests.dtype) for one in state.leaving]
    for one, buffer in zip(state.leaving, left, strict=True):
        slots.homes[one.symbol] = Slot(buffer, one.dims)
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

    source: Source
    together: Extent | None

    @property
    def segmented(self) -> bool:
        """States are indexed by their chunk, also where there is one."""
        return True

    def segment_count(self, at: Values) -> ir.Expr:
        """Positions of a chunk."""
        count = self.source.count(at[SEGMENT])
        return tirx.const(0, COUNTS) if count is None else count

    def segment_is_empty(self, at: Values) -> ir.Expr | bool:
        """Whether a chunk has no position; where nobody counts, a move does not matter to an empty state."""
        count = self.source.count(at[SEGMENT])
        return False if count is None else tirx.LE(count, 0)

    @property
    def none(self) -> None:
        """Of no positions at all, the states of no chunk are merged: that of an empty one has a finish."""
        return None

    @property
    def unrolls_segments(self) -> bool:
        """Whether a merge is written out, chunk by chunk: a map of states, which a kernel's epilogue may be."""
        return self.source.is_written_out

    @property
    def folded(self) -> Extent:
        """Positions of all chunks together."""
        return self.length if self.together is None else self.together


def _slots(source: Source, length: Extent, nests: NestBuilder, together: Extent | None = None) -> Slots:
    return source.slots(_Chunks((), length, 1, source.chunks, 1, 1, source, together), nests.dtype)


def _counted(source: Source, total: tirx.Var, nests: NestBuilder) -> tirx.Stmt:
    """The positions of all chunks."""
    where = [tirx.const(0, nests.dtype)]

    def value(at: Values) -> ir.Expr:
        count = source.count(at[SEGMENT])
        assert count is not None
        return count

    iters, cell = [Iter(SEGMENT, "chunk", source.chunks, reduce=True)], (total, lambda _at: where)
    return nests.reduction("count", "", iters, cell, operator.add, tirx.const(0, COUNTS), value)
