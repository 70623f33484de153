"""Cells of a CPU's thread on its stack.

TVM keeps a small buffer of scope "global" on the stack. One of scope "local", which is a GPU thread's registers, it
asks the runtime's workspace for each time that it is needed: about 30 ns for each register tile, and for each row.

Nests in one parallel loop get storage of each other's buffers, but of the same scope: where a register tile has that of
a larger one, it is in memory.

Where TVM's generator of LLVM code meets a let it asks for bounds of the variable, with all that it knows of those
before it written out in its value. A chain of lets, each of which reads the one before it several times, as roundings
to bfloat16 do, takes time exponential in its length; cells that are stored and loaded are not written out.
"""

from __future__ import annotations

import math

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.expression import call_name
from tvm_cascade.analysis.statements import allocating, serial
from tvm_cascade.analysis.tir import dtype_of, in_buffers, rebuilt, substitute, within

STACK = 1024
"""Bytes that an array on the stack has less than: TVM keeps larger ones elsewhere."""

_WORKSPACE = "global.workspace"

_WRITTEN_OUT = 3
"""Lets in the values of lets that are compiled in 50 ms; each further one takes 16 times as long."""


def cells_on_the_stack(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with its local buffers on the stack, where they are small; the same object where there are none."""
    buffers = [buffer for block in within(func.body, s_tir.SBlock) for buffer in block.alloc_buffers]
    apart = any(buffer.scope() == _WORKSPACE for buffer in buffers)
    cells = {
        buffer: _in(_WORKSPACE if apart and _bytes(buffer) >= STACK else "global", buffer)
        for buffer in buffers
        if buffer.scope() == "local"
    }
    if not cells:
        return func

    def allocate(block: s_tir.SBlock) -> s_tir.SBlock:
        local = not cells.keys().isdisjoint(block.alloc_buffers)
        return rebuilt(block, alloc_buffers=[cells.get(b, b) for b in block.alloc_buffers]) if local else block

    return func.with_body(tvm_ffi.structural_map(in_buffers(func.body, cells), (s_tir.SBlock, allocate)))


def in_the_workspace(buffer: tirx.Var) -> tirx.Var:
    """A buffer with storage that is nobody's on the stack; one of a thread's registers as it is."""
    return buffer if buffer.scope() == "local" else _in(_WORKSPACE, buffer)


def _in(scope: str, buffer: tirx.Var) -> tirx.Var:
    return tirx.decl_buffer(list(buffer.ty.shape), dtype_of(buffer), name=buffer.name, scope=scope, layout=None)


def _bytes(buffer: tirx.Var) -> int:
    return math.prod(map(int, buffer.ty.shape)) * tvm.DataType(dtype_of(buffer)).itemsize


def lets_on_the_stack(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with the lets of values in which they nest deep as cells; a schedule takes it no more.

    TVM's vectors do not make a cell of each lane: loops around cells are left to LLVM, which does.
    """
    cells: set[tirx.Var] = set()
    made: list[tirx.Var] = []

    def store(place: tirx.BufferStore) -> tirx.Stmt:
        if _depth(place.value) <= _WRITTEN_OUT:
            return place
        before = _Cells()
        value = before.instead(place.value)
        made.extend(one.buffer for one in before.stores)
        cells.update(one.buffer for one in before.stores)
        return tirx.SeqStmt([*before.stores, tirx.BufferStore(place.buffer, value, place.indices)])

    def leave(loop: tirx.For) -> tirx.For:
        holds_cells = cells and any(one.buffer in cells for one in within(loop.body, tirx.BufferStore))
        return serial(loop) if holds_cells and loop.kind == tirx.ForKind.VECTORIZED else loop

    body = tvm_ffi.structural_map(func.body, [(tirx.BufferStore, store), (tirx.For, leave)])
    return allocating(func.with_body(body), made) if made else func


def _depth(value: ir.Expr) -> int:
    """How many lets a let of the value is in the values of, itself counted, at most."""
    depths: dict[tirx.Var, int] = {}
    for let in within(value, prim.Let):
        depths[let.var] = 1 + max((depths[one.var] for one in within(let.value, prim.Let)), default=0)
    return max(depths.values(), default=0)


class _Cells:
    """Cells for the lets of a value, and what stores them, in order."""

    def __init__(self) -> None:
        self.stores: list[tirx.BufferStore] = []
        self._loads: dict[tirx.Var, ir.Expr] = {}

    def instead(self, value: ir.Expr) -> ir.Expr:
        return self._whole(tvm_ffi.structural_map(value, (ir.Call, _selected)))

    def _whole(self, value: ir.Expr) -> ir.Expr:
        return substitute(tvm_ffi.structural_map(self._body(value), (prim.Let, self._body), order="pre"), self._loads)

    def _body(self, let: ir.Expr) -> ir.Expr:
        while isinstance(let, prim.Let):
            if let.var not in self._loads:
                value = self._whole(let.value)
                cell = tirx.decl_buffer([1], dtype_of(let.var), name=let.var.name, layout=None)
                self.stores.append(tirx.BufferStore(cell, value, [0]))
                self._loads[let.var] = tirx.BufferLoad(cell, [0])
            let = let.body
        return let


def _selected(call: ir.Call) -> ir.Expr:
    """What is computed on a condition and holds lets, computed whatever it is, of what is loaded on the condition."""
    if call_name(call) != "if_then_else" or not within(call, prim.Let):
        return call
    condition, chosen, other = call.args

    def on(condition: ir.Expr, value: ir.Expr) -> ir.Expr:
        def load(one: ir.TensorLoad | ir.Call) -> ir.Expr:
            bits = call_name(one) == "reinterpret" and isinstance(one.args[0], ir.TensorLoad)  # of bfloat16
            if dtype_of(one) == "bfloat16" or not (bits or isinstance(one, ir.TensorLoad)):
                return one
            return tirx.if_then_else(condition, one, tirx.const(1, dtype_of(one)))  # 1 may be a divisor

        return tvm_ffi.structural_map(value, ((ir.TensorLoad, ir.Call), load))

    return prim.Select(condition, on(condition, chosen), on(tirx.Not(condition), other))
