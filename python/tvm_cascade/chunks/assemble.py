"""Assembles the functions of a split from nests of chunks and of merges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sympy as sp
from tvm import tirx

from tvm_cascade.analysis.order import among
from tvm_cascade.chunks.cut import Chunk, Cut, cut
from tvm_cascade.chunks.functions import buffers_read, build
from tvm_cascade.chunks.merging import combined, finished
from tvm_cascade.chunks.partial import PartialEmitter
from tvm_cascade.chunks.single_fold import SingleFold
from tvm_cascade.chunks.sources import Apart, Source, Stacked
from tvm_cascade.chunks.state import State
from tvm_cascade.steps.program import Move, Reduce, Tuple
from tvm_cascade.transform.assemble import Piece, at, in_dependency_order, index_dtype, live_stages, stage_piece
from tvm_cascade.transform.nest import NestBuilder


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
    group, leaving = part.of_group(), [one.along(part.pieces) for one in state.leaving]
    left = [one.buffer(group, part.index_dtype, one.name + suffix) for one in leaving]
    return PartialEmitter(part, state, left, fold.group.frame.length, nests)


def _inputs(fold: SingleFold, part: Cut, statements: Sequence[tirx.Stmt]) -> list[tirx.Var]:
    """The parameters that nests of a chunk read, or what stands for them there, in order."""
    loaded = buffers_read(statements)
    return [b for b in map(part.stand_in, fold.program.params) if b is not None and among(b, loaded)]


def combine_function(fold: SingleFold, stacked: Stacked) -> tirx.PrimFunc:
    """From the states of some chunks to one state."""
    merge = combined(stacked, fold.group.frame.length, _nests(fold))
    read = buffers_read(merge.statements)
    further = [param for param in fold.program.params if among(param, read)]
    return build(fold.program, "combine", merge.statements, [*stacked.inputs, *further], merge.left, merge.allocated)


def merge_function(fold: SingleFold, stacked: Stacked) -> tirx.PrimFunc:
    """From the states of all chunks to results."""
    after = _after(fold, stacked, _nests(fold))
    return build(
        fold.program, "merge", after.statements, [*stacked.inputs, *after.inputs], after.outputs, after.brought
    )


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
    after = _after(fold, source, nests)
    inputs += [b for b in after.inputs if not among(b, inputs)]
    own = [b for emitter in emitters for b in (*emitter.allocated, *emitter.buffers)]
    whole = [*statements, *after.statements]
    outputs = after.outputs if params is None else []
    return build(fold.program, "joined", whole, params or inputs, outputs, [*own, *after.brought])


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
