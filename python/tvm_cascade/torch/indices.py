"""Operators that pick parts of tensors, or write parts of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx

from tvm_cascade.errors import ModelError
from tvm_cascade.torch.constants import filled
from tvm_cascade.torch.results import extents_of
from tvm_cascade.torch.site import Site, accumulator, broadcast, is_one, joined, shape_of, type_name


def slice_(site: Site) -> relax.Expr:
    """aten.slice, whose extent TVM's converter does not know where it, or the data's, may change."""
    axis, step = site["dim"] % site.node.meta["val"].dim(), site["step"]
    start = 0 if site["start"] is None else site["start"]

    def formula(x: te.Tensor, shape: list[Any], start: Any) -> te.Tensor:
        first = _first(start, x.shape[axis])
        return te.compute(shape, lambda *i: x(*i[:axis], first + i[axis] * step, *i[axis + 1 :]), name="slice")

    extents = extents_of(site, site.node.meta["val"])
    return site.compute(formula, site["self"], extents, start, name="slice")


def _first(start: Any, extent: Any) -> Any:
    """Where a slice starts, counted from the end where that is negative."""
    if isinstance(start, (int, tirx.IntImm)):
        return start if int(start) >= 0 else tirx.max(start + extent, 0)
    return tirx.max(tirx.Select(start < 0, start + extent, start), 0)


def slice_scatter(site: Site) -> relax.Expr:
    """aten.slice_scatter, of which TVM's converter looks rows up."""
    axis, step = site["dim"] % site.node.meta["val"].dim(), site["step"]
    start = 0 if site["start"] is None else site["start"]

    def formula(x: te.Tensor, written: te.Tensor, start: Any) -> te.Tensor:
        first, count = _first(start, x.shape[axis]), written.shape[axis]

        def value(*i: Any) -> Any:
            row, rest = tirx.floordiv(i[axis] - first, step), tirx.floormod(i[axis] - first, step)
            inside = tirx.all(rest == 0, row >= 0, row < count)
            return tirx.if_then_else(inside, written(*i[:axis], row, *i[axis + 1 :]), x(*i))

        return te.compute(x.shape, value, name="written")

    return site.compute(formula, site["self"], site["src"], start, name="written")


def cat(site: Site) -> relax.Expr:
    """aten.cat, which leaves out one-dimensional tensors without elements, and joins others in one dtype."""
    rank = site.node.meta["val"].dim()
    values = [(node, node.meta["val"]) for node in site.given("tensors")]
    parts = [site.importer.env[node] for node, value in values if rank == 1 or value.dim() > 1]
    return site.emit(relax.op.concat([site.cast(one, site.dtype) for one in parts], axis=site["dim"] % rank))


def as_strided(site: Site) -> relax.Expr:
    """aten.as_strided of a tensor whose elements lie in order: elements of it at strides from an offset."""
    size, stride, offset = site["size"], site["stride"], site["storage_offset"] or 0
    given, where, hint = site.given("self").meta["val"], "aten.as_strided", "call .contiguous() before it"
    if not given.is_contiguous():
        raise ModelError("a contiguous tensor", f"strides {given.stride()}", where, hint)
    last = offset + sum((extent - 1) * step for extent, step in zip(size, stride, strict=True))
    if isinstance(last, int) and not 0 <= min(last, offset) <= max(last, offset) < given.numel():
        found = f"elements {offset} to {last} of {given.numel()}"
        raise ModelError("elements of the tensor that it is given", found, where, "take them of the tensor itself")

    def formula(x: te.Tensor) -> te.Tensor:
        def value(*i: Any) -> Any:
            return x(sum((at * step for at, step in zip(i, stride, strict=True)), start=tirx.const(offset, "int64")))

        return te.compute(tuple(size), value, name="strided")

    return site.compute(formula, site.emit(relax.op.reshape(site["self"], [-1])), name="strided")


def index_put(site: Site) -> relax.Expr:
    """aten.index_put: positions along one axis, or an index for each axis."""
    data, indices, values = site["self"], list(site["indices"]), site["values"]
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if not site["accumulate"] and len(given) == 1:
        axis, index = given[0]
        if type_name(index) != "bool" and len(shape_of(index) or ()) == 1:
            return _along_axis(site, data, axis, index, values)
    masked = any(type_name(index) == "bool" for _, index in given)
    if masked or len(given) != len(indices) or len(indices) != site.node.meta["val"].dim():
        where, hint = "aten.index_put", "write along one axis at a time"
        raise ModelError("an index along one axis, or one for each", f"indices {site.given('indices')}", where, hint)
    return _one_by_one(site, data, indices, values)


def _one_by_one(site: Site, data: relax.Expr, indices: list[relax.Expr], values: relax.Expr) -> relax.Expr:
    """Elements at a position of every axis, one after the other: TVM's operator for it loses what is added at once."""

    def place(x: te.Tensor, *positions: te.Tensor) -> te.Tensor:
        def flat(*i: Any) -> Any:
            at = tirx.const(0, "int64")
            for one, extent in zip(positions, x.shape, strict=True):
                at = at * extent + _wrapped(broadcast(one, i), extent)
            return at

        return te.compute(joined(list(positions)), flat, name="place")

    dtype = accumulator(type_name(data)) if site["accumulate"] else type_name(data)
    places = site.compute(place, data, *indices, name="places")
    rows = site.emit(relax.op.broadcast_to(site.cast(values, dtype), shape_of(places)))
    flat = (site.emit(relax.op.reshape(one, [-1])) for one in (site.cast(data, dtype), places, rows))
    written = site.emit(relax.op.scatter_elements(*flat, 0, "add" if site["accumulate"] else "update"))
    return site.cast(site.emit(relax.op.reshape(written, shape_of(data))), type_name(data))


def _along_axis(site: Site, data: relax.Expr, axis: int, index: relax.Expr, values: relax.Expr) -> relax.Expr:
    """Rows at positions along one axis: of equal positions the last one counts."""
    values = site.cast(values, type_name(data))

    def row(v: te.Tensor, i: tuple[Any, ...], n: Any) -> Any:
        return broadcast(v, (*i[:axis], n, *i[axis + 1 :]))

    def only(x: te.Tensor, positions: te.Tensor, v: te.Tensor) -> te.Tensor:
        at = _wrapped(positions(0), x.shape[axis])
        return te.compute(x.shape, lambda *i: tirx.if_then_else(at == i[axis], row(v, i, 0), x(*i)), name="written")

    def written(x: te.Tensor, last: te.Tensor, v: te.Tensor) -> te.Tensor:
        def value(*i: Any) -> Any:
            writer = last(i[axis])
            return tirx.if_then_else(writer >= 0, row(v, i, tirx.max(writer, 0)), x(*i))

        return te.compute(x.shape, value, name="written")

    if is_one((shape_of(index) or [0])[0]):
        return site.compute(only, data, index, values, name="written")
    writers = _last_writers(site, index, (shape_of(data) or [])[axis])
    return site.compute(written, data, writers, values, name="written")


def _last_writers(site: Site, index: relax.Expr, extent: Any) -> relax.Expr:
    """Which of some positions is the last at each place of an axis; -1 where none is."""

    def searched(positions: te.Tensor, extent: Any) -> te.Tensor:
        n = te.reduce_axis((0, positions.shape[0]), "n")

        def last(p: Any) -> Any:
            return te.max(tirx.if_then_else(_wrapped(positions(n), extent) == p, n, -1), axis=n)

        return te.compute((extent,), last, name="last_writer")

    def places(positions: te.Tensor, extent: Any) -> list[te.Tensor]:
        def place(n: Any) -> Any:
            at = _wrapped(positions(n), extent)
            return tirx.if_then_else(tirx.all(at >= 0, at < extent), at, extent).astype("int64")

        numbers = te.compute(positions.shape, lambda n: n.astype("int64"), name="number")
        return [te.compute(positions.shape, place, name="place"), numbers]

    if site.on_gpu:
        return site.compute(searched, index, extent, name="last_writer")  # in parallel, each place by itself
    # One after the other; what is no place of the axis is written behind it.
    found = site.compute(places, index, extent, name="places")
    none = filled(site, [extent + 1], -1, "int64")
    where, numbers = (site.emit(relax.TupleGetItem(found, k)) for k in range(2))
    return site.emit(relax.op.scatter_elements(none, where, numbers, 0, "max"))


def _wrapped(position: Any, extent: Any) -> Any:
    """A position, counted from the end where it is negative."""
    return position + tirx.if_then_else(position < 0, extent, 0)


def scatter(how: str) -> Callable[[Site], relax.Expr]:
    """aten.scatter of a tensor, and aten.scatter_add."""
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

    written, positions = site["src"], site["index"]
    if tuple(site.given("src").meta["val"].shape) != tuple(site.given("index").meta["val"].shape):
        written = site.compute(formula, written, positions, name="written")
    return site.emit(relax.op.scatter_elements(site["self"], positions, written, site["dim"], how))


# Operators that read tensors at positions, counted from the end where they are negative, and never out of bounds.


def select(site: Site) -> relax.Expr:
    """aten.select.int: one position along an axis, which is dropped."""
    axis, index = site["dim"] % _rank(site, "self"), site["index"]

    def formula(x: te.Tensor) -> te.Tensor:
        at = x.shape[axis] + index if isinstance(index, int) and index < 0 else index
        shape = [*x.shape[:axis], *x.shape[axis + 1 :]]
        return te.compute(shape, lambda *i: x(*i[:axis], at, *i[axis:]), name="select")

    return site.compute(formula, site["self"], name="select")


def index(site: Site) -> relax.Expr:
    """aten.index.Tensor: tensors of positions for some of the axes, broadcast to each other."""
    given = {axis: one for axis, one in enumerate(site["indices"]) if one is not None}
    if any(type_name(one) == "bool" for one in given.values()):
        hint = "use torch.where, whose result has a known shape"
        raise ModelError("positions", "a mask, whose count of elements depends on data", "aten.index", hint)
    return _picked(site, site["self"], given)


def index_select(site: Site) -> relax.Expr:
    return _picked(site, site["self"], {site["dim"] % _rank(site, "self"): site["index"]})


def embedding(site: Site) -> relax.Expr:
    """aten.embedding: rows of a table."""
    return _picked(site, site["weight"], {0: site["indices"]})


def take(site: Site) -> relax.Expr:
    """aten.take: elements of a tensor without its shape."""
    return _picked(site, site.emit(relax.op.reshape(site["self"], [-1])), {0: site["index"]})


def gather(site: Site) -> relax.Expr:
    """aten.gather: along one axis, at positions of their own for each element."""
    axis = site["dim"] % max(_rank(site, "self"), 1)

    def formula(x: te.Tensor, positions: te.Tensor) -> te.Tensor:
        def value(*i: Any) -> Any:
            return x(*i[:axis], _inside(positions(*i), x.shape[axis]), *i[axis + 1 :])

        return te.compute(positions.shape, value, name="gather")

    return site.compute(formula, site["self"], site["index"], name="gather")


def _picked(site: Site, data: relax.Expr, given: dict[int, relax.Expr]) -> relax.Expr:
    """The data at positions of some axes; the others are kept whole."""
    axes = sorted(given)
    adjacent = axes == list(range(axes[0], axes[-1] + 1))

    def formula(x: te.Tensor, *positions: te.Tensor) -> te.Tensor:
        shared = joined(list(positions))
        first = axes[0] if adjacent else 0  # where the axes of the positions stand in the result
        kept = [extent for axis, extent in enumerate(x.shape) if axis not in given]

        def value(*i: Any) -> Any:
            at, rest = i[first : first + len(shared)], iter((*i[:first], *i[first + len(shared) :]))
            read = {axis: _inside(broadcast(p, at), x.shape[axis]) for axis, p in zip(axes, positions, strict=True)}
            return x(*(read[axis] if axis in read else next(rest) for axis in range(len(x.shape))))

        return te.compute([*kept[:first], *shared, *kept[first:]], value, name="picked")

    return site.compute(formula, data, *(given[axis] for axis in axes), name="picked")


def _inside(position: Any, extent: Any) -> Any:
    """The position as a number from 0 to the last one."""
    last = tirx.const(-1, "int64") + extent
    wide = position.astype("int64")
    counted = wide + tirx.if_then_else(wide < 0, extent, tirx.const(0, "int64"))
    return tirx.max(tirx.min(counted, last), tirx.const(0, "int64"))


def _rank(site: Site, name: str) -> int:
    return site.given(name).meta["val"].dim()
