"""Products each row of which picks its matrix by data, in runs of rows that pick the same one.

    for i in s, n, k: y[i, n] += x[i, k] · w[g[i], n, k]
    ->  first[r] = the row at which the r-th run of equal g[i] starts
        parallel for panel of columns, for run r:
            panel[k, n] = w[g[first[r]], n, k]
            for rows of the run, in register tiles of 12 rows, then of 6, 3 and 1:  y[i, n] += x[i, k] · panel[k, n]

Rows that are sorted by what they pick, as those of a mixture of experts are, make one run of each matrix, which is read
once; others are as right. A matrix that no row picks is not read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import prim

from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.analysis.extent import Extent, as_index
from tvm_cascade.analysis.reducers import split_reduction, starts_at_identity
from tvm_cascade.analysis.statements import DETECT_ACCESS, realized_block
from tvm_cascade.analysis.tir import dtype_of, loads_of, substitute, uses
from tvm_cascade.devices.device import Cpu
from tvm_cascade.schedule.microkernel import register_tile
from tvm_cascade.schedule.nests import BlockPlan, nests_in, plan_nest
from tvm_cascade.schedule.padding import nests_of, with_nests
from tvm_cascade.schedule.private_copy import private_copy
from tvm_cascade.transform.nest import ROLE, load, sequence, store

__all__ = ["RUNS", "products_in_runs", "with_runs_marked"]

RUNS = "runs"
"""The role of such a product."""

MOST_ROWS = 96
"""Rows by which register tiles are chosen: how many a run has is data."""

TASKS_OF_A_CORE = 2
"""Tasks for each core, at least: where there are few panels, runs are shared out too."""


def with_runs_marked(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with such products marked, so that nobody else schedules them; the same object without any.

    Parameters
    ----------
    func : plain nests, not scheduled.
    """
    names = [found.plan.name for found in map(_picking, nests_of(func)) if found is not None and not found.plan.role]
    if not names:
        return func
    sch = s_tir.Schedule(private_copy(func))
    for name in names:
        sch.annotate(sch.get_sblock(name), ROLE, RUNS)
    return sch.mod["main"]


def products_in_runs(func: tirx.PrimFunc, cpu: Cpu) -> tirx.PrimFunc:
    """The function with the products that were marked in runs; the same object where there are none.

    Parameters
    ----------
    func : whose other nests are scheduled: primitives refuse what is between these.
    cpu : for whose registers and cores tiles and tasks are cut.
    """
    statements, made = list[tirx.Stmt](), list[tirx.Var]()
    for nest in nests_of(func):
        found = _picking(nest)
        if found is None or found.plan.role != RUNS:
            statements.append(nest)
            continue
        runs = _Runs(found, cpu)
        statements += runs.nests()
        made += runs.buffers
    return with_nests(func, statements, [*func.body.block.alloc_buffers, *made]) if made else func


@dataclass(frozen=True)
class _Picking:
    """A product Σ_k of a row's element and one of the matrix that the row picks.

    Attributes
    ----------
    plan : of its block; `row`, `column` and `depth` are the block's variables, in this order.
    left, right : the elements.
    picks : what the right one has of the row: integers in memory.
    """

    plan: BlockPlan
    variables: tuple[tirx.Var, tirx.Var, tirx.Var]
    extents: tuple[Extent, int, int]
    left: ir.Expr
    right: ir.Expr
    picks: tuple[ir.TensorLoad, ...]


def _picking(nest: tirx.Stmt) -> _Picking | None:
    """A nest as such a product; None of any other."""
    realize = realized_block(nest)
    if realize is None or len(nests := nests_in(nest)) != 1:
        return None
    plan = plan_nest(nests[0])
    if plan.role not in ("", RUNS) or len(plan.own) != 3 or len(plan.stores) != 1 or not plan.independent or plan.binds:
        return None
    reduction, place = split_reduction(plan.stores[0]), plan.stores[0]
    axes = [*map(plan.axis_at, place.indices), *plan.reduce]
    if reduction is None or reduction[0] is not SUM or sorted(map(repr, axes)) != sorted(map(repr, plan.own)):
        return None
    init, element = realize.block.init, reduction[1]
    if (
        not isinstance(init, tirx.BufferStore)
        or not starts_at_identity(SUM, init.value)
        or type(element) is not prim.Mul
    ):
        return None
    row, column, depth = (plan.variables[axis] for axis in axes if axis is not None)
    extents = tuple(plan.extents[axis] for axis in axes if axis is not None)
    for left, right in ((element.a, element.b), (element.b, element.a)):
        picks = _picks(right, row)
        fixed = isinstance(extents[1], int) and isinstance(extents[2], int)
        if picks and fixed and not uses(left, [column]) and uses(left, [row]) and uses(right, [column]):
            return _Picking(plan, (row, column, depth), extents, left, right, picks)  # type: ignore[arg-type]
    return None


def _picks(element: ir.Expr, row: tirx.Var) -> tuple[ir.TensorLoad, ...]:
    """The integers through which alone an element depends on the row; none where it does so otherwise."""
    inner = [own for one in loads_of(element) for index in one.indices for own in loads_of(index)]
    picks = [one for one in inner if uses(one, [row])]
    aside = [one for one in loads_of(element) if not any(one.same_as(pick) for pick in picks)]
    free = {pick.source: tirx.const(0, dtype_of(pick)) for pick in picks}
    plain = [_without(index, free) for one in aside for index in one.indices]
    return () if any(uses(index, [row]) for index in plain) else tuple(picks)


def _without(index: ir.Expr, values: dict[tirx.Var, ir.Expr]) -> ir.Expr:
    """An index with constants in place of loads, by their buffer."""

    def constant(one: ir.TensorLoad) -> ir.Expr:
        return next((value for buffer, value in values.items() if buffer.same_as(one.source)), one)

    return tvm_ffi.structural_map(index, (ir.TensorLoad, constant))


class _Runs:
    """One product in runs.

    Attributes
    ----------
    buffers : of the function's own, that its nests hand to each other.
    """

    def __init__(self, found: _Picking, cpu: Cpu) -> None:
        self.found, self.cpu = found, cpu
        self.row, self.column, self.depth = found.variables
        self.place = found.plan.stores[0]
        self.dtype, self.index = found.plan.dtype, dtype_of(self.row)
        self.rows = as_index(found.extents[0], self.index)
        lanes = cpu.lanes(self.dtype)
        self.columns, self.length = found.extents[1], found.extents[2]
        self.width, self.vectors, self.tall = register_tile(
            -(-self.columns // lanes) * lanes, MOST_ROWS, cpu, self.dtype
        )
        self.panel = self.width * self.vectors
        self.first = self._buffer("first", [self.rows + 1], self.index)
        self.count = self._buffer("runs", [1], self.index)
        self.copy = self._buffer("rows", [self.rows, self.length], self.dtype)
        self.buffers = [self.first, self.count, self.copy]

    def nests(self) -> list[tirx.Stmt]:
        """The nests: where runs start, the rows in the dtype of sums, and the product."""
        name = self.found.plan.name
        parts = {f"{name}_runs": self._starts(), f"{name}_rows": self._copied(), name: self._product()}
        return [_block(own, body) for own, body in parts.items()]

    def _buffer(self, name: str, shape: Sequence[object], dtype: str) -> tirx.Var:
        return tirx.decl_buffer(list(shape), dtype, name=f"{self.place.buffer.name}_{name}", layout=None)

    def _const(self, value: int) -> ir.Expr:
        return tirx.const(value, self.index)

    def _loop(
        self,
        name: str,
        extent: ir.Expr | int,
        body: Callable[[tirx.Var], list[tirx.Stmt]],
        kind: int = tirx.ForKind.SERIAL,
    ) -> tirx.Stmt:
        var = tirx.Var(name, self.index)
        return tirx.For(var, self._const(0), as_index(extent, self.index), kind, sequence(body(var)))

    def _vectors(self, body: Callable[[ir.Expr], tirx.Stmt]) -> list[tirx.Stmt]:
        """A statement for each column of a panel."""

        def vector(first: int) -> tirx.Stmt:
            return self._loop("lane", self.width, lambda lane: [body(lane + first)], tirx.ForKind.VECTORIZED)

        return [vector(v * self.width) for v in range(self.vectors)]

    def _starts(self) -> list[tirx.Stmt]:
        """Where runs start, in order, and behind the last one the number of rows."""
        zero, count = [self._const(0)], load(self.count, [self._const(0)])

        def step(i: tirx.Var) -> list[tirx.Stmt]:
            before = tirx.max(i - 1, self._const(0))
            pairs = [
                (substitute(pick, {self.row: i}), substitute(pick, {self.row: before})) for pick in self.found.picks
            ]
            differs = i.equal(0)
            for here, there in pairs:
                differs = tirx.Or(differs, here != there)
            begun = [store(self.first, i, [count]), store(self.count, count + 1, zero)]
            return [tirx.IfThenElse(differs, sequence(begun), None)]

        walk = self._loop("i", self.rows, step)
        return [store(self.count, self._const(0), zero), walk, store(self.first, self.rows, [count])]

    def _copied(self) -> list[tirx.Stmt]:
        """Rows in the dtype of sums."""

        def row(i: tirx.Var) -> list[tirx.Stmt]:
            return [self._loop("k", self.length, lambda k: [self._copy(i, k)])]

        return [self._loop("i", self.rows, row, tirx.ForKind.PARALLEL)]

    def _copy(self, i: tirx.Var, k: tirx.Var) -> tirx.Stmt:
        return store(self.copy, substitute(self.found.left, {self.row: i, self.depth: k}), [i, k])

    def _product(self) -> list[tirx.Stmt]:
        panels = -(-self.columns // self.panel)
        shares = -(-TASKS_OF_A_CORE * self.cpu.cores // panels)

        def task(number: tirx.Var) -> list[tirx.Stmt]:
            share, panel = number % shares, number // shares
            count = load(self.count, [self._const(0)])
            begin, end = count * share // shares, count * (share + 1) // shares
            operand = self._buffer("panel", [self.length, self.panel], self.dtype)
            runs = self._loop("run", end - begin, lambda run: self._run(begin + run, panel * self.panel, operand))
            return [_block(f"{self.found.plan.name}_task", [runs], [operand])]

        return [self._loop("task", panels * shares, task, tirx.ForKind.PARALLEL)]

    def _run(self, run: ir.Expr, column: ir.Expr, operand: tirx.Var) -> list[tirx.Stmt]:
        """A panel of columns of one run."""
        start = load(self.first, [run])
        rows = load(self.first, [run + 1]) - start
        statements = [self._packed(start, column, operand)]
        for height, before in _heights(self.tall):
            left = rows if before is None else rows % before

            def tile(t: tirx.Var, height: int = height, left: ir.Expr = left) -> list[tirx.Stmt]:
                return [self._tile(start + (rows - left) + t * height, height, column, operand)]

            statements.append(self._loop("t", left // height, tile))
        return statements

    def _packed(self, row: ir.Expr, column: ir.Expr, operand: tirx.Var) -> tirx.Stmt:
        """A panel of the matrix that a row picks, zeros past its last column."""

        def element(k: tirx.Var, c: ir.Expr) -> tirx.Stmt:
            at = column + c
            value = substitute(self.found.right, {self.row: row, self.column: at, self.depth: k})
            if self.columns % self.panel:
                value = tirx.if_then_else(at < self.columns, value, tirx.const(0, self.dtype))
            return store(operand, value, [k, c])

        return self._loop("k", self.length, lambda k: self._vectors(partial(element, k)))

    def _tile(self, row: ir.Expr, height: int, column: ir.Expr, operand: tirx.Var) -> tirx.Stmt:
        """A register tile of rows from one on."""
        sums = [self._buffer(f"sums_{j}", [self.panel], self.dtype) for j in range(height)]
        zero = tirx.const(0, self.dtype)

        def each(body: Callable[[int, ir.Expr], tirx.Stmt]) -> list[tirx.Stmt]:
            return [one for j in range(height) for one in self._vectors(partial(body, j))]

        def added(k: tirx.Var, j: int, c: ir.Expr) -> tirx.Stmt:
            product = load(self.copy, [row + j, k]) * load(operand, [k, c])
            return store(sums[j], load(sums[j], [c]) + product, [c])

        def written(j: int, c: ir.Expr) -> tirx.Stmt:
            kept = store(self.place.buffer, load(sums[j], [c]), [row + j, column + c])
            return tirx.IfThenElse(column + c < self.columns, kept, None) if self.columns % self.panel else kept

        body = [
            *each(lambda j, c: store(sums[j], zero, [c])),
            self._loop("k", self.length, lambda k: each(partial(added, k))),
            *each(written),
        ]
        return _block(f"{self.found.plan.name}_{height}", body, sums)


def _heights(tall: int) -> list[tuple[int, int | None]]:
    """Heights of register tiles that take a run of any length, each with the one before it."""
    heights = [tall]
    while heights[-1] > 1:
        heights.append(heights[-1] // 2)
    return list(zip(heights, [None, *heights], strict=False))


def _block(name: str, body: list[tirx.Stmt], allocated: Sequence[tirx.Var] = ()) -> tirx.Stmt:
    notes = {DETECT_ACCESS: tirx.IntImm("int32", 3)}
    block = s_tir.SBlock([], [], [], name, sequence(body), alloc_buffers=list(allocated), annotations=notes)
    return s_tir.SBlockRealize([], True, block)
