"""The left operand in registers: loaded from shared memory as products read it, and lifted element by element.

A warp's 16 rows by 16 columns of it are four words of a thread: rows q and q + 8 of columns 2p and 2p + 1, then of
columns 2p + 8 and 2p + 9, with q = lane/4 and p = lane mod 4. The rows are those of the thread's accumulators.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import sympy as sp
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.reducers import combiner_of, identity_of
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.tile.emit import bind, named, ptx, put, registers
from tvm_cascade.tile.fragment import DTYPE, NEIGHBOURS, QUAD, ROWS, TilePrinter, placed
from tvm_cascade.tile.hopper.stores import CHUNK_COLUMNS
from tvm_cascade.tile.merge.lanes import exchanged
from tvm_cascade.tile.operand import MATRIX_DTYPES, plain_value
from tvm_cascade.tile.skeletons.product.feed import ProductFeed
from tvm_cascade.tile.skeletons.product.prologue.shape import PrologueProduct, in_words
from tvm_cascade.tile.work import Threads
from tvm_cascade.transform.printer import cast

_AT_ONCE = 16
"""Columns of one instruction of the tensor cores, and of one load of four matrices."""

_WORDS = 4
"""Of a thread in those."""


class LeftRegisters:
    """A step's part of the left operand in a thread's registers, in each of several sets.

    Parameters
    ----------
    first : row of a tile that the consumer's rows start at.
    sets : of registers: one is filled while products read another.
    pinned : a word of shared memory for each thread.
    """

    def __init__(
        self, shape: PrologueProduct, feed: ProductFeed, first: ir.Expr, threads: Threads, sets: int, pinned: Any
    ) -> None:
        self.shape, self.feed, self.threads, self.pinned = shape, feed, threads, pinned
        self.depth, self.dtype = feed.left.depth, shape.product.left.operand.dtype
        self.words = [registers(f"left_{k}", self.depth // _AT_ONCE * _WORDS, "uint32") for k in range(sets)]
        self.along = [Along(shape, self.depth, feed.buffers, threads.lane, k) for k in range(sets)]
        self.pair, self.floats = registers("left_pair", 2), registers("lifted_pair", 2)
        self.row = bind("own_row", first + threads.warp * 16 + threads.lane % 16)
        self.chunk = bind("own_chunk", threads.lane // 16)

    def load(self, which: int, stage: ir.Expr) -> None:
        for instruction in range(self.depth // _AT_ONCE):
            chunk = tirx.bitwise_xor(self.chunk + 2 * instruction, self.row % CHUNK_COLUMNS)
            source = self.feed.left.tiles.ptr_to([stage, 0, self.row, chunk * CHUNK_COLUMNS])
            words = [self.words[which][_WORDS * instruction + k] for k in range(_WORDS)]
            ptx("ldmatrix.sync.aligned.m8n8.x4.shared.b16", *words, source)

    @property
    def places(self) -> list[tuple[int, int, int]]:
        """(word, row of the thread's two, pair of its columns) of every word of a set."""
        return [(k, k % 2, k // _WORDS * 2 + k % _WORDS // 2) for k in range(self.depth // _AT_ONCE * _WORDS)]

    def values(self, which: int, word: int) -> None:
        for e in NEIGHBOURS:
            put(self.pair, e, widened(self.words[which][word], self.dtype, e))

    def symbols(self, which: int, pair: int, neighbour: int) -> dict[sp.Symbol, ir.Expr]:
        along = {symbol: self.along[which].value(symbol, pair, neighbour) for symbol in self.shape.along}
        return {self.shape.loaded: self.pair[neighbour], **along}

    def lift(self, which: int, word: int, pair: int, value: sp.Expr, rows: Mapping[sp.Symbol, ir.Expr]) -> None:
        """Replaces the two elements of a word by what is multiplied.

        A product of two numbers of 16 bits is exact in float32: rounded, it is what one instruction gives of a word.
        """
        own, kind = self.words[which], MATRIX_DTYPES[self.dtype].name
        factor = self.along[which].factor
        if factor is not None:
            ptx(f"mul.rn.{kind}x2", own[word], own[word], factor[pair])
            return
        for e in NEIGHBOURS:
            put(self.floats, e, TilePrinter({**self.symbols(which, pair, e), **rows}, DTYPE, {})(value))
        ptx(f"cvt.rn.{kind}x2.f32", own[word], self.floats[1], self.floats[0])

    def pin(self, which: int) -> None:
        """Has the words of a set computed before what comes next.

        ptxas moves what computes them behind the fence of the products that read them, and then has products wait for
        each other (its warning C7513); it does not move a store.
        """
        words = [self.words[which][word] for word, *_ in self.places]
        T.buffer_store(self.pinned, functools.reduce(tirx.bitwise_xor, words), [self.threads.thread])


# What runs along the sum in registers, such as a gain: a thread has the values of its own columns of a step.


_PAIR = len(NEIGHBOURS)

_HALF = 16
"""Bits of an element of a word."""


def widened(word: ir.Expr, dtype: str, neighbour: int) -> ir.Expr:
    if dtype == "bfloat16":
        upper = tirx.bitwise_and(word, T.uint32(0xFFFF0000))
        return tirx.reinterpret(DTYPE, upper if neighbour else tirx.shift_left(word, T.uint32(_HALF)))
    half = T.cast(tirx.shift_right(word, T.uint32(_HALF * neighbour)), "uint16")
    wide = registers("widened", 1)
    ptx(f"cvt.f32.{MATRIX_DTYPES[dtype].name}", wide[0], half)
    return wide[0]


class Along:
    """Values along the sum of a step, by pairs of neighbouring columns."""

    def __init__(
        self, shape: PrologueProduct, depth: int, buffers: Mapping[tirx.Var, Any], lane: ir.Expr, number: int
    ) -> None:
        self.shape, self.buffers, self.lane = shape, buffers, lane
        self.pairs = depth // (_PAIR * QUAD)
        words = {s: load for s, source in shape.along.items() if (load := self._of_words(source)) is not None}
        self.loads = words
        self.words = {s: registers(f"along_{number}_{s}", self.pairs, "uint32") for s in words}
        self.floats = {s: registers(f"along_{number}_{s}", _PAIR * self.pairs) for s in shape.along if s not in words}

    def fetch(self, first: ir.Expr, batch: Mapping[tirx.Var, ir.Expr]) -> None:
        """Loads the values of a step's columns, from `first` on: two by one load where they are in one word."""
        inner = self.shape.product.inner.var
        for pair in range(self.pairs):
            column = first + pair * _PAIR * QUAD + self.lane % QUAD * _PAIR
            for symbol, load in self.loads.items():
                own = self.buffers[load.source]
                indices = [placed(index, {**batch, inner: column}, self.buffers) for index in load.indices]
                ptx("ld.global.b32", self.words[symbol][pair], own.ptr_to(indices))
            for symbol, into in self.floats.items():
                for e in NEIGHBOURS:
                    value = placed(self.shape.along[symbol], {**batch, inner: column + e}, self.buffers)
                    put(into, _PAIR * pair + e, cast(value, DTYPE))

    def value(self, symbol: sp.Symbol, pair: int, neighbour: int) -> ir.Expr:
        if symbol in self.floats:
            return self.floats[symbol][_PAIR * pair + neighbour]
        return widened(self.words[symbol][pair], dtype_of(self.loads[symbol].source), neighbour)

    @property
    def factor(self) -> Any:
        """The words of what every element is multiplied by, where that is all of its lift; None otherwise."""
        return self.words.get(self.shape.scale)

    def _of_words(self, source: ir.Expr) -> ir.TensorLoad | None:
        """The load that a value is, where words hold two of it."""
        load = plain_value(source)
        return load if load is not None and in_words(load, self.shape.product) else None


# Parts of a formula that have one value a row, taken out of it: computed once for a tile, not once an element.
#
# c/√(t/n + ε)         →    c·h₀           h₀ = 1/√(t/n + ε)
# (x − s/n)·r·g        →    (x − h₀)·h₁·g    h₀ = s/n, h₁ = r


@dataclass(frozen=True)
class Hoisted:
    """A formula, and what its new symbols stand for.

    Attributes
    ----------
    value : over elements and the symbols of parts.
    parts : each symbol with its formula over values of rows.
    """

    value: sp.Expr
    parts: dict[sp.Symbol, sp.Expr]


def hoist(expression: sp.Expr, rows: Collection[sp.Symbol], name: str) -> Hoisted:
    """Takes out what a formula computes of values of rows alone.

    Parameters
    ----------
    rows : the symbols that have one value a row.
    name : of the new symbols, which are numbered.
    """
    parts: dict[sp.Symbol, sp.Expr] = {}

    def taken(part: sp.Expr) -> sp.Symbol:
        known = next((symbol for symbol, other in parts.items() if other == part), None)
        symbol = sp.Symbol(f"{name}_{len(parts)}", real=True) if known is None else known
        parts[symbol] = part
        return symbol

    def walk(part: sp.Expr) -> sp.Expr:
        own = part.free_symbols
        if own and own <= set(rows):
            return taken(part)
        if not own & set(rows):
            return part
        if isinstance(part, (sp.Add, sp.Mul)):
            of_rows = [a for a in part.args if a.free_symbols <= set(rows)]
            others = [walk(a) for a in part.args if not a.free_symbols <= set(rows)]
            whole = [taken(part.func(*of_rows))] if any(a.free_symbols for a in of_rows) else of_rows
            return part.func(*whole, *others)
        return part.func(*map(walk, part.args))

    return Hoisted(walk(expression), parts)


# Statistics of rows in registers: folded from the left operand as it is loaded, added up by the lanes of a row.
#
# They end where the epilogue needs them: the thread that has a row of the sums has its statistics.


_PARTS = len(ROWS) * len(NEIGHBOURS)
"""Of a statistic in a thread: apart for each row and neighbour, so that chains of sums are half as long."""


class RowValues:
    """What a thread has of each of its two rows: statistics, values of rows, and what is computed of either.

    Attributes
    ----------
    known : registers by symbol, one for each row.
    pinned : a word of shared memory for each thread, which nothing reads; it keeps computations where they are.
    """

    def __init__(self, shape: PrologueProduct, threads: int) -> None:
        self.shape, self.threads = shape, threads
        of_element = [shape.element, *shape.statistics.values()]
        self.lifts = [hoist(lift, shape.per_row.keys(), f"of_row_{k}") for k, lift in enumerate(of_element)]

    @property
    def element(self) -> sp.Expr:
        """What is multiplied, over loaded elements, what runs along the sum, and values of rows."""
        return self.lifts[0].value

    @cached_property
    def finishes(self) -> dict[sp.Symbol, Hoisted]:
        rows = [component.symbol for component in self.shape.statistics]
        formulas = enumerate(self.shape.product.finishes.items())
        return {result: hoist(formula, rows, f"factor_{number}") for number, (result, formula) in formulas}

    def allocate_shared(self, pool: Any) -> None:
        self.pinned = named("pinned", pool.alloc((self.threads,), "uint32", align=16))

    def finished(self, result: sp.Symbol, row: int, sums: Mapping[sp.Symbol, ir.Expr]) -> ir.Expr:
        return TilePrinter({**sums, **self.of_row(row)}, DTYPE, {})(self.finishes[result].value)

    def allocate(self) -> None:
        self.parts = {c.symbol: registers(f"part_{c.symbol}", _PARTS) for c in self.shape.statistics}
        symbols = [*self.shape.per_row, *self.parts]
        for hoisted in (*self.lifts, *self.finishes.values()):
            symbols += hoisted.parts
        self.known = {symbol: registers(f"row_{symbol}", len(ROWS)) for symbol in symbols}

    def start(self, places: list[dict[tirx.Var, ir.Expr]], buffers: Mapping[tirx.Var, object]) -> None:
        for symbol, source in self.shape.per_row.items():
            for r in ROWS:
                put(self.known[symbol], r, cast(placed(source, places[r], buffers), DTYPE))
        for hoisted in self.lifts:
            self._compute(hoisted)
        for component in self.shape.statistics:
            for part in range(_PARTS):
                put(self.parts[component.symbol], part, identity_of(component.reducer, DTYPE))

    def fold(self, left: LeftRegisters, which: int, row: int, pair: int) -> None:
        """Folds the two elements that have been widened into the statistics of their row."""
        for component, lift in zip(self.shape.statistics, self.lifts[1:], strict=True):
            own, combine = self.parts[component.symbol], combiner_of(component.reducer)
            for e in NEIGHBOURS:
                value = TilePrinter({**left.symbols(which, pair, e), **self.of_row(row)}, DTYPE, {})(lift.value)
                put(own, 2 * row + e, combine(own[2 * row + e], value))

    def finish(self) -> None:
        """Statistics of whole rows in all lanes of a row, and what results take of them."""
        for component in self.shape.statistics:
            symbol, combine = component.symbol, combiner_of(component.reducer)
            for r in ROWS:
                own = combine(*(self.parts[symbol][2 * r + e] for e in NEIGHBOURS))
                put(self.known[symbol], r, exchanged(own, combine, QUAD))
        for hoisted in self.finishes.values():
            self._compute(hoisted)

    def of_row(self, row: int) -> dict[sp.Symbol, ir.Expr]:
        return {symbol: own[row] for symbol, own in self.known.items()}

    def _compute(self, hoisted: Hoisted) -> None:
        for symbol, formula in hoisted.parts.items():
            for r in ROWS:
                put(self.known[symbol], r, TilePrinter(self.of_row(r), DTYPE, {})(formula))
