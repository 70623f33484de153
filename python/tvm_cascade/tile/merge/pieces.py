"""States of pieces in global memory, and how the blocks that left them meet: each merges a share.

A slot holds the states of all rows of a piece, part by part: a scalar's rows, or a vector's *spans* of sixteen
elements, of which four lanes write and read four each, all rows of one span next to each other. An item's pieces meet
once all have *arrived*; then each merges its share.

No block waits for long, so that none has to run at the same time as another: one that has waited *gives up*, and those
that come later merge all by themselves. An item's word counts all three,

    arrived   bits 0…9     departed   bits 10…19     given up   bits 20…29

each by one atomic addition. A block that gives up learns from its own addition whether all had arrived before; then it
merges its share as any other. If not, the last to arrive finds it in the word when it looks, and so may others: they
then store the same bits. The last to depart makes the word zero for the next launch.

States and words are the module's own, a set for each of several launches in flight: see `tile.merge.launches`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.merge.launches import LaunchSets, sets_for
from tvm_cascade.tile.state import PartForm

FOUR = 4
"""Elements of a vector that a thread writes or reads at once."""

BYTES = 4
"""Of an element."""

SPAN = 16
"""Elements of a vector that four lanes have, four neighbours each."""

NOTHING, SHARE, ALL = 0, 1, 2
"""What a block merges of an item after it has waited."""

_LOOKS = 4096
"""At an item's word before a block gives up: about a millisecond, as each is a load from the L2 cache."""

_SOURCE = """
#ifndef {name}_PIECES  // each of the functions below brings it along
#define {name}_PIECES
__device__ __align__(16) float {name}_pieces[{sets} * {words}];
__device__ unsigned {name}_met[{sets} * {counters}];
#endif
"""
_PUT = """
__device__ __forceinline__ void {name}_put(int index, float value) {{ __stcg(&{name}_pieces[index], value); }}
"""
_PUT_FOUR = """
__device__ __forceinline__ void {name}_put_four(int index, float a, float b, float c, float d) {{
  __align__(16) float four[4] = {{a, b, c, d}};
  __stcg((float4*)&{name}_pieces[index], *(float4*)four);
}}
"""
_GET = """
__device__ __forceinline__ float {name}_get(int index) {{ return __ldcg(&{name}_pieces[index]); }}
"""
_GET_FOUR = """
__device__ __forceinline__ void {name}_get_four(int index, float* into) {{
  __align__(16) float four[4];
  *(float4*)four = __ldcg((const float4*)&{name}_pieces[index]);
  into[0] = four[0], into[1] = four[1], into[2] = four[2], into[3] = four[3];
}}
"""
_ARRIVE = """
__device__ __forceinline__ void {name}_arrive(int item) {{  // what the block has put comes before, for all the device
  unsigned* word = &{name}_met[item];
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" : : "l"(word), "r"(1u) : "memory");
}}
"""
_AWAIT = """
__device__ __forceinline__ int {name}_await(int item, int pieces) {{
  unsigned word;
#pragma unroll 1
  for (int look = 0; look < {looks}; ++look) {{
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(&{name}_met[item]) : "memory");
    if ((word & 1023u) == pieces) return word >> 20 ? {all} : {share};
  }}
  word = atomicAdd(&{name}_met[item], 1u << 20);
  __threadfence();
  return (word & 1023u) == pieces ? {share} : {nothing};
}}
"""
_DEPART = """
__device__ __forceinline__ int {name}_depart(int item, int pieces) {{
  return (atomicAdd(&{name}_met[item], 1u << 10) >> 10 & 1023u) == pieces - 1;
}}
"""
_CLEAR = """
__device__ __forceinline__ void {name}_clear(int item) {{
  __stcg(&{name}_met[item], 0u);
  __threadfence();  // before the set has another launch
}}
"""


@dataclass
class PieceStates:
    """Global memory for the states of pieces.

    Attributes
    ----------
    name : of the kernel.
    slots, counters : how many there are, of pieces and of items.
    rows : of a piece.
    form : of each part of a row's state, in order; vectors have a width above 1, a multiple of a span.
    set : the number of the launch's own, once a thread knows it.
    """

    name: str
    slots: int
    counters: int
    rows: int
    form: Sequence[PartForm]
    set: ir.Expr = field(init=False)

    def put(self, slot: ir.Expr, part: int, row: ir.Expr, value: ir.Expr) -> None:
        """Stores a scalar part of a row."""
        self._call("put", _PUT, "void", self._index(slot, part, row), as_float(value))

    def put_four(
        self, slot: ir.Expr, part: int, row: ir.Expr, span: ir.Expr | int, lane: ir.Expr, values: Sequence[ir.Expr]
    ) -> None:
        """Stores what a lane has of a span of a vector part."""
        self._call("put_four", _PUT_FOUR, "void", self._index(slot, part, row, span, lane), *values)

    def get(self, slot: ir.Expr, part: int, row: ir.Expr) -> ir.Expr:
        """A scalar part of a row."""
        word = self._call("get", _GET, "float32", self._index(slot, part, row))
        return _from_float(word, self.form[part].dtype)

    def get_four(self, slot: ir.Expr, part: int, row: ir.Expr, span: ir.Expr, lane: ir.Expr, into: ir.Expr) -> None:
        """Loads what a lane has of a span of a vector part to an address of registers."""
        self._call("get_four", _GET_FOUR, "void", self._index(slot, part, row, span, lane), into)

    def arrive(self, item: ir.Expr) -> None:
        """Arrives; called by one thread, after the stores of all of its block, and a barrier of it."""
        self._call("arrive", _ARRIVE, "void", self._met(item))

    def wait(self, item: ir.Expr, pieces: ir.Expr) -> ir.Expr:
        """Waits until all pieces have arrived; what the block then merges of the item. Called by one thread."""
        return self._call("await", _AWAIT, "int32", self._met(item), pieces)

    def depart(self, item: ir.Expr, pieces: ir.Expr) -> ir.Expr:
        """Departs from an item; whether all others have. Called by one thread, once it has waited."""
        return self._call("depart", _DEPART, "int32", self._met(item), pieces)

    def clear(self, item: ir.Expr) -> None:
        """Makes an item's word ready for the next launch."""
        self._call("clear", _CLEAR, "void", self._met(item))

    @property
    def words(self) -> int:
        """Of a slot, in units of 16 bytes."""
        return -(-sum(part.width for part in self.form) * self.rows // FOUR) * FOUR

    @property
    def sets(self) -> LaunchSets:
        """Which a launch has one of."""
        return LaunchSets(self.name, sets_for(4 * self.slots * self.words))

    def _met(self, item: ir.Expr) -> ir.Expr:
        return self.set * self.counters + item

    def _index(
        self, slot: ir.Expr, part: int, row: ir.Expr, span: ir.Expr | int | None = None, lane: ir.Expr | int = 0
    ) -> ir.Expr:
        """Vectors come first, so that they are aligned."""
        order = sorted(range(len(self.form)), key=lambda k: self.form[k].width == 1)
        before = sum(self.form[k].width for k in order[: order.index(part)]) * self.rows
        own = row if span is None else ((span * self.rows + row) * (SPAN // FOUR) + lane) * FOUR
        return (self.set * self.slots + slot) * self.words + before + own

    def _call(self, suffix: str, source: str, returned: str, *arguments: ir.Expr) -> Any:
        fields = {
            "name": self.name, "sets": self.sets.sets, "words": self.slots * self.words, "counters": self.counters,
            "looks": _LOOKS, "nothing": NOTHING, "share": SHARE, "all": ALL,
        }  # fmt: skip
        call = T.cuda.func_call(
            f"{self.name}_{suffix}", *arguments, source_code=(_SOURCE + source).format(**fields), return_type=returned
        )
        if returned == "void":
            T.evaluate(call)
        return call


def as_float(value: ir.Expr) -> ir.Expr:
    """The bits of a value of 32 bits, as the memory keeps them."""
    return value if str(value.ty.dtype) == "float32" else tirx.reinterpret("float32", value)


def _from_float(word: ir.Expr, dtype: str) -> ir.Expr:
    return word if dtype == "float32" else tirx.reinterpret(dtype, word)
