"""Running a split: every chunk's state by its partial function, then the merge, compiled by LLVM, outputs poisoned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import tirx

from tvm_cascade.chunks.split import Split
from tvm_cascade.evaluate import oracle

from ..transform.running import Array, Arrays, Results, build, numpy_dtype

Arguments = dict[str, object]


def given_to(func: tirx.PrimFunc, original: tirx.PrimFunc, inputs: Arrays, start: int, length: int) -> dict[str, Array]:
    """The inputs of a partial function by name: those of the original, cut where the shapes differ."""
    named = dict(zip((p.name for p in oracle.signature(original).inputs), inputs, strict=True))
    found: dict[str, Array] = {}
    for param in func.params:
        if param.name not in named:
            continue
        array, shape = named[param.name], param.ty.shape if tirx.is_buffer_var(param) else ()
        if tirx.is_buffer_var(param) and len(shape) < array.ndim:
            array = array[0]  # shared by all of the first dimension
        for d, extent in enumerate(shape):
            is_cut = not isinstance(extent, tirx.IntImm) or int(extent) != array.shape[d]
            array = np.take(array, range(start, start + length), axis=d) if is_cut else array
        found[param.name] = np.ascontiguousarray(array)
    return found


def state(
    func: tirx.PrimFunc, executable: tvm.runtime.Module, arrays: dict[str, object], parts: Sequence
) -> list[Array]:
    """The buffers that a partial or combining function leaves."""
    left = {part.name: poisoned(part.shape, part.dtype) for part in parts}
    return called(func, executable, {**arrays, **left}, [part.name for part in parts])


def poisoned(shape: Sequence[int], dtype: str) -> Array:
    kind = numpy_dtype(dtype)
    if kind.kind == "b":
        return np.zeros(shape, kind)
    return np.full(shape, np.iinfo(kind).max if kind.kind in "iu" else np.nan, kind)


def called(
    func: tirx.PrimFunc, executable: tvm.runtime.Module, arrays: dict[str, object], asked: Sequence[str]
) -> list[Array]:
    """Calls a function with arrays and numbers by parameter name; gives back some of them."""
    tensors = {n: tvm.runtime.tensor(a) if isinstance(a, np.ndarray) else a for n, a in arrays.items()}
    executable[str(func.attrs["global_symbol"])](*(tensors[param.name] for param in func.params))
    return [tensors[name].numpy() for name in asked]


class Running:
    """A split with its functions compiled."""

    def __init__(self, original: tirx.PrimFunc, parts: Split, builds: Callable[[tirx.PrimFunc], Any] = build) -> None:
        self.original, self.parts = original, parts
        self.partials = [builds(func) for func in parts.partials]
        self.merge, self.combine = builds(parts.merge), builds(parts.combine)

    def states(self, inputs: Arrays, lengths: Sequence[int], **numbers: int) -> list[list[Array]]:
        """The state of each chunk; `numbers` are arguments of their own."""
        found, start = [], 0
        for k, length in enumerate(lengths):
            at = k if len(self.partials) > 1 else 0
            func = self.parts.partials[at]
            cut = given_to(func, self.original, inputs, start, length)
            arrays = {**cut, "offset": start, "length": length, **numbers}
            found.append(state(func, self.partials[at], arrays, self.parts.state))
            start += length
        return found

    def _stacked(self, states: Sequence[list[Array]], lengths: Sequence[int]) -> Arguments:
        arrays = {f"{p.name}s": np.stack([s[k] for s in states]) for k, p in enumerate(self.parts.state)}
        return {**arrays, "counts": np.array(lengths, "int32"), "chunks": len(lengths)}

    def combined(self, states: Sequence[list[Array]], lengths: Sequence[int], inputs: Arrays = ()) -> list[Array]:
        """One state of several."""
        arrays = {**self._whole(inputs), **self._stacked(states, lengths), "count": np.zeros(1, "int32")}
        return state(self.parts.combine, self.combine, arrays, self.parts.state)

    def _whole(self, inputs: Arrays) -> Arguments:
        return dict(zip((p.name for p in oracle.signature(self.original).inputs), inputs, strict=True))

    def merged(self, states: Sequence[list[Array]], lengths: Sequence[int], inputs: Arrays, **numbers: int) -> Results:
        """The results of all chunks; `inputs` are whole, `numbers` arguments of their own."""
        outputs = oracle.signature(self.original).outputs
        left = {b.name: poisoned([int(e) for e in b.ty.shape], str(b.ty.dtype)) for b in outputs}
        names = [b.name for b in outputs]
        arrays = {**self._whole(inputs), **self._stacked(states, lengths), **left, **numbers}
        return dict(zip(names, called(self.parts.merge, self.merge, arrays, names), strict=True))


def empty_state(parts: Split) -> list[Array]:
    """The state of no positions."""
    return [np.full(part.shape, part.identity, numpy_dtype(part.dtype)) for part in parts.state]
