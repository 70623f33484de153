"""The left operand in registers: loaded from shared memory as products read it, and lifted element by element.

A warp's 16 rows by 16 columns of it are four words of a thread: rows q and q + 8 of columns 2p and 2p + 1, then of
columns 2p + 8 and 2p + 9, with q = lane/4 and p = lane mod 4. The rows are those of the thread's accumulators.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import sympy as sp
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.tile.emit import bind, ptx, put, registers
from tvm_cascade.tile.fragment import DTYPE, NEIGHBOURS, QUAD, TilePrinter, placed
from tvm_cascade.tile.operand import MATRIX_DTYPES, plain_value
from tvm_cascade.tile.skeletons.product.gauged.feed import GaugedFeed
from tvm_cascade.tile.skeletons.product.gauged.shape import GaugedProduct
from tvm_cascade.tile.work import Threads
from tvm_cascade.transform.printer import cast

_AT_ONCE = 16
"""Columns of one instruction of the tensor cores, and of one load of four matrices."""

_WORDS = 4
"""Of a thread in those."""

_CHUNK = 8
"""Elements of 16 bytes, which are swizzled together."""

_HALF = 16
"""Bits of an element."""


class LeftRegisters:
    """A step's part of the left operand in a thread's registers, in each of several sets.

    Parameters
    ----------
    first : row of a tile that the consumer's rows start at.
    sets : of registers: one is filled while products read another.
    """

    def __init__(self, shape: GaugedProduct, feed: GaugedFeed, first: ir.Expr, threads: Threads, sets: int) -> None:
        self.shape, self.feed, self.threads = shape, feed, threads
        self.depth, self.dtype = feed.left.depth, shape.product.left.operand.dtype
        self.words = [registers(f"left_{k}", self.depth // _AT_ONCE * _WORDS, "uint32") for k in range(sets)]
        self.along = {s: registers(f"along_{s}", self.depth // QUAD) for s in shape.along}
        self.pair, self.floats = registers("left_pair", 2), registers("lifted_pair", 2)
        self.word = registers("along_word", 1, "uint32")
        self.row = bind("own_row", first + threads.warp * 16 + threads.lane % 16)
        self.chunk = bind("own_chunk", threads.lane // 16)

    def fetch_along(self, first: ir.Expr, batch: Mapping[tirx.Var, ir.Expr]) -> None:
        """Loads what runs along the sum, of a step's columns from `first` on: before the step's tiles have arrived."""
        for symbol, source in self.shape.along.items():
            for pair in range(self.depth // (2 * QUAD)):
                column = first + pair * 2 * QUAD + self.threads.lane % QUAD * 2
                self._pair_along(source, column, batch, self.along[symbol], pair)

    def _pair_along(
        self, source: ir.Expr, column: ir.Expr, batch: Mapping[tirx.Var, ir.Expr], into: Any, pair: int
    ) -> None:
        """Two neighbours: by one load where they are neighbours in memory."""
        inner, load = self.shape.product.inner.var, plain_value(source)
        if load is not None and MATRIX_DTYPES.get(dtype_of(load.source)) and self._is_paired(load):
            own = next(own for param, own in self.feed.buffers.items() if param.same_as(load.source))
            indices = [placed(index, {**batch, inner: column}, self.feed.buffers) for index in load.indices]
            ptx("ld.global.nc.b32", self.word[0], own.ptr_to(indices))
            self._widen(self.word[0], dtype_of(load.source), into, 2 * pair)
            return
        for e in NEIGHBOURS:
            put(into, 2 * pair + e, cast(placed(source, {**batch, inner: column + e}, self.feed.buffers), DTYPE))

    def _is_paired(self, load: ir.TensorLoad) -> bool:
        """Whether neighbours along the sum are in one word of a tensor of 16 bits."""
        inner, shape = self.shape.product.inner.var, load.source.ty.shape
        last, width = load.indices[-1], shape[-1]
        even = isinstance(width, ir.prim.IntImm) and int(width) % 2 == 0
        return (
            even and MATRIX_DTYPES[dtype_of(load.source)].size == 2 and isinstance(last, ir.Var) and last.same_as(inner)
        )

    def load(self, which: int, group: int, stage: ir.Expr) -> None:
        """Loads what one instruction multiplies of a stage's part into a set."""
        chunk = tirx.bitwise_xor(self.chunk + 2 * group, self.row % _CHUNK)
        source = self.feed.left.tiles.ptr_to([stage, 0, self.row, chunk * _CHUNK])
        words = [self.words[which][_WORDS * group + k] for k in range(_WORDS)]
        ptx("ldmatrix.sync.aligned.m8n8.x4.shared.b16", *words, source)

    def places(self, group: int) -> list[tuple[int, int, int]]:
        """(word, row of the thread's two, pair of the thread's columns) of every word that an instruction multiplies."""
        return [(_WORDS * group + k, k % 2, 2 * group + k // 2) for k in range(_WORDS)]

    def values(self, which: int, word: int) -> None:
        """Widens the two elements of a word into `pair`."""
        self._widen(self.words[which][word], self.dtype, self.pair, 0)

    def symbols(self, pair: int, neighbour: int) -> dict[sp.Symbol, ir.Expr]:
        """What an element's lift reads, but for values of its row."""
        along = {symbol: own[2 * pair + neighbour] for symbol, own in self.along.items()}
        return {self.shape.loaded: self.pair[neighbour], **along}

    def lift(self, which: int, word: int, pair: int, value: sp.Expr, rows: Mapping[sp.Symbol, ir.Expr]) -> None:
        """Replaces the two elements of a word by what is multiplied."""
        for e in NEIGHBOURS:
            put(self.floats, e, TilePrinter({**self.symbols(pair, e), **rows}, DTYPE, {})(value))
        kind = MATRIX_DTYPES[self.dtype].name
        ptx(f"cvt.rn.{kind}x2.f32", self.words[which][word], self.floats[1], self.floats[0])

    def pin(self, which: int, group: int) -> None:
        """Has the words that an instruction multiplies computed before what comes next.

        ptxas moves what computes them behind the fence of the products that read them, and then has products wait for
        each other (its warning C7513); it does not move a store.
        """
        words = [self.words[which][_WORDS * group + k] for k in range(_WORDS)]
        T.buffer_store(self.feed.pinned, functools.reduce(tirx.bitwise_xor, words), [self.threads.thread])

    @staticmethod
    def _widen(word: ir.Expr, dtype: str, into: Any, first: int) -> None:
        """Both elements of a word as float32."""
        for e in NEIGHBOURS:
            if dtype == "bfloat16":
                bits = (
                    tirx.shift_left(word, T.uint32(_HALF)) if e == 0 else tirx.bitwise_and(word, T.uint32(0xFFFF0000))
                )
                put(into, first + e, tirx.reinterpret(DTYPE, bits))
            else:
                half = T.cast(tirx.shift_right(word, T.uint32(_HALF * e)), "uint16")
                ptx(f"cvt.f32.{MATRIX_DTYPES[dtype].name}", into[first + e], half)
