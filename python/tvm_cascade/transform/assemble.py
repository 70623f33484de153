"""Assembles the new function: live stages in dependency order, each group as its fused loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import tvm_ffi
from tvm import ir, s_tir, tirx

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.inline import Inliner, plain_indices
from tvm_cascade.analysis.opaque import Opaque
from tvm_cascade.analysis.order import access_of, among
from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.statements import (
    ROLE,
    completed,
    replaced,
    sequence,
    undefined,
    with_block,
    with_root,
)
from tvm_cascade.analysis.tir import dtype_of, in_turn, loads_of, reached, reads_buffer, rebuilt
from tvm_cascade.errors import RewriteError
from tvm_cascade.transform.nest import OPAQUE

Use = tuple[tirx.Var, int]


@dataclass(frozen=True)
class Piece:
    """A part of the new body.

    Attributes
    ----------
    statements : its nests.
    reads, writes : buffers, each with the place in the original program at which it is.
    allocates : buffers that it brings along.
    order : position in the original program, which breaks ties.
    """

    statements: tuple[tirx.Stmt, ...]
    reads: tuple[Use, ...]
    writes: tuple[Use, ...]
    allocates: tuple[tirx.Var, ...]
    order: int


def live_stages(program: Program, groups: Sequence[Group], reads: Sequence[Sequence[tirx.Var]]) -> list[Stage]:
    """Stages outside the groups that the caller's buffers need; `reads` are what each group's loop loads."""
    owners: dict[Stage | None, int] = {member.stage: k for k, group in enumerate(groups) for member in group.members}

    def needed(buffer: tirx.Var) -> Sequence[tirx.Var]:
        stage = program.writer(buffer)
        return reads[owners[stage]] if stage in owners else sources_of(program, stage)

    asked = [stage.buffer for stage in program.stages if program.is_param(stage.buffer)]
    asked += [buffer for one in program.opaque for buffer in (*one.reads, *one.touched)]
    writers = {*map(program.writer, reached(asked, needed))}
    live = {stage.name for stage in writers if stage is not None and stage not in owners}
    return [stage for stage in program.stages if stage.name in live]


def sources_of(program: Program, stage: Stage | None) -> list[tirx.Var]:
    """The buffers whose values a stage's block computes with; none of no stage."""
    parts = () if stage is None else program.together(stage)
    return [load.source for part in parts for load in loads_of(part.value)]


def absorbed(program: Program, stages: Sequence[Stage], reads: Sequence[tirx.Var]) -> list[Stage]:
    """Elementwise stages with one elementwise reader and no loop that reads them: they are inlined there.

    Parameters
    ----------
    reads : buffers that loops load.
    """
    found = []
    handed = [buffer for one in program.opaque for buffer in (*one.reads, *one.touched)]
    written_over = [buffer for one in program.opaque for buffer in (*one.writes, *one.touched)]
    for stage in stages:
        readers = [other for other in stages if reads_buffer(other.value, stage.buffer)]
        if (
            stage.reducer is None
            and plain_indices(stage)
            and not any(stage.buffer.same_as(buffer) for buffer in (*handed, *reads))
            and not any(reads_buffer(stage.value, buffer) for buffer in written_over)
            and not program.is_param(stage.buffer)
            and len(readers) == 1
            and readers[0].reducer is None
        ):
            found.append(stage)
    return found


def stage_piece(program: Program, stage: Stage, inlined: list[Stage], order: int) -> Piece:
    value = stage.value
    if any(reads_buffer(value, other.buffer) for other in inlined):
        value = Inliner(Program(program.func, program.root, tuple(inlined)))(value, stage.extents)
        nest = _with_value(stage, value)
    else:
        nest = stage.nest
    parts = program.together(stage)
    reads = tuple(load.source for v in (value, *(part.value for part in parts)) for load in loads_of(v))
    writes = tuple(part.buffer for part in parts)
    allocated = tuple(b for b in writes if not program.is_param(b))
    return Piece((nest,), at(reads, order), at(writes, order), allocated, order)


def at(buffers: Iterable[tirx.Var], position: int) -> tuple[Use, ...]:
    """Buffers as used at one place in the original program."""
    return tuple((buffer, position) for buffer in buffers)


def opaque_piece(program: Program, one: Opaque, order: int) -> Piece:
    """An opaque nest at its place, annotated so that schedules leave it alone."""

    def mark(block: s_tir.SBlock) -> s_tir.SBlock:
        return rebuilt(block, annotations={**dict(block.annotations), ROLE: OPAQUE})

    own = dict.fromkeys([*one.writes, *(b for b in one.touched if program.writer(b) is None)])
    allocated = [b for b in own if b in {*program.root.alloc_buffers} - {*program.params}]
    nest = tvm_ffi.structural_map(one.nest, (s_tir.SBlock, mark))
    access = access_of(one)
    return Piece((nest,), at(access.reads, order), at(access.writes, order), tuple(allocated), order)


def _with_value(stage: Stage, value: ir.Expr) -> tirx.Stmt:
    body = tirx.BufferStore(stage.buffer, value, list(stage.indices))
    return with_block(stage.nest, stage.block, replaced(stage.block, body, stage.block.init))


def in_dependency_order(pieces: list[Piece]) -> list[Piece]:
    """The pieces in dependency order (RAW, WAR); otherwise in their original order."""
    ordered = sorted(pieces, key=lambda p: p.order)
    places = range(len(ordered))
    found, stuck = in_turn({k: [j for j in places if j != k and _before(ordered[j], ordered[k])] for k in places})
    if stuck:
        raise RewriteError("pieces that have an order", "some that wait for each other", "the order of nests")
    return [ordered[k] for k in found]


def _before(earlier: Piece, later: Piece) -> bool:
    """Whether a piece uses a buffer before another does, and one of them writes it."""
    return any(
        p < q and one.same_as(other)
        for uses, others in ((earlier.writes, (*later.reads, *later.writes)), (earlier.reads, later.writes))
        for one, p in uses
        for other, q in others
    )


def build(
    program: Program,
    name: str,
    statements: Sequence[tirx.Stmt],
    inputs: Sequence[tirx.Var],
    outputs: Sequence[tirx.Var],
    allocated: Iterable[tirx.Var],
) -> tirx.PrimFunc:
    """A function over nests.

    Parameters
    ----------
    inputs, outputs : its buffers, in order, with numbers of the program's own among the inputs. Variables that nothing
        else defines are passed as numbers after the inputs.
    """
    params = [*inputs, *outputs]
    inside = [b for b in allocated if not among(b, params)]
    body = with_root(program.func, statements, alloc_buffers=inside, reads=[], writes=[]).body
    numbers = undefined(sequence(statements), params, inside)
    func = tirx.PrimFunc([*inputs, *numbers, *outputs], body, attrs=program.func.attrs)
    return well_formed(completed(func.with_attr("global_symbol", name)), name)


def with_statements(
    program: Program,
    name: str,
    statements: Sequence[tirx.Stmt],
    buffers: Mapping[tirx.Var, tirx.Var] = {},
    further: Sequence[tirx.Var] = (),
) -> tirx.PrimFunc:
    """A program's function with other statements: see `build`.

    Parameters
    ----------
    buffers : that stand in the place of others.
    further : that it allocates.
    """
    written = {stage.buffer for stage in program.stages}
    written |= {buffer for one in program.opaque for buffer in (*one.writes, *one.touched)}
    params = [param for param in program.params if tirx.is_buffer_var(param)]
    inputs, outputs, own = (
        [buffers.get(buffer, buffer) for buffer in some]
        for some in (
            (param for param in params if param not in written),
            (param for param in params if param in written),
            program.root.alloc_buffers,
        )
    )
    return build(program, name, statements, inputs, outputs, [*own, *further])


def well_formed(func: tirx.PrimFunc, where: str) -> tirx.PrimFunc:
    """The function itself.

    Raises
    ------
    RewriteError
        When it is not well formed: a defect of this package.
    """
    if not s_tir.analysis.verify_well_formed(func, assert_mode=False):
        raise RewriteError("a well-formed function", f"one that is not:\n{func.script()}", where)
    return func


def index_dtype(program: Program) -> str:
    """The widest dtype of the program's loop variables."""
    found = {dtype_of(iv.var) for stage in program.stages for iv in stage.block.iter_vars}
    return "int64" if "int64" in found else "int32"
