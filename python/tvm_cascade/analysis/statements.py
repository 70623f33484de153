"""Nests as TVM has them: whether they are plain loops, what they touch, and replacing a part of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import prim

from tvm_cascade.algebra.verdict import Reason
from tvm_cascade.analysis.opaque import taken
from tvm_cascade.analysis.tir import (
    DATA_PARALLEL,
    REDUCTION,
    Extent,
    as_index,
    bound_by,
    domain_of,
    dtype_of,
    extent_of,
    loads_of,
    rebuilt,
    same_extent,
    substitute,
    uses,
    variables_of,
    within,
    zero_of,
)

DETECT_ACCESS = "tirx.script_parsing_detect_access"
"""Annotation of blocks whose access regions TVM's own script completion fills in."""

ROLE = "tvm_cascade.role"
"""Block annotation: what a block is for (`transform.nest`, `schedule.roles`)."""

RECENT = 1024
"""Nests of which is remembered what they are: functions that are cut and merged have theirs in common."""

Uses = list[tuple[tirx.Var, tuple[ir.Expr, ...]]]


def statements_of(whole: tirx.PrimFunc | s_tir.SBlock | tirx.Stmt) -> list[tirx.Stmt]:
    """The statements of a sequence, of a block, or of the root block of a function, in order."""
    if isinstance(whole, tirx.PrimFunc):
        whole = whole.body.block
    body = whole.body if isinstance(whole, s_tir.SBlock) else whole
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


def sequence(statements: Sequence[tirx.Stmt]) -> tirx.Stmt:
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))


def in_loops(extents: Mapping[tirx.Var, Extent], body: tirx.Stmt) -> tirx.Stmt:
    """A statement in serial loops from 0, the first outermost."""
    for var, extent in reversed(list(extents.items())):
        body = tirx.For(var, zero_of(var), as_index(extent, dtype_of(var)), tirx.ForKind.SERIAL, body)
    return body


def completed(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with access regions filled in by TVM's script completion."""
    return tvm.get_global_func("script.Complete")(func, [], True)


def new_block(
    name: str,
    body: tirx.Stmt,
    iters: Sequence[tirx.IterVar] = (),
    init: tirx.Stmt | None = None,
    allocated: Sequence[tirx.Var] = (),
    notes: Mapping[str, object] = {},
) -> s_tir.SBlock:
    """A block with annotations, whose access regions `completed` fills in."""
    notes = {**notes, DETECT_ACCESS: tirx.IntImm("int32", 3)}
    return s_tir.SBlock(list(iters), [], [], name, body, init=init, alloc_buffers=list(allocated), annotations=notes)


def buffers_read(statements: Sequence[tirx.Stmt]) -> list[tirx.Var]:
    """The buffers that nests load, each once."""
    return list(dict.fromkeys(one.source for statement in statements for one in loads_of(statement)))


def undefined(body: tirx.Stmt, params: Sequence[tirx.Var], allocated: Sequence[tirx.Var] = ()) -> list[tirx.Var]:
    """Numbers that a body, or a shape of a buffer, reads and that neither loops nor `params` and their shapes give."""
    given, own = (
        [extent for buffer in buffers if tirx.is_buffer_var(buffer) for extent in buffer.ty.shape]
        for buffers in (params, allocated)
    )
    bound = [loop.loop_var for loop in within(body, tirx.For)]
    bound += [one.var for one in within(body, tirx.IterVar, tirx.Bind)]
    defined = {*params, *allocated, *bound, *(extent for extent in given if isinstance(extent, ir.Var))}
    read = dict.fromkeys(v for e in (*given, *own, body) for v in variables_of(e))
    return [var for var in read if var not in defined]


def with_root(func: tirx.PrimFunc, statements: Sequence[tirx.Stmt], **fields: object) -> tirx.PrimFunc:
    """The function with other statements in its root block, and other fields of that where they are given."""
    root = rebuilt(func.body.block, body=sequence(statements), **fields)
    return func.with_body(s_tir.SBlockRealize(func.body.iter_values, func.body.predicate, root))


def allocating(func: tirx.PrimFunc, buffers: Sequence[tirx.Var]) -> tirx.PrimFunc:
    """The function with buffers of its own; TVM moves them to where they are used."""
    return with_root(func, statements_of(func), alloc_buffers=[*func.body.block.alloc_buffers, *buffers])


def with_nests(func: tirx.PrimFunc, nests: Sequence[tirx.Stmt], allocated: Sequence[tirx.Var]) -> tirx.PrimFunc:
    """The function with other nests and buffers of its own, and access regions filled in."""
    return completed(with_root(func, nests, alloc_buffers=list(allocated), reads=[], writes=[]))


def block_names(nest: tirx.Stmt) -> list[str]:
    return [block.name_hint for block in within(nest, s_tir.SBlock)]


def unused(name: str, taken: set[str]) -> str:
    """The name, or the name with the first number that makes it unused."""
    return next(n for k in range(len(taken) + 1) if (n := name + (f"_{k}" if k else "")) not in taken)


@lru_cache(RECENT)
def realized_block(nest: tirx.Stmt) -> s_tir.SBlockRealize | None:
    """The block that a nest of loops is around, if loads and stores of others' buffers are all it does; else None."""
    inner = in_its_loops(nest)
    one = isinstance(inner, s_tir.SBlockRealize) and len(block_names(inner)) == 1 and not inner.block.alloc_buffers
    return inner if one and not hands_over(inner) else None


def loops_of(nest: tirx.Stmt) -> list[tirx.For]:
    found = []
    while isinstance(nest, tirx.For):
        found.append(nest)
        nest = nest.body
    return found


def in_its_loops(nest: tirx.Stmt) -> tirx.Stmt:
    while isinstance(nest, tirx.For):
        nest = nest.body
    return nest


def runs_always(realize: s_tir.SBlockRealize) -> bool:
    """Whether a block has no predicate."""
    return isinstance(realize.predicate, prim.IntImm) and int(realize.predicate) == 1


@lru_cache(RECENT)
def why_not_plain(nest: tirx.Stmt) -> Reason | None:
    """Why a nest around one block is not the plain one in which every loop is one block variable over its domain."""
    loops, realize = loops_of(nest), in_its_loops(nest)
    block = realize.block
    name = block.name_hint
    if not all(map(is_serial, loops)):
        return Reason("scheduled", f"a loop of block {name} is parallel, vectorised, unrolled, bound or annotated")
    inner = [loop.loop_var for loop in loops]
    lengths = [iv.dom.extent for iv in block.iter_vars] + [e for loop in loops for e in (loop.min, loop.extent)]
    if any(uses(e, inner) for e in lengths) or not all(isinstance(iv.dom.min, prim.IntImm) for iv in block.iter_vars):
        return Reason("symbolic_shape", f"block {name} has an extent that depends on another loop")
    if block.match_buffers or block.alloc_buffers:
        return Reason("opaque_block", f"block {name} matches or allocates buffers")
    if any(iv.iter_type not in (DATA_PARALLEL, REDUCTION) for iv in block.iter_vars):
        return Reason("opaque_block", f"block {name} has an opaque iterator")
    bound: list[tirx.Var] = []
    for iv, value in zip(block.iter_vars, realize.iter_values, strict=True):
        loop = next((loop for loop in loops if loop.loop_var.same_as(value)), None)
        constant = isinstance(value, prim.IntImm) and extent_of(iv.dom.extent) == 1
        if loop is None and not constant:
            return Reason("binding", f"block {name} binds {iv.var.name} to {value}")
        if loop is not None:
            whole = same_extent(extent_of(loop.extent), extent_of(iv.dom.extent))
            if not whole or extent_of(loop.min) != 0 or int(iv.dom.min) != 0:
                return Reason("predicate", f"block {name} runs over a part of {iv.var.name} that leaves its start out")
            bound.append(loop.loop_var)
    if len(bound) != len(loops):
        return Reason("binding", f"block {name} has a loop that binds none of its variables")
    if not runs_always(realize):
        return Reason("predicate", f"block {name} runs where {realize.predicate}")
    return None


def is_serial(loop: tirx.For) -> bool:
    return bool(loop.kind == tirx.ForKind.SERIAL and loop.thread_binding is None and not loop.annotations)


def serial(loop: tirx.For) -> tirx.For:
    """The loop without vectors of TVM's; LLVM makes its own."""
    return rebuilt(loop, kind=tirx.ForKind.SERIAL, annotations={})


def uses_of(nest: tirx.Stmt) -> tuple[Uses, Uses]:
    """Loads and stores of the block in a nest, with their indices in loop variables."""
    realize = realized_block(nest)
    assert realize is not None
    block, loads, stores = realize.block, Uses(), Uses()
    bound = bound_by(realize)

    def at(indices: Sequence[ir.Expr]) -> tuple[ir.Expr, ...]:
        return tuple(substitute(index, bound) for index in indices)

    kinds = [
        (ir.TensorLoad, lambda load: loads.append((load.source, at(load.indices)))),
        (tirx.BufferStore, lambda store: stores.append((store.buffer, at(store.indices)))),
    ]
    for part in (realize.predicate, block.body, block.init):
        if part is not None:
            tvm_ffi.structural_walk(part, kinds)
    return loads, stores


def hands_over(nest: tirx.Stmt) -> bool:
    """Whether a nest uses memory other than by loads and stores of its buffers: by calls, addresses or other names."""
    matched = any(block.match_buffers for block in within(nest, s_tir.SBlock))
    return matched or bool(taken(nest) or within(nest, tirx.Evaluate, tirx.DeclBuffer))


def mentions(nest: tirx.Stmt, buffer: tirx.Var) -> bool:
    stored = (store.buffer for store in within(nest, tirx.BufferStore))
    return buffer in {*within(nest, ir.Var), *stored, *(load.source for load in loads_of(nest))}


def renewed(nest: tirx.Stmt) -> tirx.Stmt:
    """The nest over fresh variables."""
    olds = [*(loop.loop_var for loop in within(nest, tirx.For)), *(iv.var for iv in within(nest, tirx.IterVar))]
    return substitute(nest, {old: tirx.Var(old.name, old.ty) for old in olds})


def replaced(
    block: s_tir.SBlock, body: tirx.Stmt, init: tirx.Stmt | None, iters: Sequence[tirx.IterVar] = ()
) -> s_tir.SBlock:
    """The block with another body and init, and other iterators if there are some."""
    notes = {**dict(block.annotations), DETECT_ACCESS: tirx.IntImm("int32", 3)}
    iters = iters or block.iter_vars
    return rebuilt(block, iter_vars=iters, reads=[], writes=[], body=body, init=init, annotations=notes)


def resized(nest: tirx.Stmt, extents: Mapping[tirx.Var, Extent]) -> tirx.Stmt:
    """The nest with some of its loops, and the iterators that are bound to them, of other extents."""

    def loop(one: tirx.For) -> tirx.For:
        extent = extents.get(one.loop_var)
        return one if extent is None else rebuilt(one, extent=as_index(extent, dtype_of(one.loop_var)))

    def bound(realize: s_tir.SBlockRealize) -> s_tir.SBlockRealize:
        block, pairs = realize.block, list(zip(realize.block.iter_vars, realize.iter_values, strict=True))
        if extents.keys().isdisjoint(realize.iter_values):
            return realize
        iters = [
            tirx.IterVar(domain_of(iv.var, extents[value]), iv.var, iv.iter_type) if value in extents else iv
            for iv, value in pairs
        ]
        resized_block = replaced(block, block.body, block.init, iters)
        return s_tir.SBlockRealize(realize.iter_values, realize.predicate, resized_block)

    return tvm_ffi.structural_map(nest, [(tirx.For, loop), (s_tir.SBlockRealize, bound)])


def with_block(nest: tirx.Stmt, old: s_tir.SBlock, new: s_tir.SBlock) -> tirx.Stmt:
    return tvm_ffi.structural_map(nest, (s_tir.SBlock, lambda block: new if block.same_as(old) else block))


@dataclass(frozen=True, eq=False)
class LoopNest:
    """A block with its loops, outermost first, as found."""

    loops: tuple[tirx.For, ...]
    realize: s_tir.SBlockRealize

    @property
    def block(self) -> s_tir.SBlock:
        return self.realize.block

    @property
    def statement(self) -> tirx.Stmt:
        return self.loops[0] if self.loops else self.realize

    @property
    def role(self) -> str:
        """Of the block; "" where the rewrite gave none."""
        return str(self.block.annotations.get(ROLE, ""))

    @cached_property
    def stores(self) -> tuple[tirx.BufferStore, ...]:
        return tuple(within(self.block.body, tirx.BufferStore))

    @property
    def written(self) -> list[tirx.Var]:
        return [store.buffer for store in self.stores]

    def bound(self, outer: int) -> list[tuple[tirx.Var, tirx.For]]:
        """The loops below the `outer` first ones that are a block variable's, each with that variable."""
        pairs = list(zip(self.block.iter_vars, self.realize.iter_values, strict=True))
        found = [(loop, [iv.var for iv, value in pairs if value.same_as(loop.loop_var)]) for loop in self.loops[outer:]]
        return [(variables[-1], loop) for loop, variables in found if variables]


def read_nests(func: tirx.PrimFunc) -> list[LoopNest]:
    """Every block below the root, in order, with the loops around it."""
    return nests_in(func.body.block.body)


Leaf = tuple[tuple[tirx.For, ...], tirx.Stmt]


def leaves_of(statement: tirx.Stmt, around: tuple[tirx.For, ...] = ()) -> list[Leaf]:
    """What a statement holds inside of loops and sequences, in order, each with the loops around it."""
    if isinstance(statement, tirx.For):
        return leaves_of(statement.body, (*around, statement))
    if isinstance(statement, tirx.SeqStmt):
        return [leaf for part in statement.seq for leaf in leaves_of(part, around)]
    return [(around, statement)]


def nests_in(statement: tirx.Stmt, around: tuple[tirx.For, ...] = ()) -> list[LoopNest]:
    """Every block of a statement that is not in another one, in order, with the loops around it."""
    leaves = leaves_of(statement, around)
    return [LoopNest(loops, leaf) for loops, leaf in leaves if isinstance(leaf, s_tir.SBlockRealize)]


def is_of_nests(statement: tirx.Stmt) -> bool:
    """Whether a statement is loops around blocks, of which loads and stores are all that they do."""
    return all(realized_block(leaf) is not None for _, leaf in leaves_of(statement))
