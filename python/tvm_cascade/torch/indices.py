"""Operators that pick parts of tensors, or write parts of them whose place is known."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from tvm_cascade.errors import ModelError
from tvm_cascade.torch.results import extents_of
from tvm_cascade.torch.site import Site, broadcast, joined, type_name


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


def gather(site: Site) -> relax.Expr:
    """aten.gather: along one axis, at positions of their own for each element."""
    axis = site["dim"] % max(_rank(site, "self"), 1)

    def formula(x: te.Tensor, positions: te.Tensor) -> te.Tensor:
        def value(*i: Any) -> Any:
            return x(*i[:axis], inside(positions(*i), x.shape[axis]), *i[axis + 1 :])

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
            read = {axis: inside(broadcast(p, at), x.shape[axis]) for axis, p in zip(axes, positions, strict=True)}
            return x(*(read[axis] if axis in read else next(rest) for axis in range(len(x.shape))))

        return te.compute([*kept[:first], *shared, *kept[first:]], value, name="picked")

    return site.compute(formula, data, *(given[axis] for axis in axes), name="picked")


def inside(position: Any, extent: Any) -> Any:
    """The position as a number from 0 to the last one."""
    last = tirx.const(-1, "int64") + extent
    wide = position.astype("int64")
    counted = wide + tirx.if_then_else(wide < 0, extent, tirx.const(0, "int64"))
    return tirx.max(tirx.min(counted, last), tirx.const(0, "int64"))


def _rank(site: Site, name: str) -> int:
    return site.given(name).meta["val"].dim()
