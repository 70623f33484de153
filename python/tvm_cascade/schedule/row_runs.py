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

import tvm
from tvm import ir, s_tir, tirx

from tvm_cascade.analysis.statements import LoopNest, new_block, sequence
from tvm_cascade.analysis.tir import as_index, dtype_of, substitute, uses
from tvm_cascade.devices.device import Cpu
from tvm_cascade.schedule.microkernel import CACHE_SHARE, MOST_ROWS, TASKS_OF_A_CORE, register_tile
from tvm_cascade.schedule.nests import BlockPlan, Written, rewritten
from tvm_cascade.schedule.packing import LINES_OF_A_SET
from tvm_cascade.schedule.row_picks import RUNS, Picking, picking_product
from tvm_cascade.transform.nest import load, store

FEW, FEW_BESIDE = 6, 4
"""Rows of a run from which copying its matrix pays: lanes that lie apart are copied one by one."""

DOTS = 8
"""Inner products at once: as many as multiply-adds that wait for none before them."""

WIDE, WIDE_BESIDE = 8, 48
"""Panels of a task: where columns lie side by side, long pieces of them are read together."""


def products_in_runs(func: tirx.PrimFunc, cpu: Cpu) -> tirx.PrimFunc:
    """The function with the products that were marked in runs; the same object where there are none.

    Parameters
    ----------
    func : whose other nests are scheduled: primitives refuse what is between these.
    cpu : for whose registers and cores tiles and tasks are cut.
    """

    def in_runs(nest: LoopNest, plan: BlockPlan) -> Written | None:
        found = picking_product(nest, plan) if plan.role == RUNS else None
        runs = None if found is None else _Runs(found, cpu)
        return None if runs is None else (runs.nests(), runs.buffers)

    return rewritten(func, in_runs)


@dataclass(frozen=True)
class _Part:
    """What is multiplied at once: rows of a run, by some panels, over a part of the depth.

    Attributes
    ----------
    start, rows : the first row, and how many there are.
    block, count : the first panel, and how many there are.
    depth, deep : the first position that is summed over, and how many there are.
    """

    start: ir.Expr
    rows: ir.Expr
    block: ir.Expr
    count: ir.Expr
    depth: ir.Expr
    deep: ir.Expr


class _Runs:
    """One product in runs.

    Attributes
    ----------
    buffers : of the function's own, that its nests hand to each other.
    """

    def __init__(self, found: Picking, cpu: Cpu) -> None:
        self.found, self.cpu = found, cpu
        self.row, self.column, self.depth = found.variables
        self.place = found.plan.stores[0]
        self.dtype, self.index = found.plan.dtype, dtype_of(self.row)
        self.rows = as_index(found.extents[0], self.index)
        lanes, size = cpu.lanes(self.dtype), tvm.DataType(self.dtype).itemsize
        self.columns, self.length = found.extents[1], found.extents[2]
        self.width, self.vectors, self.tall = register_tile(
            -(-self.columns // lanes) * lanes, MOST_ROWS, cpu, self.dtype
        )
        self.panel = self.width * self.vectors
        self.panels = -(-self.columns // self.panel)
        (axis,) = found.plan.reduce
        accesses = [
            one
            for one in found.plan.loads
            if found.plan.step(one, axis) and any(uses(at, [self.column]) for at in one.indices)
        ]
        self.deep_first = all(found.plan.step(one, axis) == 1 for one in accesses)
        self.wide = max(1, min(WIDE if self.deep_first else WIDE_BESIDE, self.panels // (TASKS_OF_A_CORE * cpu.cores)))
        copied = self.length * self.panel * self.wide * size
        self.deep = -(-self.length // -(-copied * CACHE_SHARE // cpu.l2_bytes))
        if self.deep_first:
            self.in_place = self.length % lanes == 0 and self.panel % DOTS == 0
        else:
            self.in_place = self.panels % self.wide == 0
        room = cpu.l2_bytes // (self.length * self.panel * size * CACHE_SHARE)
        self.beside = max(n for n in range(1, self.wide + 1) if self.wide % n == 0 and n <= max(room, 1))
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
        shares = -(-TASKS_OF_A_CORE * self.cpu.cores // -(-self.panels // self.wide))

        def task(number: tirx.Var) -> list[tirx.Stmt]:
            share, block = number % shares, number // shares * self.wide
            count = load(self.count, [self._const(0)])
            begin, end = count * share // shares, count * (share + 1) // shares
            operand = self._buffer("panels", [self.wide, self.deep, self.panel], self.dtype)
            runs = self._loop("run", end - begin, lambda run: self._run(begin + run, block, operand))
            return [_block(f"{self.found.plan.name}_task", [runs], [operand])]

        return [self._loop("task", -(-self.panels // self.wide) * shares, task, tirx.ForKind.PARALLEL)]

    def _run(self, run: ir.Expr, block: ir.Expr, operand: tirx.Var) -> list[tirx.Stmt]:
        """Some panels of columns of one run: of few rows as the matrix lies, if it may be, else in register tiles."""
        start = load(self.first, [run])
        rows = load(self.first, [run + 1]) - start
        count = tirx.min(self._const(self.wide), self.panels - block)

        def part(number: tirx.Var) -> list[tirx.Stmt]:
            depth = number * self.deep
            tiled = _Part(start, rows, block, count, depth, tirx.min(self._const(self.deep), self.length - depth))
            return [*self._packed(tiled, operand), *self._tiled(tiled, operand)]

        parts = self._loop("part", -(-self.length // self.deep), part)
        if not self.in_place:
            return [parts]

        def dots(p: tirx.Var) -> list[tirx.Stmt]:
            return [self._loop("row", rows, lambda row: self._dots(start + row, (block + p) * self.panel))]

        def across(number: tirx.Var) -> list[tirx.Stmt]:
            column = (block + number * self.beside) * self.panel
            return [self._loop("row", rows, lambda row: [self._across(start + row, column)])]

        if self.deep_first:
            return [tirx.IfThenElse(rows < FEW, self._loop("p", count, dots), parts)]
        return [tirx.IfThenElse(rows < FEW_BESIDE, self._loop("p", self.wide // self.beside, across), parts)]

    def _tiled(self, part: _Part, operand: tirx.Var) -> list[tirx.Stmt]:
        """Register tiles of the rows of a run."""
        statements = []
        for height, before in _heights(self.tall):
            left = part.rows if before is None else part.rows % before

            def tiles(t: tirx.Var, height: int = height, left: ir.Expr = left) -> list[tirx.Stmt]:
                row = part.start + (part.rows - left) + t * height
                return [self._each_panel(part, lambda p: [self._tile(row, height, p, part, operand)])]

            statements.append(self._loop("t", left // height, tiles))
        return statements

    def _right(self, row: ir.Expr, column: ir.Expr, depth: ir.Expr) -> ir.Expr:
        """An element of the matrix that a row picks; past its last column, one of that."""
        inside = tirx.min(column, self._const(self.columns - 1)) if self.columns % self.panel else column
        return substitute(self.found.right, {self.row: row, self.column: inside, self.depth: depth})

    def _packed(self, part: _Part, operand: tirx.Var) -> list[tirx.Stmt]:
        """Panels of the matrix that a row picks."""

        def element(p: ir.Expr, k: ir.Expr, c: ir.Expr) -> tirx.Stmt:
            return store(operand, self._right(part.start, (part.block + p) * self.panel + c, part.depth + k), [p, k, c])

        if not self.deep_first:
            return [
                self._loop(
                    "k", part.deep, lambda k: [self._each_panel(part, lambda p: self._vectors(partial(element, p, k)))]
                )
            ]
        # Lanes that lie apart: few lines of the cache at once, and all of each.
        lanes = min(LINES_OF_A_SET, self.width)

        def columns(p: ir.Expr, first: ir.Expr, k: ir.Expr) -> list[tirx.Stmt]:
            return [self._loop("lane", lanes, lambda lane: [element(p, k, first + lane)], tirx.ForKind.VECTORIZED)]

        def panel(p: tirx.Var) -> list[tirx.Stmt]:
            return [
                self._loop(
                    "block",
                    self.panel // lanes,
                    lambda block: [self._loop("k", part.deep, partial(columns, p, block * lanes))],
                )
            ]

        return [self._each_panel(part, panel)]

    def _each_panel(self, part: _Part, body: Callable[[tirx.Var], list[tirx.Stmt]]) -> tirx.Stmt:
        return self._loop("p", part.count, body)

    def _tile(self, row: ir.Expr, height: int, panel: tirx.Var, part: _Part, operand: tirx.Var) -> tirx.Stmt:
        """A register tile of rows from one on."""
        column = (part.block + panel) * self.panel
        sums = [self._buffer(f"sums_{j}", [self.panel], self.dtype) for j in range(height)]

        def each(body: Callable[[int, ir.Expr], tirx.Stmt]) -> list[tirx.Stmt]:
            return [one for j in range(height) for one in self._vectors(partial(body, j))]

        def begun(j: int, c: ir.Expr) -> tirx.Stmt:
            zero, cell = tirx.const(0, self.dtype), [row + j, column + c]
            if self.deep >= self.length:
                return store(sums[j], zero, [c])
            inside = tirx.And(part.depth > 0, cell[1] < self.columns)
            return store(sums[j], tirx.if_then_else(inside, load(self.place.buffer, cell), zero), [c])

        def added(k: tirx.Var, j: int, c: ir.Expr) -> tirx.Stmt:
            product = load(self.copy, [row + j, part.depth + k]) * load(operand, [panel, k, c])
            return store(sums[j], load(sums[j], [c]) + product, [c])

        def written(j: int, c: ir.Expr) -> tirx.Stmt:
            return self._written(row + j, column + c, load(sums[j], [c]))

        steps = self._loop("k", part.deep, lambda k: each(partial(added, k)))
        return _block(f"{self.found.plan.name}_{height}", [*each(begun), steps, *each(written)], sums)

    def _written(self, row: ir.Expr, column: ir.Expr, value: ir.Expr) -> tirx.Stmt:
        """A result, if there is such a column."""
        kept = store(self.place.buffer, value, [row, column])
        return tirx.IfThenElse(column < self.columns, kept, None) if self.columns % self.panel else kept

    def _across(self, row: ir.Expr, column: ir.Expr) -> tirx.Stmt:
        """One row by columns that lie side by side."""
        sums = [self._buffer(f"sums_{p}", [self.panel], self.dtype) for p in range(self.beside)]

        def each(body: Callable[[int, ir.Expr], tirx.Stmt]) -> list[tirx.Stmt]:
            return [one for p in range(self.beside) for one in self._vectors(partial(body, p))]

        def added(k: tirx.Var, p: int, c: ir.Expr) -> tirx.Stmt:
            product = load(self.copy, [row, k]) * self._right(row, column + p * self.panel + c, k)
            return store(sums[p], load(sums[p], [c]) + product, [c])

        def written(p: int, c: ir.Expr) -> tirx.Stmt:
            return self._written(row, column + p * self.panel + c, load(sums[p], [c]))

        begun = each(lambda p, c: store(sums[p], tirx.const(0, self.dtype), [c]))
        steps = self._loop("k", self.length, lambda k: each(partial(added, k)))
        return _block(f"{self.found.plan.name}_across", [*begun, steps, *each(written)], sums)

    def _dots(self, row: ir.Expr, column: ir.Expr) -> list[tirx.Stmt]:
        """One row by a panel of columns that are contiguous along the depth: some inner products at once."""
        width = self.cpu.lanes(self.dtype)

        def lanes(extent: int, body: Callable[[tirx.Var], tirx.Stmt]) -> tirx.Stmt:
            return self._loop("lane", extent, lambda lane: [body(lane)], tirx.ForKind.VECTORIZED)

        def some(number: tirx.Var) -> list[tirx.Stmt]:
            sums = [self._buffer(f"dot_{u}", [width], self.dtype) for u in range(DOTS)]
            at = [column + (number * DOTS + u) for u in range(DOTS)]

            def zero(u: int, lane: tirx.Var) -> tirx.Stmt:
                return store(sums[u], tirx.const(0, self.dtype), [lane])

            def step(u: int, k: tirx.Var, lane: tirx.Var) -> tirx.Stmt:
                product = load(self.copy, [row, k * width + lane]) * self._right(row, at[u], k * width + lane)
                return store(sums[u], load(sums[u], [lane]) + product, [lane])

            def halved(u: int, half: int, lane: tirx.Var) -> tirx.Stmt:
                return store(sums[u], load(sums[u], [lane]) + load(sums[u], [lane + half]), [lane])

            def added(k: tirx.Var) -> list[tirx.Stmt]:
                return [lanes(width, partial(step, u, k)) for u in range(DOTS)]

            statements = [lanes(width, partial(zero, u)) for u in range(DOTS)]
            statements.append(self._loop("k", self.length // width, added))
            half = width // 2
            while half:
                statements += [lanes(half, partial(halved, u, half)) for u in range(DOTS)]
                half //= 2
            first = [self._const(0)]
            statements += [self._written(row, at[u], load(sums[u], first)) for u in range(DOTS)]
            return [_block(f"{self.found.plan.name}_dots", statements, sums)]

        return [self._loop("some", self.panel // DOTS, some)]


def _heights(tall: int) -> list[tuple[int, int | None]]:
    """Heights of register tiles that take a run of any length, each with the one before it."""
    heights = [tall]
    while heights[-1] > 1:
        heights.append(heights[-1] // 2)
    return list(zip(heights, [None, *heights], strict=False))


def _block(name: str, body: list[tirx.Stmt], allocated: Sequence[tirx.Var] = ()) -> tirx.Stmt:
    return s_tir.SBlockRealize([], True, new_block(name, sequence(body), allocated=allocated))
