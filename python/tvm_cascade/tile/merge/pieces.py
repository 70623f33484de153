"""States of pieces in global memory: rows of scalars, and rows of vectors as many threads write and read them at once.

A slot holds the states of all rows of a piece, part by part: a scalar's rows, or a vector's rows one after the other.
Whoever arrives last at an item merges its pieces. As in `tile.merge.blocks` states and counters are the module's own,
a set for each of several launches in flight, and counters come back to zero with the last arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind
from tvm_cascade.tile.state import PartForm

FOUR = 4
"""Neighbouring elements of a vector that a thread reads at once."""

_MOST_LAUNCHES = 16
"""Launches of a kernel that may be in flight at once, where memory allows."""

_MOST_BYTES = 1 << 26
"""Of global memory for the states of all launches in flight."""

_SOURCE = """
#ifndef {name}_PIECES  // each of the functions below brings it along
#define {name}_PIECES
__device__ __align__(16) float {name}_pieces[{launches} * {words}];
__device__ unsigned {name}_arrived[{launches} * {counters}];
#endif
"""
_LAUNCH = """
__device__ __forceinline__ int {name}_launch() {{
  unsigned long long grid;
  asm volatile("mov.u64 %0, %%gridid;" : "=l"(grid));
  return (int)(grid % {launches});
}}
"""
PUT = """
__device__ __forceinline__ void {name}_put(int index, float value) {{ __stcg(&{name}_pieces[index], value); }}
"""
_PUT_PAIR = """
__device__ __forceinline__ void {name}_put_pair(int index, float one, float other) {{
  __align__(8) float pair[2] = {{one, other}};
  __stcg((float2*)&{name}_pieces[index], *(float2*)pair);
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
__device__ __forceinline__ int {name}_arrive(int counter, int pieces) {{
  __threadfence();  // what the block has put comes before its arrival, for all the device
  unsigned before = atomicInc(&{name}_arrived[counter], pieces - 1);
  __threadfence();  // and what others have put before theirs can be read after it
  return before == pieces - 1;
}}
"""


@dataclass
class PieceStates:
    """Global memory for the states of pieces.

    Attributes
    ----------
    name : of the kernel.
    slots, counters : how many there are.
    rows : of a piece.
    form : of each part of a row's state, in order; vectors have a width above 1, a multiple of four.
    launch : the number of the launch's own set, once the kernel has computed it.
    """

    name: str
    slots: int
    counters: int
    rows: int
    form: Sequence[PartForm]
    launch: ir.Expr = field(init=False)

    def start(self) -> None:
        """Computes the number of the launch's own set, for all that follows in the scope."""
        self.launch = bind("launch", self._call("launch", _LAUNCH, "int32"))

    def put(self, slot: ir.Expr, part: int, row: ir.Expr, value: ir.Expr) -> None:
        """Stores a scalar part of a row."""
        self._call("put", PUT, "void", self._index(slot, part, row), as_float(value))

    def put_pair(self, slot: ir.Expr, part: int, row: ir.Expr, column: ir.Expr, pair: Sequence[ir.Expr]) -> None:
        """Stores two neighbouring elements of a vector part."""
        self._call("put_pair", _PUT_PAIR, "void", self._index(slot, part, row, column), *pair)

    def get(self, slot: ir.Expr, part: int, row: ir.Expr) -> ir.Expr:
        """A scalar part of a row."""
        word = self._call("get", _GET, "float32", self._index(slot, part, row))
        return _from_float(word, self.form[part].dtype)

    def get_four(self, slot: ir.Expr, part: int, row: ir.Expr, column: ir.Expr, into: Any) -> None:
        """Loads four neighbouring elements of a vector part into registers."""
        index = self._index(slot, part, row, column)
        self._call("get_four", _GET_FOUR, "void", index, T.address_of(into[0]))

    def arrive(self, counter: ir.Expr, pieces: ir.Expr) -> ir.Expr:
        """Whether all other pieces have arrived; called by one thread, after the stores of all of its block."""
        return self._call("arrive", _ARRIVE, "int32", self.launch * self.counters + counter, pieces)

    @property
    def words(self) -> int:
        """Of a slot, in units of 16 bytes."""
        return -(-sum(part.width for part in self.form) * self.rows // FOUR) * FOUR

    @property
    def launches(self) -> int:
        """Sets of slots."""
        most = _MOST_BYTES // (4 * self.slots * self.words)
        return max(min(_MOST_LAUNCHES, 1 << max(most, 1).bit_length() - 1), 1)

    def _index(self, slot: ir.Expr, part: int, row: ir.Expr, column: ir.Expr | int = 0) -> ir.Expr:
        """Vectors come first, so that they are aligned."""
        order = sorted(range(len(self.form)), key=lambda k: self.form[k].width == 1)
        before = sum(self.form[k].width for k in order[: order.index(part)]) * self.rows
        return (self.launch * self.slots + slot) * self.words + before + row * self.form[part].width + column

    def _call(self, suffix: str, source: str, returned: str, *arguments: ir.Expr) -> Any:
        fields = {
            "name": self.name, "launches": self.launches, "words": self.slots * self.words, "counters": self.counters,
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
