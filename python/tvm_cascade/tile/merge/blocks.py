"""The grid-level merge: states in global memory; the last block to arrive merges all, in a fixed order.

States and counters are the module's own, a set for each of several launches in flight: see `tile.merge.launches`.
Counters come back to zero with the last arrival, so that no launch has to clear them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.tile.emit import when
from tvm_cascade.tile.merge.launches import LaunchSets, sets_for
from tvm_cascade.tile.state import Number, Part, PartForm, State

_WORD_BYTES = 8

_SOURCE = """
#ifndef {name}_STATES  // each of the functions below brings it along
#define {name}_STATES
__device__ unsigned long long {name}_states[{words}];
__device__ unsigned {name}_arrived[{counters}];
#endif
"""
_PUT = """
__device__ __forceinline__ void {name}_put(int index, unsigned long long word) {{
  __stcg(&{name}_states[index], word);
}}
"""
_GET = """
__device__ __forceinline__ unsigned long long {name}_get(int index) {{
  return __ldcg(&{name}_states[index]);
}}
"""
_ARRIVE = """
__device__ __forceinline__ int {name}_arrive(int row) {{
  __threadfence();  // what this thread has put comes before its arrival, for all the device
  unsigned before = atomicInc(&{name}_arrived[row], {segments} - 1);
  __threadfence();  // and what others have put before theirs can be read after it
  return before == {segments} - 1;
}}
"""


@dataclass
class GridStates:
    """States of the segments of rows in global memory, split index outermost.

    Attributes
    ----------
    name : of the kernel.
    segments, rows : how many there are.
    form : of the states.
    set : the number of the launch's own, once a thread knows it.
    """

    name: str
    segments: int
    rows: int
    form: Sequence[PartForm]
    set: ir.Expr = field(init=False)

    def put(self, state: State, segment: ir.Expr, row: ir.Expr) -> None:
        """One thread stores its state."""
        for first, part in self._places(state):
            with part.each() as number:
                self._call("put", _PUT, "void", self._index(segment, row, first + number), _word(part[number]))

    def get(self, state: State, segment: ir.Expr, row: ir.Expr) -> None:
        """A thread loads the state of a segment; the identity where there is none."""
        state.clear()
        with when(segment < self.segments):
            for first, part in self._places(state):
                with part.each() as number:
                    word = self._call("get", _GET, "uint64", self._index(segment, row, first + number))
                    part.put(_value(word, part.dtype), number)

    def arrive(self, row: ir.Expr) -> ir.Expr:
        """Whether all other segments of the row have arrived; called by one thread, after its stores."""
        return self._call("arrive", _ARRIVE, "int32", self.set * self.rows + row)

    @property
    def sets(self) -> LaunchSets:
        """Which a launch has one of."""
        return LaunchSets(self.name, sets_for(_WORD_BYTES * self._words_per_set))

    @property
    def words(self) -> int:
        """Registers of a state."""
        return sum(part.width for part in self.form)

    @staticmethod
    def _places(state: State) -> Iterator[tuple[int, Part]]:
        """Every part with the number of its first word."""
        first = 0
        for part in state.parts:
            yield first, part
            first += part.width

    def _index(self, segment: ir.Expr, row: ir.Expr, word: Number) -> ir.Expr:
        return self.set * self._words_per_set + (segment * self.rows + row) * self.words + word

    @property
    def _words_per_set(self) -> int:
        return self.segments * self.rows * self.words

    def _call(self, suffix: str, source: str, returned: str, *arguments: ir.Expr) -> Any:
        sets = self.sets.sets
        fields = {
            "name": self.name, "words": sets * self._words_per_set, "counters": sets * self.rows,
            "segments": self.segments,
        }  # fmt: skip
        text = _SOURCE + source
        call = T.cuda.func_call(f"{self.name}_{suffix}", *arguments, source_code=text.format(**fields),
                                return_type=returned)  # fmt: skip
        if returned == "void":
            T.evaluate(call)
        return call


def _word(value: ir.Expr) -> ir.Expr:
    """A value of any dtype as 64 bits."""
    dtype = dtype_of(value)
    if dtype in ("float32", "float64"):
        value = tirx.reinterpret("uint" + dtype.removeprefix("float"), value)
    return value.astype("uint64")


def _value(word: ir.Expr, dtype: str) -> ir.Expr:
    if dtype in ("float32", "float64"):
        bits = "uint" + dtype.removeprefix("float")
        return tirx.reinterpret(dtype, word if bits == "uint64" else word.astype(bits))
    return word.astype(dtype)
