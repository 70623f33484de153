"""`tvm_cascade.split`: a function as one that leaves the state of a chunk and one that merges states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sympy as sp
import tvm
from tvm import tirx

from tvm_cascade.analysis.order import among
from tvm_cascade.chunks.cut import Cut, cut
from tvm_cascade.chunks.functions import buffers_read, build
from tvm_cascade.chunks.lengths import Chunking, chunking_of
from tvm_cascade.chunks.merging import combined, finished
from tvm_cascade.chunks.partial import PartialEmitter
from tvm_cascade.chunks.single_fold import SingleFold, single_fold
from tvm_cascade.chunks.sources import Apart, Source, Stacked
from tvm_cascade.chunks.state import State, StatePart, state_of
from tvm_cascade.options import FuseOptions
from tvm_cascade.steps.program import Move, Reduce, Tuple
from tvm_cascade.transform.assemble import Piece, at, in_dependency_order, index_dtype, live_stages, stage_piece
from tvm_cascade.transform.nest import NestBuilder


@dataclass(frozen=True)
class Split:
    """The functions of a split; all are unfused S-TIR, which `compile`, `explain` and schedules take as any other.

    Attributes
    ----------
    partials : a function for each chunk, from the chunk's inputs to its state; one for all where offsets are passed.
    combine : from the states of some chunks to their state, for trees and rings.
    merge : from the states of all chunks to the results of the function that was split.
    joined : all of it in one function, where the chunks are known: the states of each, and their merge. Inputs that
        are cut have the number of their chunk after their name.
    state : the buffers of a state, in the order in which they are passed.
    counted : merging takes `counts`, the number of positions of each chunk, after the states.
    lengths : of the chunks, along the loop that is cut; of the one that stands for all where that is known; else none.
    """

    partials: tuple[tirx.PrimFunc, ...]
    combine: tirx.PrimFunc
    merge: tirx.PrimFunc
    joined: tirx.PrimFunc | None
    state: tuple[StatePart, ...]
    counted: bool
    lengths: tuple[int, ...]

    @property
    def partial(self) -> tirx.PrimFunc:
        """The function of a chunk, or of the first one."""
        return self.partials[0]

    @property
    def module(self) -> tvm.IRModule:
        """All functions by their names."""
        functions = [*self.partials, self.combine, self.merge, *([] if self.joined is None else [self.joined])]
        return tvm.IRModule({str(func.attrs["global_symbol"]): func for func in functions})

    def __str__(self) -> str:
        return "\n".join(map(str, self.state))


def split(
    mod_or_func: tvm.IRModule | tirx.PrimFunc,
    chunks: int | None = None,
    lengths: int | Sequence[int] | None = None,
    shared: Mapping[int, str] | None = None,
    **options: object,
) -> Split:
    """Splits a function's fold into functions that leave partial states and functions that merge them.

    For chunks of the cascade axis that arrive later, prefixes that sequences share, and devices that hold a part each.
    The state, the partial function and the merge follow from the fold alone; the merge is associative, and a chunk
    whose every position is masked, or that has none, changes nothing.

    rewrite: m = max_j s[j];  t = Σ_j exp(s[j] − m);  o = Σ_j exp(s[j] − m)/t·v[j]
          →  partial: m_state, t_state, o_state over the chunk's own s and v
             merge:   m = max_c m_states[c];  t = Σ_c t_states[c]·exp(m_states[c] − m);  …  o = o_0/t

    Parameters
    ----------
    mod_or_func : an S-TIR function that is not scheduled, or a module of one, with one cascade (or one reduction, or
        reductions that share their axis).
    chunks : so many chunks of equal length, or nearly.
    lengths : of all chunks of the axis, in order; or one length for any number of chunks. With neither this nor
        `chunks`, partial functions take chunks of any length, and merging functions any number of states.
    shared : by chunk, the row axis along which its inputs are the same: they lose that dimension, so that, for 0: "b",
        the keys of the first chunk are read once for all b.
    **options
        Fields of `FuseOptions` that a fold is derived by: `rescalable_casts` and `reference`.

    Returns
    -------
    Split
        Inputs of a partial function have the chunk's length where the function reads them at the axis itself. All
        else that an element reads of its position (masks, biases, indices that are results) is that of the whole
        axis: with known chunks as constants, else by a last input `offset`, the chunk's first position.

    Raises
    ------
    InputError
        When the program is not one function in S-TIR.
    OptionError
        When chunks and lengths are no cut of the axis, or no row axis of that name is shared.
    SplitError
        When the function has no fold, or several, or what its fold reads cannot be cut; the message says why.
    """
    fold = single_fold(mod_or_func, FuseOptions.from_environment(**options))
    dtype = index_dtype(fold.program)
    chunking = chunking_of(fold.group, chunks, lengths, shared or {}, dtype)
    state = state_of(fold.group, [param.name for param in fold.program.params])
    parts = _cut(fold, state, chunking)
    stacked = Stacked(state, chunking.number or tirx.Var("chunks", dtype), dtype)
    return Split(
        _partials(fold, state, parts),
        _combine(fold, stacked),
        _merge(fold, stacked),
        _joined(fold, state, _cut(fold, state, chunking, numbered=True)) if chunking.known else None,
        tuple(map(state.part, state.leaving)),
        state.counted,
        tuple(chunk.length for chunk in chunking.chunks if isinstance(chunk.length, int)),
    )


def _cut(fold: SingleFold, state: State, chunking: Chunking, numbered: bool = False) -> list[Cut]:
    """The chunks; with their numbers after the names of what is cut where they are `numbered`."""
    read, dtype = _read(state), index_dtype(fold.program)
    suffixes = [f"_{k}" if numbered else "" for k in range(len(chunking.chunks))]
    pairs = zip(chunking.chunks, suffixes, strict=True)
    return [cut(fold.program, fold.group, read, chunk, dtype, suffix) for chunk, suffix in pairs]


def _read(state: State) -> set[sp.Symbol]:
    """Symbols that lifts, and values of references, read."""
    expressions: list[sp.Expr] = []
    for step in state.program.steps:
        if isinstance(step, Tuple):
            expressions += step.lifts
        elif isinstance(step, (Reduce, Move)):
            expressions.append(step.lift if isinstance(step, Reduce) else step.value)
    return {symbol for expression in expressions for symbol in expression.free_symbols}


def _partials(fold: SingleFold, state: State, parts: Sequence[Cut]) -> tuple[tirx.PrimFunc, ...]:
    """A function for each chunk; chunks that differ in nothing that is read have the same."""
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
    left = [one.buffer(state.group, part.index_dtype, one.name + suffix) for one in state.leaving]
    return PartialEmitter(part, state, left, fold.group.frame.length, nests)


def _inputs(fold: SingleFold, part: Cut, statements: Sequence[tirx.Stmt]) -> list[tirx.Var]:
    """The parameters that nests of a chunk read, or what stands for them there, in order."""
    loaded = buffers_read(statements)
    return [b for b in map(part.stand_in, fold.program.params) if b is not None and among(b, loaded)]


def _combine(fold: SingleFold, stacked: Stacked) -> tirx.PrimFunc:
    merge = combined(stacked, fold.group.frame.length, _nests(fold))
    read = buffers_read(merge.statements)
    further = [param for param in fold.program.params if among(param, read)]
    return build(fold.program, "combine", merge.statements, [*stacked.inputs, *further], merge.left, merge.allocated)


def _merge(fold: SingleFold, stacked: Stacked) -> tirx.PrimFunc:
    after = _after(fold, stacked, _nests(fold))
    return build(
        fold.program, "merge", after.statements, [*stacked.inputs, *after.inputs], after.outputs, after.brought
    )


def _joined(fold: SingleFold, state: State, parts: Sequence[Cut]) -> tirx.PrimFunc:
    """The states of all chunks, each in temporaries of its own, and their merge."""
    nests, statements = _nests(fold), list[tirx.Stmt]()
    emitters = [_of_chunk(fold, state, part, nests, f"_{k}") for k, part in enumerate(parts)]
    inputs: list[tirx.Var] = []
    for emitter in emitters:
        own = emitter.run()
        inputs += [b for b in _inputs(fold, emitter.part, own) if not among(b, inputs)]
        statements += own
    source = Apart(state, [emitter.buffers for emitter in emitters], [emitter.count for emitter in emitters])
    after = _after(fold, source, nests)
    inputs += [b for b in after.inputs if not among(b, inputs)]
    own = [b for emitter in emitters for b in (*emitter.allocated, *emitter.buffers)]
    whole = [*statements, *after.statements]
    return build(fold.program, "joined", whole, inputs, after.outputs, [*own, *after.brought])


@dataclass(frozen=True)
class _After:
    """What comes after the states: nests, parameters of the program that they read and write, and temporaries."""

    statements: list[tirx.Stmt]
    inputs: list[tirx.Var]
    outputs: list[tirx.Var]
    brought: list[tirx.Var]


def _after(fold: SingleFold, source: Source, nests: NestBuilder) -> _After:
    """The function's results from states: the merge stands for the reductions, and what follows them stays."""
    program = fold.program
    merge = finished(source, fold.group.frame.length, nests, set(fold.asked))
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
    outputs = [param for param in program.params if among(param, stored)]
    inputs = [param for param in program.params if among(param, read) and not among(param, outputs)]
    return _After(statements, inputs, outputs, [buffer for piece in ordered for buffer in piece.allocates])


def _nests(fold: SingleFold) -> NestBuilder:
    """A builder of nests that are not called as those that stay are."""
    replaced = [member.stage.name for member in fold.group.members]
    kept = {stage.name for stage in fold.program.stages if stage.name not in replaced}
    return NestBuilder(index_dtype(fold.program), kept, annotated=False)
