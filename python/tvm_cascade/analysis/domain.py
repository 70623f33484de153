"""A PrimFunc as a list of stages: one block, one buffer, one value per point of its iteration domain.

A block that reduces a tuple is several stages, one for each buffer, that share the block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import sympy as sp
import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import prim

from tvm_cascade.algebra.reducer import HIGHEST, LOWEST, REDUCERS, Reducer
from tvm_cascade.algebra.verdict import Reason
from tvm_cascade.analysis.extent import Extent, as_index, extent_of, same_extent
from tvm_cascade.analysis.opaque import OPAQUE_CODES, Opaque, read_opaque

NUMBERS = ("int", "uint", "float", "bfloat", "bool")
"""Dtypes of parameters that are numbers: the same at every point, and so constants of every expression."""

DATA_PARALLEL, REDUCTION = tirx.IterVar.DataPar, tirx.IterVar.CommReduce


@dataclass(frozen=True)
class Stage:
    """buffer[indices] = value, or buffer[indices] ⊕= value over the reduction variables.

    Attributes
    ----------
    name : the block's name.
    buffer : what it writes.
    block : the block itself; `nest` is the statement that holds it with its loops.
    spatial, reduce : its iteration variables, with `extents` for each.
    indices : where it writes, in its spatial variables.
    value : the stored value, or the element of the reduction.
    reducer : ⊕, None for an elementwise stage.
    """

    name: str
    buffer: tirx.Var
    block: s_tir.SBlock
    nest: tirx.Stmt
    spatial: tuple[tirx.Var, ...]
    reduce: tuple[tirx.Var, ...]
    extents: dict[tirx.Var, Extent]
    indices: tuple[ir.Expr, ...]
    value: ir.Expr
    reducer: Reducer | None
    init: ir.Expr | None

    @property
    def is_part(self) -> bool:
        """Whether it is one part of a reduction of tuples."""
        return self.reducer is not None and self.reducer.whole is not None


@dataclass(frozen=True)
class Program:
    """The stages of a function, in order, and the nests that cannot be read; `params` are buffers and numbers."""

    func: tirx.PrimFunc
    root: s_tir.SBlock
    stages: tuple[Stage, ...]
    opaque: tuple[Opaque, ...] = ()

    @property
    def params(self) -> tuple[tirx.Var, ...]:
        """The function's parameters, in order."""
        return tuple(self.func.params)

    @cached_property
    def nests(self) -> tuple[tuple[Stage, ...] | Opaque, ...]:
        """The statements of the root block, in order: the stages of each, or what it touches where it is not read."""
        unread = {one.position: one for one in self.opaque}
        return tuple(
            unread.get(position) or tuple(stage for stage in self.stages if stage.nest.same_as(nest))
            for position, nest in enumerate(_statements(self.root))
        )

    def position(self, stage: Stage) -> int:
        """The place of a stage's nest among all nests."""
        return next(k for k, nest in enumerate(_statements(self.root)) if nest.same_as(stage.nest))

    def writer(self, buffer: tirx.Var) -> Stage | None:
        """The stage that writes a buffer; None for an input, and for one that nests that are not read write."""
        return next((stage for stage in self.stages if stage.buffer.same_as(buffer)), None)

    def together(self, stage: Stage) -> tuple[Stage, ...]:
        """The stages of the same block, in order: the parts of a tuple, or the stage alone."""
        return tuple(other for other in self.stages if other.block.same_as(stage.block))

    def is_param(self, buffer: tirx.Var) -> bool:
        """Whether the caller passed the buffer, so that its contents are asked for."""
        return any(buffer.same_as(param) for param in self.params)


def is_static(program: Program) -> bool:
    """Whether every extent is a number, of loops and of buffers: a cache may have more pages than a loop visits."""
    buffers = [*filter(tirx.is_buffer_var, program.params), *program.root.alloc_buffers]
    loops = [extent for stage in program.stages for extent in stage.extents.values()]
    shapes = [extent_of(extent) for buffer in buffers for extent in buffer.ty.shape]
    return all(isinstance(extent, int) for extent in (*loops, *shapes))


def same(left: ir.Expr, right: ir.Expr) -> bool:
    """Structural equality."""
    return bool(tvm_ffi.structural_equal(left, right))


def dtype_of(expression: ir.Expr) -> str:
    """The dtype of a scalar expression or of a buffer's elements."""
    ty = expression.ty
    return str(ty.dtype)


def read_program(func: tirx.PrimFunc) -> Program | Reason:
    """The function's stages; or the reason why it is not one that can be read. Never raises on a PrimFunc."""
    body = func.body
    if not isinstance(body, s_tir.SBlockRealize):
        return Reason("tirx", "no root block")
    for param in func.params:
        if not tirx.is_buffer_var(param) and not str(param.ty).startswith(NUMBERS):
            return Reason("unsupported_shape", f"parameter {param.name} is no buffer and no number")
    root = body.block
    if root.iter_vars or root.match_buffers or root.init is not None:
        return Reason("scheduled", f"the root block {root.name_hint} has iterators or matched buffers")
    nests: list[list[Stage] | Opaque] = []
    for position, nest in enumerate(_statements(root)):
        read = _read_stages(nest)
        if isinstance(read, Reason) and read.code not in OPAQUE_CODES:
            return read
        nests.append(read_opaque(nest, read, position) if isinstance(read, Reason) else read)
    from tvm_cascade.analysis.order import overwriting  # which reads stages, and so needs this module

    for position, reason in overwriting(nests, func.params).items():
        nests[position] = read_opaque(_statements(root)[position], reason, position)
    stages = tuple(stage for nest in nests if not isinstance(nest, Opaque) for stage in nest)
    for stage in stages:
        if any(extent == 0 for extent in stage.extents.values() if isinstance(extent, int)):
            return Reason("empty_axis", f"block {stage.name}")
    opaque = tuple(nest for nest in nests if isinstance(nest, Opaque))
    return Program(func, root, stages, opaque) if stages or not opaque else opaque[0].reason


def _statements(root: s_tir.SBlock) -> list[tirx.Stmt]:
    return list(root.body.seq) if isinstance(root.body, tirx.SeqStmt) else [root.body]


def _read_stages(nest: tirx.Stmt) -> list[Stage] | Reason:
    """The stage of a nest; one for each part where it reduces a tuple."""
    loops: list[tirx.For] = []
    inner = nest
    while isinstance(inner, tirx.For):
        loops.append(inner)
        inner = inner.body
    if not isinstance(inner, s_tir.SBlockRealize):
        from tvm_cascade.analysis.unread import why_several  # which reads statements, and so needs this module

        return why_several(nest)
    block = inner.block
    if reason := why_not_plain(nest):
        return reason
    extents = {iv.var: extent_of(iv.dom.extent) for iv in block.iter_vars}
    if not isinstance(block.body, tirx.BufferStore):
        code = "extern" if isinstance(block.body, tirx.Evaluate) else "opaque_block"
        if isinstance(block.body, tirx.SeqStmt) and block.init is not None:
            from tvm_cascade.analysis.tuple_block import read_tuple  # which reads expressions, and so needs this module

            return read_tuple(nest, block, extents)
        return Reason(code, f"block {block.name_hint} is no single store")
    stage = _plain_stage(nest, block, extents)
    return stage if isinstance(stage, Reason) else [stage]


def why_not_plain(nest: tirx.Stmt) -> Reason | None:
    """Why a nest around one block is not the plain one in which every loop is one block variable over its domain."""
    loops, realize = [], nest
    while isinstance(realize, tirx.For):
        loops.append(realize)
        realize = realize.body
    block = realize.block
    name = block.name_hint
    if any(loop.kind != tirx.ForKind.SERIAL or loop.thread_binding is not None or loop.annotations for loop in loops):
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
    if not (isinstance(realize.predicate, prim.IntImm) and int(realize.predicate) == 1):
        return Reason("predicate", f"block {name} runs where {realize.predicate}")
    return None


def _plain_stage(nest: tirx.Stmt, block: s_tir.SBlock, extents: dict[tirx.Var, Extent]) -> Stage | Reason:
    store = block.body
    spatial = tuple(iv.var for iv in block.iter_vars if iv.iter_type == DATA_PARALLEL)
    reduce = tuple(iv.var for iv in block.iter_vars if iv.iter_type == REDUCTION)
    value, reducer, init = store.value, None, None
    begins = [block.init.value] if isinstance(block.init, tirx.BufferStore) else []
    own = [load for e in (value, *begins) for load in loads_of(e) if load.source.same_as(store.buffer)]
    if earlier := [load for load in own if not same(list(load.indices), list(store.indices))]:
        return Reason("carried", f"block {block.name_hint} reads {earlier[0]} while it writes {store.buffer.name}")
    if reduce or block.init is not None:
        if not isinstance(block.init, tirx.BufferStore):
            return Reason("opaque_block", f"block {block.name_hint} reduces without a plain init")
        parts = split_reduction(store)
        if parts is None:
            return Reason("reducer", f"block {block.name_hint} stores {store.value}")
        reducer, value = parts
        init, started = block.init.value, (block.init.buffer, list(block.init.indices))
        if not started[0].same_as(store.buffer) or not same(started[1], list(store.indices)):
            return Reason("opaque_block", f"block {block.name_hint} starts another element than it accumulates into")
        if any(uses(index, reduce) for index in store.indices):
            return Reason("opaque_block", f"block {block.name_hint} moves its result along an axis that it reduces")
        if not starts_at_identity(reducer, init):
            return Reason("reducer", f"block {block.name_hint} starts its {reducer} at {init}")
        reducer = started_at(reducer, init)
    return Stage(
        block.name_hint, store.buffer, block, nest, spatial, reduce, extents, tuple(store.indices), value, reducer, init
    )


_COMBINERS: tuple[tuple[Any, str], ...] = (
    (prim.Add, "sum"),
    (prim.Mul, "prod"),
    (prim.Max, "max"),
    (prim.Min, "min"),
    (prim.And, "and"),
    (prim.Or, "or"),
)
_COMBINING_CALLS = {"bitwise_and": "and", "bitwise_or": "or"}


def split_reduction(store: tirx.BufferStore) -> tuple[Reducer, ir.Expr] | None:
    """(⊕, e) of `buffer[i] = buffer[i] ⊕ e`, in either order; None for anything else."""
    value = store.value
    name: str | None = None
    sides: tuple[ir.Expr, ...] = ()
    for kind, reducer in _COMBINERS:
        if isinstance(value, kind):
            name, sides = reducer, (value.a, value.b)
    if isinstance(value, ir.Call) and isinstance(value.op, ir.Op) and dtype_of(value) == "bool":
        name = _COMBINING_CALLS.get(value.op.name.split(".")[-1])
        sides = tuple(value.args)
    if name is None:
        return None
    own = tirx.BufferLoad(store.buffer, list(store.indices))
    for mine, element in ((sides[0], sides[1]), (sides[1], sides[0])):
        if same(mine, own) and not reads_buffer(element, store.buffer):
            return REDUCERS[name], element
    return None


def starts_at_identity(reducer: Reducer, init: ir.Expr) -> bool:
    """Whether a reduction's init is ⊕'s identity in its dtype."""
    if not isinstance(init, (prim.FloatImm, prim.IntImm)):
        return False
    return started_at(reducer, init).infinite or same(init, identity_of(reducer, dtype_of(init)))


def started_at(reducer: Reducer, init: ir.Expr | None) -> Reducer:
    """The reducer as a program starts it: at its infinite identity where that is what the init is."""
    infinite = reducer.ordered and isinstance(init, prim.FloatImm) and float(init) == float(reducer.identity)
    return reducer.from_infinity if infinite else reducer


def extreme(symbol: sp.Expr, dtype: str) -> ir.Expr | None:
    """The dtype's own lowest or highest value, or an infinity, as a constant; None for any other expression."""
    table: dict[sp.Expr, Callable[[], ir.Expr]] = {
        LOWEST: lambda: tirx.min_value(dtype),
        HIGHEST: lambda: tirx.max_value(dtype),
        -sp.oo: lambda: tirx.const(float("-inf"), dtype) if _has_infinity(dtype) else tirx.min_value(dtype),
        sp.oo: lambda: tirx.const(float("inf"), dtype) if _has_infinity(dtype) else tirx.max_value(dtype),
    }
    return table[symbol]() if symbol in table else None


def _has_infinity(dtype: str) -> bool:
    return dtype in ("float16", "bfloat16", "float32", "float64")


def identity_of(reducer: Reducer, dtype: str) -> ir.Expr:
    """⊕'s neutral element as a constant; for max and min the dtype's own lowest and highest value, as TVM has it.

    For those that a program starts at an infinity, it is that.
    """
    if reducer.whole is not None or reducer.infinite:
        bound = extreme(reducer.identity, dtype)
        plain = float(reducer.identity) if bound is None and dtype.startswith(("float", "bfloat")) else None
        return bound if bound is not None else tirx.const(int(reducer.identity) if plain is None else plain, dtype)
    table: dict[str, Callable[[], ir.Expr]] = {
        "sum": lambda: tirx.const(0, dtype),
        "prod": lambda: tirx.const(1, dtype),
        "max": lambda: tirx.min_value(dtype),
        "min": lambda: tirx.max_value(dtype),
        "and": lambda: tirx.const(True, dtype),
        "or": lambda: tirx.const(False, dtype),
    }
    return table[reducer.name]()


def loads_of(expression: ir.Expr) -> list[ir.TensorLoad]:
    """Every buffer load in an expression, outermost first."""
    found: list[ir.TensorLoad] = []
    tvm_ffi.structural_walk(expression, (ir.TensorLoad, lambda load: found.append(load)), order="pre")
    return found


def reads_buffer(expression: ir.Expr, buffer: tirx.Var) -> bool:
    """Whether the expression loads from the buffer."""
    return any(load.source.same_as(buffer) for load in loads_of(expression))


def variables_of(expression: ir.Expr) -> list[tirx.Var]:
    """The scalar variables of an expression."""
    found: list[tirx.Var] = []

    def note(var: tirx.Var) -> None:
        if not tirx.is_buffer_var(var) and not any(var.same_as(other) for other in found):
            found.append(var)

    tvm_ffi.structural_walk(expression, (ir.Var, note), order="pre")
    return found


def uses(expression: ir.Expr, variables: Sequence[tirx.Var]) -> bool:
    """Whether any of the variables occurs in the expression."""
    return any(var.same_as(other) for var in variables_of(expression) for other in variables)


def substitute(expression: ir.Expr, values: dict[tirx.Var, ir.Expr]) -> ir.Expr:
    """The expression with variables replaced, all at once."""

    def replace(var: tirx.Var) -> ir.Expr:
        return next((value for key, value in values.items() if key.same_as(var)), var)

    return tvm_ffi.structural_map(expression, (ir.Var, replace))


def simplify_index(expression: ir.Expr, extents: dict[tirx.Var, Extent]) -> ir.Expr:
    """An integer expression simplified, with each variable in [0, extent).

    A variable of extent 1 is kept, as if it had two values: which axis an index runs along must still be seen.
    """
    analyzer = tvm.sym.Analyzer()
    for var, extent in extents.items():
        last = as_index(max(extent, 2) if isinstance(extent, int) else extent, dtype_of(var))
        analyzer.bind(var, ir.Range(tirx.const(0, dtype_of(var)), last))
    return analyzer.simplify(expression)
