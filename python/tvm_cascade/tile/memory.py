"""Memory as threads see it: a program's tensors as the kernel's parameters, and vector copies to registers.

Unaligned vectors are funnel shifts of aligned ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import as_index, extent_of, product
from tvm_cascade.tile.emit import bind, branches, in_register, named, parameter, put, registers, when
from tvm_cascade.tile.fragment import placed
from tvm_cascade.transform.printer import cast

INDEX = "int64"
"""The dtype of offsets into memory."""

VECTOR_BYTES = 16
"""The widest load of a thread."""

_WORD, WORD_BYTES = "uint32", 4
"""What registers are moved in."""


def itemsize(dtype: str) -> int:
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def moved_dtype(dtype: str) -> str:
    """The dtype in which elements are copied; booleans are bytes, as CUDA has no boolean vectors."""
    return "uint8" if dtype == "bool" else dtype


class Tensors:
    """The kernel's parameters, and flat views of them."""

    def __init__(self, own: Mapping[tirx.Var, Any]) -> None:
        self.own = own
        self.flat: dict[tirx.Var, Any] = {}

    @classmethod
    def declared(cls, params: Iterable[tirx.Var]) -> Tensors:
        own = [(param, parameter(param)) for param in params]
        return cls({param: buffer for param, buffer in own if tirx.is_buffer_var(param)})

    def flatten(self) -> None:
        for param in self.own:
            self.flat_of(param)

    def flat_of(self, buffer: tirx.Var) -> Any:
        found = next((view for param, view in self.flat.items() if param.same_as(buffer)), None)
        if found is None:
            size = as_index(product(extent_of(n) for n in buffer.ty.shape), INDEX)
            view = T.decl_buffer((size,), moved_dtype(str(buffer.ty.dtype)), data=self.own[buffer].data)
            found = self.flat[buffer] = named(f"{buffer.name}_flat", view)
        return found

    def place(self, expression: ir.Expr, at: Mapping[tirx.Var, ir.Expr]) -> ir.Expr:
        """An expression over the frame at a point, with its loads from the kernel's parameters."""
        return placed(expression, at, self.own)


def copy_vector(target: Any, to: ir.Expr, source: Any, start: ir.Expr, width: int) -> None:
    """target[to:to + width] = source[start:start + width], at once."""
    if width == 1:
        put(target, to, source[start])
        return
    value = tirx.BufferLoad(source, [_ramp(start, width)])
    T.buffer_store(target, value, [_ramp(to, width)])


def as_multiple(place: ir.Expr, width: int) -> ir.Expr:
    """An index rewritten as a multiple of a width, since TVM vectorises only what it proves aligned."""
    return place if width == 1 else tirx.floordiv(place, width) * width


def copy_shifted(target: Any, to: ir.Expr, source: Any, start: ir.Expr, count: int, inside: bool = False) -> None:
    """target[to:to + count] = source[start:start + count], of 16 bytes or a multiple, by loads of 16 bytes.

    Parameters
    ----------
    inside : whether the vectors that cover it are known to be inside of the source.
    """
    dtype = str(source.dtype)
    size, unit = itemsize(dtype), VECTOR_BYTES // itemsize(dtype)
    place = bind("place", start)
    lost = in_register("lost", cast(place & tirx.const(unit - 1, INDEX), "int32"))
    first = as_multiple(place, unit)
    covering = registers("covering", count + unit, dtype)
    for part in range(0, count, unit):
        copy_vector(covering, tirx.const(part, "int32"), source, first + part, unit)
    if inside:
        copy_vector(covering, tirx.const(count, "int32"), source, first + count, unit)
    else:
        _copy_last(covering, count, source, first + count, unit, lost)
    words = count * size // WORD_BYTES
    covered = named("words", T.decl_buffer((words + VECTOR_BYTES // WORD_BYTES,), _WORD, data=covering.data))
    whole = named("target_words", T.decl_buffer((int(target.shape[0]) * size // WORD_BYTES,), _WORD, data=target.data))
    shifted = _shifted(lambda k: covered[k], lost * size, words, size)
    for k in range(words):
        put(whole, to * size // WORD_BYTES + k, shifted(k))


def _copy_last(covering: Any, to: int, source: Any, start: ir.Expr, unit: int, lost: ir.Expr) -> None:
    """The last of the vectors that cover it, of which a tensor may have but the elements that are needed."""
    with branches(start + unit <= cast(source.shape[0], INDEX)) as (inside, across):
        with inside:
            copy_vector(covering, tirx.const(to, "int32"), source, start, unit)
        with across:
            for k in range(unit - 1):
                with when(lost > k):
                    put(covering, to + k, source[start + k])


def _shifted(word: Callable[[int], ir.Expr], lost: ir.Expr, words: int, size: int) -> Callable[[int], ir.Expr]:
    """Words by their number, of elements of some size, after lost bytes: shifted by halves, as a barrel does."""
    narrow = size < WORD_BYTES
    for step in (2, 1):
        count = words + (step - 1) + narrow
        moved = registers(f"by_{step}", count, _WORD)
        skip = (lost & tirx.const(step * WORD_BYTES, "int32")) > 0
        for k in range(count):
            put(moved, k, tirx.Select(skip, word(k + step), word(k)))
        word = moved.__getitem__
    if not narrow:
        return word
    bits = bind("bits", cast((lost & tirx.const(WORD_BYTES - 1, "int32")) * 8, "uint64"))

    def within(k: int) -> ir.Expr:
        both = (cast(word(k + 1), "uint64") << tirx.const(32, "uint64")) | cast(word(k), "uint64")
        return cast(both >> bits, _WORD)

    return within


def _ramp(start: ir.Expr | int, width: int) -> ir.Expr:
    first = tirx.const(start, "int32") if isinstance(start, int) else start
    return tirx.Ramp(first, tirx.const(1, str(first.ty.dtype)), width)
