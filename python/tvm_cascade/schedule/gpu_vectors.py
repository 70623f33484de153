"""Maps on a GPU whose threads move 16 bytes at once: neighbours are loaded, computed one by one in registers, stored.

    out[i, j] = f(where(j < n, x[i, j + n], y[i, j − n]), z[j])           of n that is a multiple of 8

    for each i and g:  if 8·g < n:   x8 = x[i, 8·g + n : … + 8]
                       if 8·g ≥ n:   y8 = y[i, 8·g − n : … + 8]
                       z8 = z[8·g : 8·g + 8]
                       out8[e] = f(where(8·g < n, x8[e], y8[e]), z8[e])   for each e
                       out[i, 8·g : 8·g + 8] = out8

A map is one where all that it reads has neighbours where its result has them, or one value for all of a group: along
joined and split axes, in rows that data name, and in the parts of a concatenation, whose conditions are decided for
whole groups. Of pairs, as of gates beside what they gate, both are loaded, and each is taken from the same registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial

import tvm
import tvm_ffi
from tvm import ir, s_tir, sym, tirx
from tvm.ir import prim

from tvm_cascade.analysis.expression import operands_of, selection_of, with_operands
from tvm_cascade.analysis.statements import ROLE, LoopNest, new_block
from tvm_cascade.analysis.tir import (
    DATA_PARALLEL,
    bound_by,
    dtype_of,
    extent_of,
    is_float,
    loads_of,
    product,
    same,
    substitute,
    uses,
    within,
)
from tvm_cascade.devices.device import Gpu
from tvm_cascade.schedule.nests import BlockPlan, Written, rewritten

VECTORS = "vectors"
"""The role of a block that computes a vector of neighbours."""

_BYTES = 16
"""That a thread moves at once."""

_VECTORIZED, _UNROLLED = tirx.ForKind.VECTORIZED, tirx.ForKind.UNROLLED


def with_vectors(func: tirx.PrimFunc, gpu: Gpu) -> tirx.PrimFunc:
    """The function with vectors in the nests that are such maps; the same object where there is none.

    Parameters
    ----------
    func : of plain nests and fused loops, not scheduled yet; it is not modified.
    gpu : a map of fewer vectors than its threads in flight has shorter ones, or none.
    """
    return rewritten(func, partial(_in_vectors, gpu))


def _in_vectors(gpu: Gpu, nest: LoopNest, plan: BlockPlan) -> Written | None:
    """The nest in vectors; None where it is no such map."""
    one_each = len(nest.loops) == len(nest.block.iter_vars) == len(plan.own)
    axis = plan.last_axis() if plan.is_plain and not plan.reduce and one_each else None
    if axis is None:
        return None
    lanes = _lanes(plan, axis, gpu)
    while lanes > 1:
        try:
            return [_written(nest, plan, axis, lanes)], []
        except _NoVector:
            lanes //= 2
    return None


def _lanes(plan: BlockPlan, axis: int, gpu: Gpu) -> int:
    """Elements of a vector, at most; fewer where threads would be few."""
    extent, lanes = plan.extents[axis], _BYTES // tvm.DataType(plan.dtype).itemsize
    elements = product(plan.extents.values())
    while lanes > 1 and (not isinstance(extent, int) or extent % lanes):
        lanes //= 2
    while lanes > 1 and isinstance(elements, int) and elements < lanes * gpu.processors * gpu.warp:
        lanes //= 2
    return lanes


class _NoVector(Exception):
    """Neighbours of a map are none in what it reads or writes."""


@dataclass(frozen=True)
class _Run:
    """Neighbours in memory, of which every `step`th is asked for, from `start` on.

    Attributes
    ----------
    first : indices of the first neighbour.
    count : how many there are.
    """

    first: tuple[ir.Expr, ...]
    count: int
    step: int
    start: int

    def at(self, place: tirx.Var) -> list[ir.Expr]:
        return [*self.first[:-1], self.first[-1] + place]


@dataclass(frozen=True)
class _Vector:
    """Neighbours in registers.

    Attributes
    ----------
    run : in a buffer.
    conditions : on which they are loaded.
    """

    buffer: tirx.Var
    run: _Run
    conditions: tuple[ir.Expr, ...]

    @cached_property
    def registers(self) -> tirx.Var:
        return _registers(f"{self.buffer.name}_vector", self.run.count, dtype_of(self.buffer))

    def holds(self, other: _Vector) -> bool:
        """Whether these are the same neighbours, loaded on the same conditions."""
        known = self.buffer.same_as(other.buffer) and self.run.count == other.run.count
        return known and same([*self.run.first, *self.conditions], [*other.run.first, *other.conditions])


@dataclass
class _Writer:
    """Rewrites a map's element over a group and a place in it.

    Attributes
    ----------
    lane : the place.
    lanes : how many there are.
    analyzer : knows the extents of all variables, and the conditions that hold.
    """

    lane: tirx.Var
    lanes: int
    analyzer: sym.Analyzer
    conditions: list[ir.Expr] = field(default_factory=list)
    vectors: list[_Vector] = field(default_factory=list)

    def value(self, expression: ir.Expr) -> ir.Expr:
        """An element, with vectors in place of loads of neighbours."""
        if isinstance(expression, ir.TensorLoad):
            return self._load(expression)
        if (chosen := selection_of(expression)) is not None:
            return self._selection(expression, *chosen)
        if operands := operands_of(expression):
            return with_operands(expression, [self.value(operand) for operand in operands])
        if not is_float(dtype_of(expression)):  # a condition or an index
            expression = self.analyzer.simplify(expression)
        if not uses(expression, [self.lane]):
            return expression
        loads = loads_of(expression)
        if any(selection_of(found) is not None for found in within(expression, ir.Call, prim.Select)):
            raise _NoVector
        known = [(load, self._load(load)) for load in loads]
        return tvm_ffi.structural_map(
            expression, (ir.TensorLoad, lambda load: next(new for old, new in known if same(old, load)))
        )

    def along(self, buffer: tirx.Var, indices: Sequence[ir.Expr]) -> _Run | None:
        """The neighbours that indices run along; None where all are one and the same.

        Raises
        ------
        _NoVector
            Where they are none, from a multiple of their number on, nor every other one of them.
        """
        indices = [self.analyzer.simplify(index) for index in indices]
        if not any(uses(index, [self.lane]) for index in indices):
            return None
        zero = tirx.const(0, dtype_of(self.lane))
        first = [self.analyzer.simplify(substitute(index, {self.lane: zero})) for index in indices]
        moved = [self.analyzer.can_prove_equal(one, other) for one, other in zip(indices[:-1], first[:-1], strict=True)]
        step = next((n for n in (1, 2) if self.analyzer.can_prove_equal(indices[-1], first[-1] + n * self.lane)), 0)
        width, dtype = extent_of(buffer.ty.shape[-1]), dtype_of(buffer)
        if not all(moved) or not step or dtype == "bool":
            raise _NoVector  # TVM's CUDA text has vectors of two bytes for each truth value, and a buffer has one
        count, bytes_of_one = step * self.lanes, tvm.DataType(dtype).itemsize
        whole = [at for at in range(step) if self.analyzer.can_prove(tirx.floormod(first[-1] - at, count).equal(0))]
        if not isinstance(width, int) or width % count or not whole or count * bytes_of_one > _BYTES:
            raise _NoVector
        return _Run((*first[:-1], self.analyzer.simplify(first[-1] - whole[0])), count, step, whole[0])

    def _load(self, load: ir.TensorLoad) -> ir.Expr:
        run = self.along(load.source, load.indices)
        if run is None:
            return tirx.BufferLoad(load.source, [self.analyzer.simplify(index) for index in load.indices])
        vector = _Vector(load.source, run, tuple(self.conditions))
        known = next((one for one in self.vectors if one.holds(vector)), vector)
        if known is vector:
            self.vectors.append(known)
        return tirx.BufferLoad(known.registers, [self.lane if run.step == 1 else self.lane * run.step + run.start])

    def _selection(self, expression: ir.Expr, condition: ir.Expr, chosen: ir.Expr, other: ir.Expr) -> ir.Expr:
        """A selection: loads of a branch are made where its condition holds, which is decided for all of a group."""
        if isinstance(expression, prim.Select):  # both are computed
            return prim.Select(*(self.value(part) for part in (condition, chosen, other)))
        holds, fails = self._decided(condition)
        branches = []
        for known, branch in ((holds, chosen), (fails, other)):
            with self._where(known):
                branches.append(self.value(branch))
        return tirx.if_then_else(holds, *branches)

    def _decided(self, condition: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
        """(the condition, its opposite) as the first of a group decides them for all.

        Raises
        ------
        _NoVector
            Where they may differ.
        """
        condition = self.analyzer.simplify(condition)
        if not uses(condition, [self.lane]):
            return condition, tirx.Not(condition)
        first = substitute(condition, {self.lane: tirx.const(0, dtype_of(self.lane))})
        both = tuple(self.analyzer.simplify(known) for known in (first, tirx.Not(first)))
        for known, told in zip(both, (condition, tirx.Not(condition)), strict=True):
            with self.analyzer.constraint_scope(known):
                if loads_of(condition) or not self.analyzer.can_prove(told):
                    raise _NoVector
        return both[0], both[1]

    @contextmanager
    def _where(self, condition: ir.Expr) -> Iterator[None]:
        self.conditions.append(condition)
        with self.analyzer.constraint_scope(condition):
            yield
        self.conditions.pop()


def _registers(name: str, lanes: int, dtype: str) -> tirx.Var:
    return tirx.decl_buffer([lanes], dtype, name=name, scope="local", layout=None)


def _written(nest: LoopNest, plan: BlockPlan, axis: int, lanes: int) -> tirx.Stmt:
    """The nest over groups of neighbours along an axis.

    Raises
    ------
    _NoVector
        Where it is no such map.
    """
    (store,), variable = plan.stores, plan.variables[axis]
    dtype = dtype_of(variable)
    group, lane = tirx.Var(f"{variable.name}_group", dtype), tirx.Var("lane", dtype)
    count = tirx.const(int(plan.extents[axis]) // lanes, dtype)
    analyzer, zero = sym.Analyzer(), tirx.const(0, dtype)
    iters = [
        tirx.IterVar(ir.Range(zero, count), group, DATA_PARALLEL) if iv.var.same_as(variable) else iv
        for iv in nest.block.iter_vars
    ]
    for iv in iters:
        analyzer.bind(iv.var, iv.dom)
    analyzer.bind(lane, ir.Range(zero, tirx.const(lanes, dtype)))
    writer, place = _Writer(lane, lanes, analyzer), {variable: group * lanes + lane}
    target = writer.along(store.buffer, [substitute(index, place) for index in store.indices])
    value = writer.value(substitute(store.value, place))
    if target is None or target.step > 1:
        raise _NoVector
    out = _registers(f"{store.buffer.name}_vector", lanes, dtype_of(store.buffer))
    body = [_loaded(writer, vector) for vector in writer.vectors]
    body.append(_each(lane, lanes, lambda e: tirx.BufferStore(out, substitute(value, {lane: e}), [e]), _UNROLLED))
    body.append(_each(lane, lanes, lambda e: tirx.BufferStore(store.buffer, tirx.BufferLoad(out, [e]), target.at(e))))
    registers, notes = [*(vector.registers for vector in writer.vectors), out], {ROLE: VECTORS}
    block = new_block(nest.block.name_hint, tirx.SeqStmt(body), iters, allocated=registers, notes=notes)
    statement: tirx.Stmt = s_tir.SBlockRealize(nest.realize.iter_values, nest.realize.predicate, block)
    bound = bound_by(nest.realize)[variable]
    for loop in reversed(nest.loops):
        extent = count if loop.loop_var.same_as(bound) else loop.extent
        statement = tirx.For(loop.loop_var, loop.min, extent, tirx.ForKind.SERIAL, statement)
    return statement


def _each(lane: tirx.Var, count: int, made: Callable[[tirx.Var], tirx.Stmt], kind: int = _VECTORIZED) -> tirx.Stmt:
    """A statement for each of so many places, under a variable of its own."""
    own = tirx.Var("e", dtype_of(lane))
    return tirx.For(own, tirx.const(0, dtype_of(own)), tirx.const(count, dtype_of(own)), kind, made(own))


def _loaded(writer: _Writer, vector: _Vector) -> tirx.Stmt:
    """The load of neighbours, where their conditions hold."""

    def one(e: tirx.Var) -> tirx.Stmt:
        return tirx.BufferStore(vector.registers, tirx.BufferLoad(vector.buffer, vector.run.at(e)), [e])

    made = _each(writer.lane, vector.run.count, one)
    for condition in reversed(vector.conditions):
        made = tirx.IfThenElse(condition, made, None)
    return made
