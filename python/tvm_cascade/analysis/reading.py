"""Reads a PrimFunc as a program of stages, or gives the reason why it is not one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

from tvm import s_tir, tirx

from tvm_cascade.algebra.verdict import Reason
from tvm_cascade.analysis.opaque import OPAQUE_CODES, Memory, Opaque, read_opaque
from tvm_cascade.analysis.order import overwriting, renamed
from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.reducers import split_reduction, started_at, starts_at_identity
from tvm_cascade.analysis.scratch import why_several
from tvm_cascade.analysis.statements import RECENT, block_names, in_its_loops, statements_of, why_not_plain
from tvm_cascade.analysis.tir import REDUCTION, loads_of, same, uses
from tvm_cascade.analysis.tuple_block import read_tuple

_NUMBERS = ("int", "uint", "float", "bfloat", "bool")
"""Dtypes of parameters that are numbers: the same at every point, and so constants of every expression."""


def read_program(func: tirx.PrimFunc) -> Program | Reason:
    """The function's stages; or the reason why it is not one that can be read. Never raises on a PrimFunc."""
    body = func.body
    if not isinstance(body, s_tir.SBlockRealize):
        return Reason("tirx", "no root block")
    for param in func.params:
        if not tirx.is_buffer_var(param) and not str(param.ty).startswith(_NUMBERS):
            return Reason("unsupported_shape", f"parameter {param.name} is no buffer and no number")
    root = body.block
    if root.iter_vars or root.match_buffers or root.init is not None:
        return Reason("scheduled", f"the root block {root.name_hint} has iterators or matched buffers")
    nests: list[Sequence[Stage] | Opaque] = []
    memory = Memory(body)
    for position, nest in enumerate(statements_of(root)):
        read = _read_stages(nest)
        if isinstance(read, Reason) and read.code not in OPAQUE_CODES:
            return read
        known = isinstance(nest, tirx.DeclBuffer) or (isinstance(read, Reason) and read.code == "extern")
        if not known and (given := memory.addressed(nest)):
            names = ", ".join(block_names(nest)) or type(nest).__name__
            read = Reason("extern", f"the address of {given[0].name} is taken by {names}")
        nests.append(read_opaque(nest, read, position, memory) if isinstance(read, Reason) else read)
    for reasons in (partial(renamed, memory=memory), partial(overwriting, params=func.params)):
        for position, reason in reasons(nests).items():
            nests[position] = read_opaque(statements_of(root)[position], reason, position, memory)
    stages = tuple(stage for nest in nests if not isinstance(nest, Opaque) for stage in nest)
    for stage in stages:
        if any(extent == 0 for extent in stage.extents.values() if isinstance(extent, int)):
            return Reason("empty_axis", f"block {stage.name}")
    opaque = tuple(nest for nest in nests if isinstance(nest, Opaque))
    return Program(func, root, stages, opaque) if stages or not opaque else opaque[0].reason


@lru_cache(RECENT)
def _read_stages(nest: tirx.Stmt) -> Sequence[Stage] | Reason:
    """The stage of a nest; one for each part where it reduces a tuple."""
    inner = in_its_loops(nest)
    if not isinstance(inner, s_tir.SBlockRealize):
        return why_several(nest)
    block = inner.block
    if reason := why_not_plain(nest):
        return reason
    if not isinstance(block.body, tirx.BufferStore):
        code = "extern" if isinstance(block.body, tirx.Evaluate) else "opaque_block"
        if isinstance(block.body, tirx.SeqStmt) and block.init is not None:
            return read_tuple(nest, block)
        return Reason(code, f"block {block.name_hint} is no single store")
    return _plain_stage(nest, block)


def _plain_stage(nest: tirx.Stmt, block: s_tir.SBlock) -> list[Stage] | Reason:
    """The stage of a single store; a reducer of the program's own is one of tuples of one part."""
    store = block.body
    reduce = [iv.var for iv in block.iter_vars if iv.iter_type == REDUCTION]
    value, reducer, init = store.value, None, None
    begins = [block.init.value] if isinstance(block.init, tirx.BufferStore) else []
    own = [load for e in (value, *begins) for load in loads_of(e) if load.source.same_as(store.buffer)]
    if earlier := [load for load in own if not same(list(load.indices), list(store.indices))]:
        return Reason("carried", f"block {block.name_hint} reads {earlier[0]} while it writes {store.buffer.name}")
    if reduce or block.init is not None:
        if not isinstance(block.init, tirx.BufferStore):
            return Reason("opaque_block", f"block {block.name_hint} reduces without a plain init")
        init, started = block.init.value, (block.init.buffer, list(block.init.indices))
        if not started[0].same_as(store.buffer) or not same(started[1], list(store.indices)):
            return Reason("opaque_block", f"block {block.name_hint} starts another element than it accumulates into")
        if any(uses(index, reduce) for index in store.indices):
            return Reason("opaque_block", f"block {block.name_hint} moves its result along an axis that it reduces")
        if (parts := split_reduction(store)) is None:
            return read_tuple(nest, block)
        reducer, value = parts
        if not starts_at_identity(reducer, init):
            return Reason("reducer", f"block {block.name_hint} starts its {reducer} at {init}")
        reducer = started_at(reducer, init)
    return [Stage.of(nest, block, store.buffer, store.indices, value, reducer, init)]
