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

from tvm_cascade.tile.emit import bind, ptx, put, registers
from tvm_cascade.tile.fragment import DTYPE, NEIGHBOURS, TilePrinter
from tvm_cascade.tile.operand import MATRIX_DTYPES
from tvm_cascade.tile.skeletons.product.feed import ProductFeed
from tvm_cascade.tile.skeletons.product.gauged.along import Along, widened
from tvm_cascade.tile.skeletons.product.gauged.shape import GaugedProduct
from tvm_cascade.tile.work import Threads

_AT_ONCE = 16
"""Columns of one instruction of the tensor cores, and of one load of four matrices."""

_WORDS = 4
"""Of a thread in those."""

_CHUNK = 8
"""Elements of 16 bytes, which are swizzled together."""


class LeftRegisters:
    """A step's part of the left operand in a thread's registers, in each of several sets.

    Parameters
    ----------
    first : row of a tile that the consumer's rows start at.
    sets : of registers: one is filled while products read another.
    pinned : a word of shared memory for each thread.
    """

    def __init__(
        self, shape: GaugedProduct, feed: ProductFeed, first: ir.Expr, threads: Threads, sets: int, pinned: Any
    ) -> None:
        self.shape, self.feed, self.threads, self.pinned = shape, feed, threads, pinned
        self.depth, self.dtype = feed.left.depth, shape.product.left.operand.dtype
        self.words = [registers(f"left_{k}", self.depth // _AT_ONCE * _WORDS, "uint32") for k in range(sets)]
        self.along = [Along(shape, self.depth, feed.buffers, threads.lane, k) for k in range(sets)]
        self.pair, self.floats = registers("left_pair", 2), registers("lifted_pair", 2)
        self.row = bind("own_row", first + threads.warp * 16 + threads.lane % 16)
        self.chunk = bind("own_chunk", threads.lane // 16)

    def load(self, which: int, stage: ir.Expr) -> None:
        """Loads a stage's part into a set."""
        for instruction in range(self.depth // _AT_ONCE):
            chunk = tirx.bitwise_xor(self.chunk + 2 * instruction, self.row % _CHUNK)
            source = self.feed.left.tiles.ptr_to([stage, 0, self.row, chunk * _CHUNK])
            words = [self.words[which][_WORDS * instruction + k] for k in range(_WORDS)]
            ptx("ldmatrix.sync.aligned.m8n8.x4.shared.b16", *words, source)

    @property
    def places(self) -> list[tuple[int, int, int]]:
        """(word, row of the thread's two, pair of its columns) of every word of a set."""
        return [(k, k % 2, k // _WORDS * 2 + k % _WORDS // 2) for k in range(self.depth // _AT_ONCE * _WORDS)]

    def values(self, which: int, word: int) -> None:
        """Widens the two elements of a word into `pair`."""
        for e in NEIGHBOURS:
            put(self.pair, e, widened(self.words[which][word], self.dtype, e))

    def symbols(self, which: int, pair: int, neighbour: int) -> dict[sp.Symbol, ir.Expr]:
        """What an element's lift reads, but for values of its row."""
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
