"""Operators that read tensors at positions, counted from the end where they are negative, and never out of bounds.

TVM's own converters read before the tensor at negative positions, and past it at others that it does not have. PyTorch
raises an error at those; compiled code takes the nearest position.
"""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from tvm_cascade.errors import ModelError
from tvm_cascade.torch.site import Site, broadcast, joined, type_name


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
    """aten.index_select."""
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
