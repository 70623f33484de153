"""The dependence order of nests: RAW, WAR and WAW, with nests that cannot be read taken as opaque.

A buffer that one nest writes whole, before any other reads it, is a function of its indices: its readers may compute
it again anywhere. All other buffers stand for several values in turn; the nests that write them stay as they are, and
what reads such a buffer stays between the same two writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from tvm import ir, s_tir, tirx

from tvm_cascade.algebra.verdict import Reason
from tvm_cascade.analysis.index_sets import are_of_one_point_each, cover
from tvm_cascade.analysis.opaque import Memory, Opaque
from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.tir import (
    loads_of,
    reached,
    same,
    within,
)

Buffers = tuple[tirx.Var, ...]


@dataclass(frozen=True)
class Access:
    """The buffers that one nest reads and writes; one whose address it takes counts as both."""

    reads: Buffers
    writes: Buffers

    def before(self, later: Access) -> tirx.Var | None:
        """The buffer of a dependence of a later nest on this one; None where they may be reordered."""
        return shared(self.writes, (*later.reads, *later.writes), shared(self.reads, later.writes))


def shared(some: Sequence[tirx.Var], others: Sequence[tirx.Var], otherwise: tirx.Var | None = None) -> tirx.Var | None:
    return next((a for a in some if a in {*others}), otherwise)


def among(buffer: tirx.Var, buffers: Sequence[tirx.Var]) -> bool:
    return buffer in {*buffers}


def access_of(nest: Sequence[Stage] | Opaque) -> Access:
    """The buffers that a nest reads and writes; a reduction's reads of its accumulator are left out."""
    if isinstance(nest, Opaque):
        return Access((*nest.reads, *nest.touched), (*nest.writes, *nest.touched))
    return Access(tuple(chain.from_iterable(stage.reads for stage in nest)), tuple(stage.buffer for stage in nest))


def renamed(nests: Sequence[Sequence[Stage] | Opaque], memory: Memory) -> dict[int, Reason]:
    """Nests of plain stages that use memory which is written by another name than its owner's, each with the reason."""
    plain = {k: access_of(nest) for k, nest in enumerate(nests) if not isinstance(nest, Opaque)}
    written = memory.behind(name for access in plain.values() for name in access.writes)
    written += [name for nest in nests if isinstance(nest, Opaque) for name in access_of(nest).writes]
    found: dict[int, Reason] = {}
    for position, access in plain.items():
        for name in (*access.writes, *access.reads):
            if (owner := shared(memory.owners.get(name, ()), written)) is not None:
                found[position] = Reason("overwritten", f"{name.name} is memory of {owner.name}, which is written")
    return found


def overwriting(nests: Sequence[Sequence[Stage] | Opaque], params: Sequence[tirx.Var]) -> dict[int, Reason]:
    """Nests of plain stages with write-after-read hazards, by position, each with the reason."""
    accesses = [access_of(nest) for nest in nests]
    found: dict[int, Reason] = {}
    for position, nest in enumerate(nests):
        for stage in () if isinstance(nest, Opaque) else nest:
            if said := _why_several(stage, position, nests, accesses, params):
                found[position] = Reason("overwritten", f"block {stage.name} {said}")
    return found


def _why_several(
    stage: Stage,
    position: int,
    nests: Sequence[Sequence[Stage] | Opaque],
    accesses: Sequence[Access],
    params: Sequence[tirx.Var],
) -> str:
    """Why a stage's buffer has several values over time, as text; empty where it has one."""
    buffer = stage.buffer
    others = [k for k in range(len(nests)) if k != position]
    for k in others:
        one = nests[k]
        written = one.writes if isinstance(one, Opaque) else accesses[k].writes
        if among(buffer, written):
            return f"writes {buffer.name}, and so does another block"
    if among(buffer, accesses[position].reads):
        return f"writes {buffer.name} in the place of what it reads there"
    if any(among(buffer, accesses[k].reads) for k in others if k < position):
        return f"writes {buffer.name} after it was read"
    loads = _loads(nests, others, buffer) if among(buffer, params) else []
    at, extents, shape = stage.indices, stage.extents, buffer.ty.shape
    if not all(cover(at, extents, load.indices, reader.extents, shape) for reader, load in loads):
        return f"writes a part of {buffer.name}, and others read more of it"
    return ""


def _loads(
    nests: Sequence[Sequence[Stage] | Opaque], among: Sequence[int], buffer: tirx.Var
) -> list[tuple[Stage, ir.TensorLoad]]:
    plain = [stage for k in among if not isinstance(one := nests[k], Opaque) for stage in one]
    loads = [(stage, load) for stage in plain for e in (stage.value, *stage.indices) for load in loads_of(e)]
    return [(stage, load) for stage, load in loads if load.source.same_as(buffer)]


def sources_of(program: Program, stages: Sequence[Stage]) -> list[Stage]:
    """The stages, and all that they are computed from, up to inputs and nests that are not read."""
    return reached(stages, lambda stage: filter(None, map(program.writer, stage.reads)))


def crossed(program: Program, members: Sequence[Stage]) -> tuple[Opaque, tirx.Var] | None:
    """An opaque nest that a dependence orders between two members of a group, and the buffer of that dependence.

    A group becomes one loop: all that it is computed from is read there, perhaps later than in the program, and
    perhaps anew. It crosses a nest that must come after one part of it and before another.
    """
    nests = program.nests
    accesses = [access_of(nest) for nest in nests]
    inside = {program.position(stage) for stage in sources_of(program, members)}
    own = {program.position(stage) for stage in members}

    def after(at: int) -> dict[int, tirx.Var]:
        later = ((k, accesses[at].before(accesses[k])) for k in range(at + 1, len(nests)))
        return {k: needed for k, needed in later if needed is not None}

    def written_over(start: int) -> list[int]:
        used = (*accesses[start].reads, *accesses[start].writes)
        return [k for k in range(start + 1, len(nests)) if shared(used, accesses[k].writes) is not None]

    # What is only read anew stays in its old place as well: others need the loop's copy of it for nothing.
    first = [k for start in inside for k in (after(start) if start in own else written_over(start))]
    later = sorted(reached(first, after), reverse=True)
    for over in (one for k in later if isinstance(one := nests[k], Opaque)):
        for at in reached([over.position], after):
            if (needed := next((buffer for k, buffer in after(at).items() if k in inside), None)) is not None:
                return over, needed
    return None


# Loop-carried dependence: whether the iterations of a nest may be reordered or run in parallel.
#
# for i: B[i, 3] = A[i // 2] + B[i, 3]     independent: each i stores to an element of its own, and touches no other
# for i: B[i // 2] = A[i]                  not: two of them store to one element
# for i: B[i + 1] = B[i] · A[i]            not: each reads what another one stores


_PLAIN = (tirx.BufferStore, tirx.SeqStmt, tirx.Bind, tirx.IfThenElse)
"""Statements that do nothing but what their stores say."""

_ADDRESSES = (tirx.BufferType, ir.PointerType)

_PURE = 1
"""The highest of TVM's kinds of effects of a call that leaves memory alone (`CallEffectKind.kPure`)."""


def independent(block: s_tir.SBlock) -> bool:
    """Whether the data-parallel iterations of a block are independent of one another.

    Every store goes to an element that no other iteration stores to, and what is stored is read at that element alone.
    The iterators of a reduction are left out: its accumulation keeps their order, or may change it by the reducer's
    laws.
    """
    if block.match_buffers or block.alloc_buffers or not _is_plain(block):
        return False
    stores = within(block.body, tirx.BufferStore)
    parts = [block.body] if block.init is None else [block.body, block.init]
    touched = [(load.source, load.indices) for part in parts for load in loads_of(part)]
    touched += [(store.buffer, store.indices) for part in parts for store in within(part, tirx.BufferStore)]
    return all(
        are_of_one_point_each(store.indices, block)
        and all(same(list(at), list(store.indices)) for buffer, at in touched if buffer.same_as(store.buffer))
        for store in stores
    )


def _is_plain(block: s_tir.SBlock) -> bool:
    """Whether it consists of stores and of calls that read and write no memory."""
    parts = [part for part in (block.body, block.init) if part is not None]
    plain = all(isinstance(one, _PLAIN) for part in parts for one in within(part, tirx.Stmt))
    return plain and all(_is_pure(call) for part in parts for call in within(part, ir.Call))


def _is_pure(call: ir.Call) -> bool:
    if not isinstance(call.op, ir.Op) or any(isinstance(e.ty, _ADDRESSES) for e in (call, *call.args)):
        return False
    kind = call.op.get_attr("TCallEffectKind")
    return kind is not None and int(kind) <= _PURE
