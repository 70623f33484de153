"""What runs along the sum in registers, such as a gain: a thread has the values of its own columns of a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.tile.emit import ptx, put, registers
from tvm_cascade.tile.fragment import DTYPE, NEIGHBOURS, QUAD, placed
from tvm_cascade.tile.operand import MATRIX_DTYPES, plain_value
from tvm_cascade.tile.skeletons.product.gauged.shape import GaugedProduct, in_words
from tvm_cascade.transform.printer import cast

_PAIR = len(NEIGHBOURS)

_HALF = 16
"""Bits of an element of a word."""


def widened(word: ir.Expr, dtype: str, neighbour: int) -> ir.Expr:
    """One of the two elements of a word as float32."""
    if dtype == "bfloat16":
        upper = tirx.bitwise_and(word, T.uint32(0xFFFF0000))
        return tirx.reinterpret(DTYPE, upper if neighbour else tirx.shift_left(word, T.uint32(_HALF)))
    half = T.cast(tirx.shift_right(word, T.uint32(_HALF * neighbour)), "uint16")
    wide = registers("widened", 1)
    ptx(f"cvt.f32.{MATRIX_DTYPES[dtype].name}", wide[0], half)
    return wide[0]


class Along:
    """Values along the sum of a step, by pairs of neighbouring columns.

    Parameters
    ----------
    depth : columns of a step.
    buffers : the program's tensors -> the kernel's own.
    lane : of the thread.
    number : of the set of registers.
    """

    def __init__(
        self, shape: GaugedProduct, depth: int, buffers: Mapping[tirx.Var, Any], lane: ir.Expr, number: int
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
                own = next(own for param, own in self.buffers.items() if param.same_as(load.source))
                indices = [placed(index, {**batch, inner: column}, self.buffers) for index in load.indices]
                ptx("ld.global.nc.b32", self.words[symbol][pair], own.ptr_to(indices))
            for symbol, into in self.floats.items():
                for e in NEIGHBOURS:
                    value = placed(self.shape.along[symbol], {**batch, inner: column + e}, self.buffers)
                    put(into, _PAIR * pair + e, cast(value, DTYPE))

    def value(self, symbol: sp.Symbol, pair: int, neighbour: int) -> ir.Expr:
        """A value in float32."""
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
