"""Elements written at positions along an axis that are data, each combined with what stands there.

    y[…, p, …] = x[…, p, …] ⊕ v[…, k, …] for all k with at[…, k, …] = p       ⊕: a sum, a product, an extremum,
                                                                              or the last v[…, k, …] alone
Rules make the other operators that write at positions of these. TVM's operator goes through the k of an axis one after
the other, which is right for a CPU; on a GPU it is one thread that does. There it is a reduction over all k that looks
for those written to p, in parallel and in a fixed order, where that is little work; which k is the last at a place CUDA
tells by atomic maxima, whose order does not count. The rest is PyTorch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from tvm_cascade.errors import ModelError
from tvm_cascade.tile.estimate import NOMINAL
from tvm_cascade.torch.devices import kind_of
from tvm_cascade.torch.indices import inside
from tvm_cascade.torch.site import Site, is_one, shape_of, type_name

MOST_STEPS = 128
"""Of a thread of a GPU that writes one element after the other: each waits for memory, about a microsecond."""

MOST_LOOKS = 1 << 27
"""Of a reduction that looks at every element to be written for every place: some 0.1 ms of a large GPU."""

MOST_THREADS = 1 << 14
"""That run at once: fewer, each by itself, take as long as so many."""

_COMBINED: Mapping[str, tuple[Callable[[Any, Any], Any], Callable[[str], Any]]] = {
    "add": (lambda a, b: a + b, lambda dtype: tirx.const(0, dtype)),
    "mul": (lambda a, b: a * b, lambda dtype: tirx.const(1, dtype)),
    "max": (lambda a, b: tirx.max(a, b), lambda dtype: _end(dtype, -math.inf, tirx.min_value)),
    "min": (lambda a, b: tirx.min(a, b), lambda dtype: _end(dtype, math.inf, tirx.max_value)),
}
"""How elements are combined, by TVM's names, and what changes none of a dtype."""

UPDATE = "update"
_REDUCED = {"prod": "mul", "amax": "max", "amin": "min"}


def _end(dtype: str, infinite: float, finite: Callable[[str], Any]) -> Any:
    return tirx.const(infinite, dtype) if "float" in str(dtype) else finite(dtype)


def scatter(how: str) -> Callable[[Site], relax.Expr]:
    return lambda site: _scattered(site, how)


def scatter_reduce(site: Site) -> relax.Expr:
    """aten.scatter_reduce with what is written to: products and extrema; rules make sums and starts of it."""
    if site["reduce"] not in _REDUCED or not site["include_self"]:
        where, hint = "aten.scatter_reduce", "divide a sum by a count, both by scatter_add"
        raise ModelError("a sum, a product or an extremum", f"reduce={site['reduce']!r}", where, hint)
    return _scattered(site, _REDUCED[site["reduce"]])


def _scattered(site: Site, how: str) -> relax.Expr:
    data, positions, written = site["self"], site["index"], site["src"]
    shape, steps = shape_of(data) or [0], site.given("index").meta["val"].stride()
    axis = site["dim"] % len(shape)
    write = _Write(how, axis, [d for d, step in enumerate(steps) if d != axis and not step])
    count = (shape_of(positions) or [])[axis]
    if is_one(count):
        return site.compute(write.only, data, positions, written, name="written")
    if site.on_gpu:
        few, looks = _size(count) <= MOST_STEPS, write.looks(shape, count, type_name(data))
        if how == UPDATE and not few and kind_of(site.node.meta["val"].device) == "cuda":
            places = site.compute(write.places, data, positions, name="places")
            last = site.compute(last_by_atomics, places, write.extent(shape), name="last_writer")
            return site.compute(write.taken, data, positions, written, last, name="written")
        if looks <= MOST_LOOKS:
            return site.compute(write.searched, data, positions, written, name="combined")
        if not few:
            expected = f"at most {MOST_LOOKS} pairs of an element and a place, on a GPU"
            found = f"{looks}, as {_size(count)} are written one after the other"
            hint = "tvm_cascade.optimize(…, cut=True) and torch.compile(…, backend='tvm_cascade') run it in PyTorch"
            raise ModelError(expected, found, str(site.node.target), hint)
    known = site.compute(write.known, data, positions, name="positions")
    return site.emit(relax.op.scatter_elements(data, known, written, axis, how))


def _size(extent: Any) -> int:
    """An extent; a usual one where it may change."""
    return int(extent) if isinstance(extent, (int, tirx.IntImm)) else NOMINAL


@dataclass(frozen=True)
class _Write:
    """Formulas of x, of positions `at`, and of what is written, v; where at is out of range, the nearest is written.

    A writer is an element of at, a place one that it may write to, both numbered in the order of memory.

    Attributes
    ----------
    how : elements are combined.
    axis : that the positions are of.
    shared : axes along which the positions are the same, so that writers and places are those of their first index.
    """

    how: str
    axis: int
    shared: Sequence[int]

    def _along(self, i: Sequence[Any], position: Any) -> list[Any]:
        return [*i[: self.axis], position, *i[self.axis + 1 :]]

    def _own(self, given: Sequence[Any], first: Any) -> list[Any]:
        return [first if d in self.shared else one for d, one in enumerate(given)]

    def _at(self, x: te.Tensor, at: te.Tensor, i: Sequence[Any]) -> Any:
        return inside(at(*i), x.shape[self.axis])

    def extent(self, shape: Sequence[Any]) -> Any:
        """How many places there are in a tensor of a shape."""
        return math.prod(self._own(shape, 1))

    def looks(self, shape: Sequence[Any], count: Any, dtype: str) -> int:
        """Of a reduction over so many of an axis for each place.

        Several threads look for one place, but for an extremum that begins at an infinity.
        """
        places = math.prod(map(_size, self._own(shape, 1) if self.how == UPDATE else shape))
        alone = self.how in ("max", "min") and "float" in dtype
        return _size(count) * max(places, MOST_THREADS if alone else 1)

    def only(self, x: te.Tensor, at: te.Tensor, v: te.Tensor) -> te.Tensor:
        """Of one position along the axis."""
        combine = _COMBINED[self.how][0] if self.how in _COMBINED else lambda _, written: written

        def value(*i: Any) -> Any:
            first = self._along(i, 0)
            return tirx.if_then_else(self._at(x, at, first) == i[self.axis], combine(x(*i), v(*first)), x(*i))

        return te.compute(x.shape, value, name="written")

    def known(self, x: te.Tensor, at: te.Tensor) -> te.Tensor:
        return te.compute(at.shape, lambda *i: self._at(x, at, i), name="position")

    def places(self, x: te.Tensor, at: te.Tensor) -> te.Tensor:
        """The place of each writer."""
        writers, places = self._own(at.shape, 1), self._own(x.shape, 1)

        def place(k: Any) -> Any:
            i = _digits(k, writers)
            return _number(self._along(i, self._at(x, at, i)), places)

        return te.compute((math.prod(writers),), place, name="place")

    def searched(self, x: te.Tensor, at: te.Tensor, v: te.Tensor) -> te.Tensor:
        """Each element combined with all that are written to its place, which are looked for."""
        if self.how == UPDATE:
            return self.taken(x, at, v, self._last(x, at))
        combine, identity = _COMBINED[self.how]
        reducer, k = te.comm_reducer(combine, identity, name=self.how), te.reduce_axis((0, at.shape[self.axis]), "k")

        def found(*i: Any) -> Any:
            source = self._along(i, k)
            here = self._at(x, at, source) == i[self.axis]
            return reducer(tirx.if_then_else(here, v(*source), identity(x.dtype)), axis=k)

        total = te.compute(x.shape, found, name="found")
        return te.compute(x.shape, lambda *i: combine(x(*i), total(*i)), name="combined")

    def _last(self, x: te.Tensor, at: te.Tensor) -> te.Tensor:
        """The last writer of each place; -1 where there is none."""
        writers, places = self._own(at.shape, 1), self._own(x.shape, 1)
        k = te.reduce_axis((0, at.shape[self.axis]), "k")

        def writer(p: Any) -> Any:
            i = _digits(p, places)
            source = self._along(i, k)
            here = self._at(x, at, source) == i[self.axis]
            return te.max(tirx.if_then_else(here, _number(source, writers), tirx.const(-1, "int64")), axis=k)

        return te.compute((math.prod(places),), writer, name="last_writer")

    def taken(self, x: te.Tensor, at: te.Tensor, v: te.Tensor, last: te.Tensor) -> te.Tensor:
        """Each element, or what the last writer of its place has for it."""

        def value(*i: Any) -> Any:
            writer = last(_number(self._own(i, 0), self._own(x.shape, 1)))
            source = _digits(tirx.max(writer, 0), self._own(at.shape, 1))
            read = [i[d] if d in self.shared else one for d, one in enumerate(source)]
            return tirx.if_then_else(writer >= 0, v(*read), x(*i))

        return te.compute(x.shape, value, name="written")


def _digits(number: Any, extents: Sequence[Any]) -> list[Any]:
    """The indices of an element, by its number in the order of a tensor."""
    found = list[Any]()
    for extent in reversed(extents):
        found.insert(0, tirx.floormod(number, extent) if len(found) + 1 < len(extents) else number)
        number = tirx.floordiv(number, extent)
    return found


def _number(indices: Sequence[Any], extents: Sequence[Any]) -> Any:
    found = tirx.const(0, "int64")
    for index, extent in zip(indices, extents, strict=True):
        found = found * extent + index
    return found


_LATER = """
__device__ __forceinline__ void write_later(int* last, int number) { atomicMax(last, number); }
"""


def last_by_atomics(places: te.Tensor, extent: Any) -> te.Tensor:
    """The last writers by a thread for each place, then one for each writer, on a GPU of CUDA; -1 where none is."""

    def body(inputs: Any, outputs: Any) -> Any:
        at, last = T.buffer_proxy(inputs[0]), T.buffer_proxy(outputs[0])

        def start(p: Any) -> None:
            last[p] = tirx.const(-1, "int32")

        def write(k: Any) -> None:
            with T.If(tirx.all(at[k] >= 0, at[k] < extent)), T.Then():
                where = tirx.address_of(last[at[k]])
                number = k.astype("int32")
                T.evaluate(T.cuda.func_call("write_later", where, number, source_code=_LATER, return_type="void"))

        with IRBuilder() as builder:
            with T.seq_scope():
                _each(extent, start)
                _each(places.shape[0], write)
            return builder.get()

    given = tirx.decl_buffer(places.shape, places.dtype, "places", layout=None)
    made = tirx.decl_buffer((extent,), "int32", "last", layout=None)
    shape = [(extent,)]
    return te.extern(shape, [places], body, "last_writer", "int32", in_buffers=[given], out_buffers=[made])


_THREADS = 256


def _each(count: Any, do: Callable[[Any], None]) -> None:
    """A kernel with a thread for each number below a count."""
    block, thread = te.thread_axis("blockIdx.x"), te.thread_axis("threadIdx.x")
    blocks = tirx.floordiv(count + (_THREADS - 1), _THREADS)
    with T.frame_scope([T.attr(block, "thread_extent", blocks), T.attr(thread, "thread_extent", _THREADS)]):
        number = block * _THREADS + thread
        with T.If(number < count), T.Then():
            do(number)
