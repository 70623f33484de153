"""The new function: stages that are still needed, in dependency order, each group's as its loop."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx

from tvm_cascade.analysis.domain import Program, Stage, dtype_of, loads_of, reads_buffer
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.inline import Inliner, plain_indices
from tvm_cascade.analysis.opaque import Opaque
from tvm_cascade.transform.nest import DETECT_ACCESS, OPAQUE, ROLE


@dataclass(frozen=True)
class Piece:
    """A part of the new body.

    Attributes
    ----------
    statements : its nests.
    reads, writes : buffers, for the order of pieces.
    allocates : buffers that it brings along.
    order : position in the original program, which breaks ties.
    """

    statements: tuple[tirx.Stmt, ...]
    reads: tuple[tirx.Var, ...]
    writes: tuple[tirx.Var, ...]
    allocates: tuple[tirx.Var, ...]
    order: int


def positions(program: Program) -> dict[str, int]:
    """The place of each stage among all nests, by name."""
    opaque = [one.position for one in program.opaque]
    nests: list[tirx.Stmt] = []
    for stage in program.stages:  # a tuple reduction is several stages of one nest
        if not any(stage.nest.same_as(nest) for nest in nests):
            nests.append(stage.nest)
    free = [k for k in range(len(nests) + len(opaque)) if k not in opaque]
    return {
        stage.name: free[next(k for k, nest in enumerate(nests) if stage.nest.same_as(nest))]
        for stage in program.stages
    }


def live_stages(program: Program, groups: list[Group], reads: list[list[tirx.Var]]) -> list[Stage]:
    """Stages outside the groups that the caller's buffers need; `reads` are what each group's loop loads."""
    live: set[str] = set()
    seen: list[tirx.Var] = []
    pending = [stage.buffer for stage in program.stages if program.is_param(stage.buffer)]
    pending += [buffer for one in program.opaque for buffer in (*one.reads, *one.touched)]
    while pending:
        buffer = pending.pop()
        stage = program.writer(buffer)
        if stage is None or any(buffer.same_as(other) for other in seen):
            continue
        seen.append(buffer)
        owner = next((k for k, g in enumerate(groups) if any(stage is m.stage for m in g.members)), None)
        if owner is None:
            live.add(stage.name)
        values = [part.value for part in program.together(stage)]
        pending += reads[owner] if owner is not None else [load.source for v in values for load in loads_of(v)]
    return [stage for stage in program.stages if stage.name in live]


def absorbed(program: Program, stages: list[Stage], reads: list[tirx.Var]) -> list[Stage]:
    """Elementwise stages that exactly one kept elementwise stage reads, and no loop: they are computed in place there.

    Parameters
    ----------
    reads : buffers that loops load.
    """
    found = []
    for stage in stages:
        readers = [other for other in stages if reads_buffer(other.value, stage.buffer)]
        handed = [buffer for one in program.opaque for buffer in (*one.reads, *one.touched)]
        if (
            stage.reducer is None
            and plain_indices(stage)
            and not any(stage.buffer.same_as(buffer) for buffer in (*handed, *reads))
            and not program.is_param(stage.buffer)
            and len(readers) == 1
            and readers[0].reducer is None
        ):
            found.append(stage)
    return found


def stage_piece(program: Program, stage: Stage, inlined: list[Stage], order: int) -> Piece:
    """A kept stage, with the stages absorbed by it written out."""
    value = stage.value
    if any(reads_buffer(value, other.buffer) for other in inlined):
        value = Inliner(Program(program.func, program.root, tuple(inlined)))(value, stage.extents)
        nest = _with_value(stage, value)
    else:
        nest = stage.nest
    parts = program.together(stage)
    reads = tuple(load.source for v in (value, *(part.value for part in parts)) for load in loads_of(v))
    writes = tuple(part.buffer for part in parts)
    return Piece((nest,), reads, writes, tuple(b for b in writes if not program.is_param(b)), order)


def opaque_piece(program: Program, one: Opaque, order: int) -> Piece:
    """A nest that cannot be read, in its place, marked so that schedules leave it alone."""

    def mark(block: s_tir.SBlock) -> s_tir.SBlock:
        fields = (block.iter_vars, block.reads, block.writes, block.name_hint, block.body, block.init)
        notes = {**dict(block.annotations), ROLE: OPAQUE}
        return s_tir.SBlock(*fields, block.alloc_buffers, block.match_buffers, notes)

    own = [*one.writes, *(b for b in one.touched if program.writer(b) is None)]
    allocated = [b for k, b in enumerate(own) if not any(b.same_as(other) for other in (*own[:k], *program.params))]
    allocated = [b for b in allocated if any(b.same_as(a) for a in program.root.alloc_buffers)]
    nest = tvm_ffi.structural_map(one.nest, (s_tir.SBlock, mark))
    return Piece((nest,), (*one.reads, *one.touched), tuple(own), tuple(allocated), order)


def _with_value(stage: Stage, value: ir.Expr) -> tirx.Stmt:
    old = stage.block
    annotations = {**dict(old.annotations), DETECT_ACCESS: tirx.IntImm("int32", 3)}
    body = tirx.BufferStore(stage.buffer, value, list(stage.indices))
    block = s_tir.SBlock(old.iter_vars, [], [], old.name_hint, body, old.init, annotations=annotations)
    return tvm_ffi.structural_map(stage.nest, (s_tir.SBlock, lambda b: block if b.same_as(old) else b))


def in_dependency_order(pieces: list[Piece]) -> list[Piece]:
    """Each piece after those that write what it reads; otherwise as in the original program."""
    remaining, placed = sorted(pieces, key=lambda p: p.order), []
    while remaining:
        for piece in remaining:
            others = [p for p in remaining if p is not piece]
            if not any(read.same_as(write) for read in piece.reads for p in others for write in p.writes):
                placed.append(piece)
                remaining.remove(piece)
                break
        else:
            return [*placed, *remaining]
    return placed


def build_function(program: Program, pieces: list[Piece]) -> tirx.PrimFunc:
    """The function over the pieces, with access regions filled in by TVM's own script completion."""
    statements = [s for piece in pieces for s in piece.statements]
    buffers = [b for piece in pieces for b in piece.allocates if not program.is_param(b)]
    body = statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)
    old = program.root
    root = s_tir.SBlock([], [], [], old.name_hint, body, alloc_buffers=buffers, annotations=dict(old.annotations))
    func = program.func.with_body(s_tir.SBlockRealize([], True, root))
    return tvm.get_global_func("script.Complete")(func, [], True)


def index_dtype(program: Program) -> str:
    """The widest dtype of the program's loop variables."""
    found = {dtype_of(iv.var) for stage in program.stages for iv in stage.block.iter_vars}
    return "int64" if "int64" in found else "int32"
