"""Packs weights in registers into WGMMA's left-operand fragments, in a narrow dtype.

Of an accumulator a thread has two neighbours in every eight columns. Two elements of 16 bits are the register that a
product wants. Of 8 bits it wants four: k = 4t … 4t + 3 of every sixteen for the t-th of the four lanes of a row. These
are the pairs of lanes 2t and 2t + 1 (mod 4), in the first eight columns where t < 2, in the others elsewhere. So lanes
exchange pairs, those of two half steps at once:

    a = pairs of columns 0–7 and 16–23 of a step, b = of 8–15 and 24–31
    lane 0 wants a₀ a₁, lane 1 a₂ a₃, lane 2 b₀ b₁, lane 3 b₂ b₃       two shuffles, each of a by two lanes, of b by two
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy as sp
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.attention.steps import Accumulate
from tvm_cascade.tile.emit import bind, ptx, put, registers
from tvm_cascade.tile.fragment import COLUMNS_PER_STEP, NEIGHBOURS, QUAD, ROWS
from tvm_cascade.tile.merge.lanes import from_lane
from tvm_cascade.tile.operand import MATRIX_DTYPES

Weight = Callable[[sp.Symbol, ir.Expr, int, int], ir.Expr]
"""(symbol, eight columns, row, neighbour) -> the weight there, in float32."""

_LOWER, _UPPER = (0x5410, 0x1054), (0x7632, 0x3276)
"""Which bytes of two registers make one of their lower and of their upper halves, by which of the two comes first."""


class Packing:
    """Registers of the left operands of a kernel's products.

    Parameters
    ----------
    own : which of a thread's two rows have weights; registers of others are left as they are.
    """

    def __init__(
        self, accumulations: Sequence[Accumulate], columns: int, lane: ir.Expr, own: tuple[int, ...] = ROWS
    ) -> None:
        self.columns, self.own = columns, own
        self.packed: dict[tuple[sp.Symbol, str], Any] = {}
        for key in dict.fromkeys((a.weight, a.dtype) for a in accumulations):
            count = columns // 2 * MATRIX_DTYPES[key[1]].size // 4
            self.packed[key] = registers(f"{key[0]}_packed", count, "uint32")
        if any(MATRIX_DTYPES[dtype].size == 1 for _, dtype in self.packed):
            self._exchanged_with(lane)

    def of(self, accumulation: Accumulate) -> Any:
        return self.packed[accumulation.weight, accumulation.dtype]

    def largest(self, symbol: sp.Symbol, dtype: str) -> Any:
        """Two sizes for each of the thread's rows, of which one is its largest weight of 16 bits.

        Hopper compares four in one instruction.
        """
        packed, pair = self.packed[symbol, dtype], f"{MATRIX_DTYPES[dtype].name}x2"
        found, size = registers(f"{symbol}_largest", len(ROWS), "uint32"), registers("sizes", 1, "uint32")
        for r in self.own:
            put(found, r, T.uint32(0))
        with T.unroll(self.columns // COLUMNS_PER_STEP) as j:
            for r in self.own:
                ptx(f"abs.{pair}", size[0], packed[j * 2 + r])
                ptx(f"max.{pair}", found[r], found[r], size[0])
        return found

    def emit(self, weight: Weight) -> None:
        for (symbol, dtype), packed in self.packed.items():
            if MATRIX_DTYPES[dtype].size == 2:
                self._halves(symbol, dtype, packed, weight)
            else:
                self._quarters(symbol, dtype, packed, weight)

    def _halves(self, symbol: sp.Symbol, dtype: str, packed: Any, weight: Weight) -> None:
        with T.unroll(self.columns // COLUMNS_PER_STEP) as j:
            for r in self.own:
                pair = [weight(symbol, j, r, e) for e in reversed(NEIGHBOURS)]
                ptx(f"cvt.rn.{MATRIX_DTYPES[dtype].name}x2.f32", packed[j * 2 + r], *pair)

    def _exchanged_with(self, lane: ir.Expr) -> None:
        """What of the exchange depends on the lane alone."""
        member = lane % QUAD
        first = bind("is_of_first_columns", member < 2)
        self.odd = bind("is_odd_lane", member % 2 == 1)
        quad = lane - member
        self.near = bind("near_lane", quad + tirx.Select(first, member * 2, member * 2 - 3))
        self.far = bind("far_lane", quad + tirx.Select(first, member * 2 + 1, member * 2 - 4))
        self.lower, self.upper = (
            bind(name, tirx.Select(first, T.uint32(near), T.uint32(far)))
            for name, (near, far) in (("lower_halves", _LOWER), ("upper_halves", _UPPER))
        )

    def _quarters(self, symbol: sp.Symbol, dtype: str, packed: Any, weight: Weight) -> None:
        pairs, words = registers("pairs", 4, "uint16"), registers("words", 4, "uint32")
        per_step = MATRIX_DTYPES[dtype].step
        with T.unroll(self.columns // per_step) as step:
            for r in self.own:
                for k in range(per_step // COLUMNS_PER_STEP):
                    j = step * (per_step // COLUMNS_PER_STEP) + k
                    pair = [weight(symbol, j, r, e) for e in reversed(NEIGHBOURS)]
                    ptx(f"cvt.rn.satfinite.{MATRIX_DTYPES[dtype].name}x2.f32", pairs[k], *pair)
                for k in range(2):
                    put(words, k, T.cast(pairs[k], "uint32") | (T.cast(pairs[k + 2], "uint32") << T.uint32(16)))
                put(words, 2, from_lane(self.near, tirx.Select(self.odd, words[1], words[0])))
                put(words, 3, from_lane(self.far, tirx.Select(self.odd, words[0], words[1])))
                for half, chosen in enumerate((self.lower, self.upper)):
                    ptx("prmt.b32", packed[step * 4 + half * 2 + r], words[2], words[3], chosen)
