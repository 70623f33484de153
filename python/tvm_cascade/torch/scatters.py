"""Operators that write elements at positions that are data, each combined with what stands there.

    y[p] = x[p] ⊕ v[k] for all k with at[k] = p            ⊕: a sum, a product, an extremum; or y[p] is the last v[k]

TVM's operator goes through the k of an axis one after the other, which is right for a CPU; on a GPU it is one thread
that does. There it is a reduction over all k that looks for those written to p, in parallel and in a fixed order, where
that is little work; which k is the last at a place CUDA tells by atomic maxima, whose order does not count. The rest is
PyTorch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from tvm_cascade.errors import ModelError
from tvm_cascade.tile.estimate import NOMINAL
from tvm_cascade.torch.constants import filled
from tvm_cascade.torch.devices import kind_of
from tvm_cascade.torch.site import Site, accumulator, broadcast, is_one, joined, names_of, shape_of, type_name

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

Found = Callable[[tuple[Any, ...], Any], tuple[Any, Any]]
"""Of a place and the number of an element, whether it is written there, and the element."""


def _end(dtype: str, infinite: float, finite: Callable[[str], Any]) -> Any:
    return tirx.const(infinite, dtype) if "float" in str(dtype) else finite(dtype)


def index_put(site: Site) -> relax.Expr:
    """aten.index_put: positions of some axes, broadcast to each other; of equal positions the last one counts, or all.

    Negative positions count from the end; what is at no place of the tensor is left out.
    """
    data, indices = site["self"], site["indices"]
    given = {axis: one for axis, one in enumerate(indices) if one is not None}
    if any(type_name(one) == "bool" for one in given.values()):
        where, hint = "aten.index_put", "use torch.where"
        raise ModelError("positions", f"a mask among {site.given('indices')}", where, hint)
    axes, positions = _Axes(list(given), site.node.meta["val"].dim()), [*given.values()]
    if not site["accumulate"]:
        return _last_put(site, axes, data, site.cast(site["values"], type_name(data)), positions)
    dtype = accumulator(type_name(data))
    found = _added(site, axes, site.cast(data, dtype), site.cast(site["values"], dtype), positions)
    return site.cast(found, type_name(data))


def embedding_backward(site: Site) -> relax.Expr:
    """aten.embedding_dense_backward: the gradients of a table's rows, each added where the row was read."""
    rows, skipped, gradients = site["num_weights"], site["padding_idx"], site["grad_output"]
    if site["scale_grad_by_freq"]:
        raise ModelError("gradients as they are", "scale_grad_by_freq=True", "an embedding", "scale its gradient")

    def kept(at: te.Tensor) -> te.Tensor:
        return te.compute(at.shape, lambda *i: tirx.if_then_else(at(*i) == skipped, rows, at(*i)), name="kept")

    dtype, width = accumulator(site.dtype), (shape_of(gradients) or [])[-1]
    positions = site["indices"] if skipped < 0 else site.compute(kept, site["indices"], name="kept")
    table = filled(site, [rows, width], 0, dtype)
    return site.cast(_added(site, _Axes([0], 2), table, site.cast(gradients, dtype), [positions]), site.dtype)


class _Axes:
    """The axes of a tensor that positions are given of, in order, and those that are kept."""

    def __init__(self, given: list[int], rank: int) -> None:
        self.given, self.kept = given, [axis for axis in range(rank) if axis not in given]
        self.first = given[0] if given[-1] - given[0] + 1 == len(given) else 0
        """Where the axes of the positions stand in the values."""

    def extents(self, x: te.Tensor) -> list[Any]:
        return [x.shape[axis] for axis in self.given]

    def values_of(self, kept: Sequence[Any], shared: Sequence[Any]) -> list[Any]:
        """Indices, or extents, of the values."""
        return [*kept[: self.first], *shared, *kept[self.first :]]

    def element(self, v: te.Tensor, i: tuple[Any, ...], k: Any, shared: Sequence[Any]) -> Any:
        """What the k-th positions write at a place."""
        return broadcast(v, tuple(self.values_of([i[axis] for axis in self.kept], _digits(k, shared))))

    def places(self, site: Site, data: relax.Expr, positions: Sequence[relax.Expr]) -> relax.Expr:
        """The number of each position's place among those of the given axes; one more than the last for none."""

        def formula(x: te.Tensor, *positions: te.Tensor) -> te.Tensor:
            shared, extents = joined([*positions]), self.extents(x)

            def place(k: Any) -> Any:
                own = tuple(_digits(k, shared))
                at = [_wrapped(broadcast(one, own), extent) for one, extent in zip(positions, extents, strict=True)]
                return _place(at, extents)

            return te.compute((math.prod(shared),), place, name="place")

        return site.compute(formula, data, *positions, name="places")


def _place(indices: Sequence[Any], extents: Sequence[Any]) -> Any:
    """The number of an element; one more than the last where an index is out of range."""
    inside = [tirx.all(one >= 0, one < extent) for one, extent in zip(indices, extents, strict=True)]
    return tirx.if_then_else(tirx.all(*inside), _number(indices, extents), math.prod(extents)).astype("int64")


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


def _wrapped(position: Any, extent: Any) -> Any:
    """A position, counted from the end where it is negative."""
    return position + tirx.if_then_else(position < 0, extent, 0)


def _last_put(
    site: Site, axes: _Axes, data: relax.Expr, values: relax.Expr, positions: Sequence[relax.Expr]
) -> relax.Expr:
    def only(x: te.Tensor, v: te.Tensor, *at: te.Tensor) -> te.Tensor:
        first = [_wrapped(one(*[0] * len(one.shape)), e) for one, e in zip(at, axes.extents(x), strict=True)]

        def value(*i: Any) -> Any:
            here = tirx.all(*(one == i[axis] for one, axis in zip(first, axes.given, strict=True)))
            return tirx.if_then_else(here, axes.element(v, i, 0, joined([*at])), x(*i))

        return te.compute(x.shape, value, name="written")

    def written(x: te.Tensor, v: te.Tensor, last: te.Tensor, *at: te.Tensor) -> te.Tensor:
        def value(*i: Any) -> Any:
            writer = last(_number([i[axis] for axis in axes.given], axes.extents(x)))
            own = axes.element(v, i, tirx.max(writer, 0), joined([*at]))
            return tirx.if_then_else(writer >= 0, own, x(*i))

        return te.compute(x.shape, value, name="written")

    if all(is_one(extent) for one in positions for extent in shape_of(one) or ()):
        return site.compute(only, data, values, *positions, name="written")
    places = axes.places(site, data, positions)
    writers = _last_writers(site, places, math.prod((shape_of(data) or [])[axis] for axis in axes.given))
    return site.compute(written, data, values, writers, *positions, name="written")


def _added(
    site: Site, axes: _Axes, data: relax.Expr, values: relax.Expr, positions: Sequence[relax.Expr]
) -> relax.Expr:
    def elements(x: te.Tensor, v: te.Tensor, place: te.Tensor, *at: te.Tensor) -> list[te.Tensor]:
        """Of each element that is added its place among all, and the element; 0 at the first place for none."""
        shared, kept = joined([*at]), [x.shape[axis] for axis in axes.kept]
        shape, places = axes.values_of(kept, shared), math.prod(axes.extents(x))

        def parts(n: Any) -> tuple[Any, list[Any]]:
            i = _digits(n, shape)
            return place(_number(i[axes.first : axes.first + len(shared)], shared)), i

        def where(n: Any) -> Any:
            at, i = parts(n)
            index = dict(zip(axes.given, _digits(at, axes.extents(x)), strict=True))
            index |= dict(zip(axes.kept, (*i[: axes.first], *i[axes.first + len(shared) :]), strict=True))
            number = _number([index[axis] for axis in range(len(x.shape))], x.shape)
            return tirx.if_then_else(at < places, number, tirx.const(0, "int64"))

        def element(n: Any) -> Any:
            at, i = parts(n)
            return tirx.if_then_else(at < places, broadcast(v, tuple(i)), tirx.const(0, v.dtype))

        count = (math.prod(shape),)
        return [te.compute(count, where, name="place"), te.compute(count, element, name="element")]

    def summed(x: te.Tensor, v: te.Tensor, place: te.Tensor, *at: te.Tensor) -> te.Tensor:
        def found(i: tuple[Any, ...], k: Any) -> tuple[Any, Any]:
            own = _number([i[axis] for axis in axes.given], axes.extents(x))
            return place(k) == own, axes.element(v, i, k, joined([*at]))

        return _searched("add", x, place.shape[0], found)

    places, shape = axes.places(site, data, positions), shape_of(data) or []
    if site.on_gpu:
        _check_looks(site, places, shape)
        return site.compute(summed, data, values, places, *positions, name="added")
    found = site.compute(elements, data, values, places, *positions, name="elements")
    where, written = (site.emit(relax.TupleGetItem(found, part)) for part in range(2))
    return _one_by_one(site, "add", data, where, written)


def _one_by_one(site: Site, how: str, data: relax.Expr, places: relax.Expr, written: relax.Expr) -> relax.Expr:
    """Elements at places of the whole tensor, one after the other."""
    flat = (site.emit(relax.op.reshape(one, [-1])) for one in (data, places, written))
    return site.emit(relax.op.reshape(site.emit(relax.op.scatter_elements(*flat, 0, how)), shape_of(data)))


def _searched(how: str, x: te.Tensor, count: Any, found: Found) -> te.Tensor:
    """Each element combined with those, of so many, that are found to be written at its place."""
    combine, identity = _COMBINED[how]
    reducer, k = te.comm_reducer(combine, identity, name=how), te.reduce_axis((0, count), "k")

    def written(*i: Any) -> Any:
        here, value = found(i, k)
        return reducer(tirx.if_then_else(here, value, identity(x.dtype)), axis=k)

    total = te.compute(x.shape, written, name="found")
    return te.compute(x.shape, lambda *i: combine(x(*i), total(*i)), name="combined")


def _size(extent: Any) -> int:
    """An extent; a usual one where it may change."""
    return int(extent) if isinstance(extent, (int, tirx.IntImm)) else NOMINAL


def _check_looks(site: Site, positions: relax.Expr, places: Sequence[Any], axis: int = 0, shared: bool = True) -> None:
    """Refuses what would be too slow as a reduction on a GPU: all positions of an axis, for every place.

    Parameters
    ----------
    shared : several threads look for one place. TVM has them share no extremum that begins at an infinity.

    Raises
    ------
    ModelError
        Which has PyTorch run the operator, where the model may be cut.
    """
    count = _size((shape_of(positions) or [])[axis])
    looks = count * max(math.prod(map(_size, places)), 1 if shared else MOST_THREADS)
    if looks > MOST_LOOKS:
        expected = f"at most {MOST_LOOKS} pairs of an element and a place, on a GPU"
        hint = "tvm_cascade.optimize(…, cut=True) and torch.compile(…, backend='tvm_cascade') run it in PyTorch"
        raise ModelError(expected, f"{looks}, as {count} are written one after the other", str(site.node.target), hint)


def _last_writers(site: Site, places: relax.Expr, extent: Any) -> relax.Expr:
    """Which of the places, numbers up to an extent, is the last that names each of them; -1 where none does."""

    def searched(places: te.Tensor, extent: Any) -> te.Tensor:
        none = te.compute((extent,), lambda _: tirx.const(-1, "int64"), name="none")
        return _searched("max", none, places.shape[0], lambda i, k: (places(k) == i[0], k.astype("int64")))

    def one_by_one(places: te.Tensor) -> te.Tensor:
        return te.compute(places.shape, lambda k: k.astype("int64"), name="number")

    if not site.on_gpu:
        none, numbers = filled(site, [extent + 1], -1, "int64"), site.compute(one_by_one, places, name="number")
        return site.emit(relax.op.scatter_elements(none, places, numbers, 0, "max"))
    if kind_of(site.node.meta["val"].device) == "cuda":
        return site.compute(last_by_atomics, places, extent, name="last_writer")
    _check_looks(site, places, [extent])
    return site.compute(searched, places, extent, name="last_writer")


_LATER = """
__device__ __forceinline__ void write_later(int* last, int number) { atomicMax(last, number); }
"""


def last_by_atomics(places: te.Tensor, extent: Any) -> te.Tensor:
    """The last writers by a thread for each place, then one for each writer, on a GPU of CUDA."""

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


def scatter(how: str) -> Callable[[Site], relax.Expr]:
    """aten.scatter of a tensor or a number, and aten.scatter_add."""
    return lambda site: _scattered(site, how)


def scatter_reduce(site: Site) -> relax.Expr:
    """aten.scatter_reduce with what is written to: products and extrema; rules make sums and starts of it."""
    if site["reduce"] not in _SCATTERED or not site["include_self"]:
        where, hint = "aten.scatter_reduce", "divide a sum by a count, both by scatter_add"
        raise ModelError("a sum, a product or an extremum", f"reduce={site['reduce']!r}", where, hint)
    return _scattered(site, _SCATTERED[site["reduce"]])


_SCATTERED = {"prod": "mul", "amax": "max", "amin": "min"}


def _scattered(site: Site, how: str) -> relax.Expr:
    """What is written may be larger than the positions, and is then left out."""

    def formula(written: te.Tensor, positions: te.Tensor) -> te.Tensor:
        return te.compute(positions.shape, lambda *i: written(*i), name="written")

    positions, data = site["index"], site["self"]
    if "value" in names_of(site):
        written = filled(site, shape_of(positions) or [], site["value"], type_name(data))
    elif tuple(site.given("src").meta["val"].shape) == tuple(site.given("index").meta["val"].shape):
        written = site["src"]
    else:
        written = site.compute(formula, site["src"], positions, name="written")
    return _along(site, how, data, positions, written, site["dim"] % len(shape_of(data) or [0]))


def _along(site: Site, how: str, data: relax.Expr, positions: relax.Expr, written: relax.Expr, axis: int) -> relax.Expr:
    """What is written at positions along an axis, at each index of the others."""

    def summed(x: te.Tensor, at: te.Tensor, v: te.Tensor) -> te.Tensor:
        def found(i: tuple[Any, ...], k: Any) -> tuple[Any, Any]:
            source = (*i[:axis], k, *i[axis + 1 :])
            others = [(one, extent) for d, (one, extent) in enumerate(zip(i, at.shape, strict=True)) if d != axis]
            inside = [one < extent for one, extent in others]
            return tirx.all(*inside, at(*source) == i[axis]), v(*source)

        return _searched(how, x, at.shape[axis], found)

    def places(x: te.Tensor, at: te.Tensor) -> te.Tensor:
        def place(n: Any) -> Any:
            i = tuple(_digits(n, at.shape))
            return _place((*i[:axis], at(*i), *i[axis + 1 :]), x.shape)

        return te.compute((math.prod(at.shape),), place, name="place")

    def taken(x: te.Tensor, v: te.Tensor, last: te.Tensor) -> te.Tensor:
        def value(*i: Any) -> Any:
            writer = last(_number(i, x.shape))
            return tirx.if_then_else(writer >= 0, v(*_digits(tirx.max(writer, 0), v.shape)), x(*i))

        return te.compute(x.shape, value, name="written")

    def one(x: te.Tensor, at: te.Tensor, v: te.Tensor) -> te.Tensor:
        combine = _COMBINED[how][0] if how in _COMBINED else lambda _, written: written

        def value(*i: Any) -> Any:
            first = (*i[:axis], 0, *i[axis + 1 :])
            return tirx.if_then_else(_wrapped(at(*first), x.shape[axis]) == i[axis], combine(x(*i), v(*first)), x(*i))

        return te.compute(x.shape, value, name="written")

    shape, own = shape_of(data) or [], shape_of(positions) or []
    # TVM's operator takes the other axes for as long as those of the data.
    alike = all(str(one) == str(other) for d, (one, other) in enumerate(zip(shape, own, strict=True)) if d != axis)
    if alike and is_one(own[axis]):
        return site.compute(one, data, positions, written, name="written")
    if alike and (not site.on_gpu or _size(own[axis]) <= MOST_STEPS):
        return site.emit(relax.op.scatter_elements(data, positions, written, axis, how))
    if site.on_gpu and how != "update":
        infinite = how in ("max", "min") and "float" in type_name(data)
        _check_looks(site, positions, shape, axis, shared=not infinite)
        return site.compute(summed, data, positions, written, name="combined")
    where = site.compute(places, data, positions, name="places")
    if how == "update":
        writers = _last_writers(site, where, math.prod(shape))
        return site.compute(taken, data, written, writers, name="written")
    return _one_by_one(site, how, data, where, written)


def maxima_backward(site: Site) -> relax.Expr:
    """aten.max_pool2d_with_indices_backward: each gradient is added where the maximum stood, a number of a plane."""
    x, planes = site["self"], [-1, math.prod((shape_of(site["self"]) or [])[-2:])]
    gradients = site["grad_output"]
    each = [-1, math.prod((shape_of(gradients) or [])[-2:])]
    zeros = site.emit(relax.op.reshape(filled(site, shape_of(x) or [], 0, type_name(gradients)), planes))
    positions, written = (site.emit(relax.op.reshape(one, each)) for one in (site["indices"], gradients))
    return site.emit(relax.op.reshape(_along(site, "add", zeros, positions, written, 1), shape_of(x)))
