"""Reductions that TVM's importer lacks, or takes in a dtype that loses their result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from tvm import relax, te, tirx

from tvm_cascade.errors import ModelError
from tvm_cascade.torch.constants import filled
from tvm_cascade.torch.site import Site, accumulator, names_of, shape_of, type_name

Reduce = Callable[..., relax.Expr]


def extremum(*, largest: bool) -> Callable[[Site], relax.Expr]:
    """aten.amax and aten.amin."""

    def convert(site: Site) -> relax.Expr:
        return _extremum(site, largest, _axes(site["dim"], _rank(site)))

    return convert


def extremum_with_position(*, largest: bool) -> Callable[[Site], relax.Expr]:
    """aten.max.dim and aten.min.dim: values and positions."""

    def convert(site: Site) -> relax.Expr:
        values = _extremum(site, largest, _axes(site["dim"], _rank(site)))
        return site.emit(relax.Tuple([values, _position(site, largest)]))

    return convert


def extremum_of_all(*, largest: bool) -> Callable[[Site], relax.Expr]:
    """aten.max and aten.min of all elements."""
    return lambda site: _extremum(site, largest, list(range(_rank(site))))


def position(*, largest: bool) -> Callable[[Site], relax.Expr]:
    """aten.argmax and aten.argmin."""
    return lambda site: _position(site, largest)


def _extremum(site: Site, largest: bool, axes: Sequence[int], x: relax.Expr | None = None) -> relax.Expr:
    """The extremum of an expression, by default of the first operand."""
    x, keep = site["self"] if x is None else x, "keepdim" in names_of(site) and site["keepdim"]
    if not type_name(x).startswith("float"):
        return site.emit((relax.op.max if largest else relax.op.min)(x, axes, keepdims=keep))
    # TVM starts a maximum at the lowest finite number, which is not that of -inf alone.
    start = -math.inf if largest else math.inf
    name, choose = ("max", tirx.max) if largest else ("min", tirx.min)
    reducer = te.comm_reducer(lambda a, b: choose(a, b), lambda dtype: tirx.const(start, dtype), name=name)
    return _reduced(site, x, axes, keep, lambda element: element, reducer, name)


def _position(site: Site, largest: bool) -> relax.Expr:
    """Where an extremum stands: TVM has -1 where no number is above the lowest, as in rows of -inf."""
    locate = relax.op.argmax if largest else relax.op.argmin
    found = site.cast(site.emit(locate(site["self"], site["dim"], keepdims=site["keepdim"])), "int64")
    return site.emit(relax.op.maximum(found, relax.const(0, "int64")))


def any_true(site: Site) -> relax.Expr:
    """aten.any in its three forms, as a reduction of truth values."""
    return _truth(site, "any", lambda a, b: tirx.any(a, b), False)


def all_true(site: Site) -> relax.Expr:
    """aten.all in its three forms."""
    return _truth(site, "all", lambda a, b: tirx.all(a, b), True)


def _truth(site: Site, name: str, combine: Callable[[Any, Any], Any], identity: bool) -> relax.Expr:
    x, names = site["self"], names_of(site)
    rank = _rank(site)
    if not rank:
        return x if type_name(x) == "bool" else site.emit(relax.op.not_equal(x, relax.const(0, type_name(x))))
    reducer = te.comm_reducer(combine, lambda _: tirx.const(identity, "bool"), name=name)

    def truth(element: Any) -> Any:
        return element if str(element.ty.dtype) == "bool" else element != tirx.const(0, str(element.ty.dtype))

    axes, keep = _axes(site["dim"] if "dim" in names else None, rank), "keepdim" in names and site["keepdim"]
    return site.cast(_reduced(site, x, axes, keep, truth, reducer, name), site.dtype)


def _reduced(
    site: Site,
    x: relax.Expr,
    axes: Sequence[int],
    keep: bool,
    read: Callable[[Any], Any],
    reducer: Callable[..., Any],
    name: str,
) -> relax.Expr:
    """The reduction of what is read of each element along some axes."""

    def formula(a: te.Tensor) -> te.Tensor:
        loops = {axis: te.reduce_axis((0, a.shape[axis]), f"k{axis}") for axis in axes}
        shape = [1 if n in loops else e for n, e in enumerate(a.shape) if keep or n not in loops]

        def value(*i: Any) -> Any:
            spatial = iter(i)
            positions = {n: next(spatial) for n in range(len(a.shape)) if keep or n not in loops} | loops
            return reducer(read(a(*(positions[n] for n in range(len(a.shape))))), axis=list(loops.values()))

        return te.compute(shape, value, name=name)

    return site.compute(formula, x, name=name)


def _rank(site: Site) -> int:
    return len(shape_of(site["self"]) or ())


def _axes(given: int | Sequence[int] | None, rank: int) -> list[int]:
    """Axes as numbers from 0; all where none is given."""
    axes = [given] if isinstance(given, int) else list(given or range(rank))
    return sorted(axis % rank for axis in axes)


def variance(site: Site) -> relax.Expr:
    """aten.var.correction."""
    return _variance(site)[0]


def variance_and_mean(site: Site) -> relax.Expr:
    """aten.var_mean.correction."""
    found, x, axes, keep = _variance(site)
    return site.emit(relax.Tuple([found, _mean(site, x, axes, keep, site.node.meta["val"][1])]))


def vector_norm(site: Site) -> relax.Expr:
    """aten.linalg_vector_norm: an extremum, a count, or the root of a sum of powers."""
    order, keep = float(site["ord"]), site["keepdim"]
    x = site.emit(relax.op.abs(site.cast(site["self"], accumulator(site.dtype))))
    axes = _axes(site["dim"], _rank(site))
    if math.isinf(order):
        return _extremum(site, order > 0, axes, x)
    if order == 0:
        x = site.cast(site.emit(relax.op.not_equal(x, relax.const(0.0, type_name(x)))), type_name(x))
    elif order != 1:
        x = site.emit(relax.op.power(x, relax.const(order, type_name(x))) if order != 2 else relax.op.multiply(x, x))
    summed = site.emit(relax.op.sum(x, axes, keepdims=keep))
    if order in (0, 1):
        return summed
    root = relax.op.sqrt(summed) if order == 2 else relax.op.power(summed, relax.const(1 / order, type_name(x)))
    return site.emit(root)


def mean(site: Site) -> relax.Expr:
    """aten.mean; of nothing it is NaN."""
    names = names_of(site)
    x, axes, keep = site.cast(site["self"], accumulator(site.dtype)), None, False
    if "dim" in names:
        axes, keep = _axes(site["dim"], len(shape_of(x) or [])), site["keepdim"]
    return _mean(site, x, axes, keep, site.node.meta["val"])


def _mean(site: Site, x: relax.Expr, axes: Sequence[int] | None, keep: bool, value: torch.Tensor) -> relax.Expr:
    nothing = _of_nothing(site, x, axes, value)
    return site.emit(relax.op.mean(x, axes, keepdims=keep)) if nothing is None else nothing


def _of_nothing(site: Site, x: relax.Expr, axes: Sequence[int] | None, value: torch.Tensor) -> relax.Expr | None:
    """NaN, where there is nothing along the axes."""
    shape = shape_of(x) or []
    extents = [shape[axis] for axis in (range(len(shape)) if axes is None else axes)]
    if all(not isinstance(one, (int, tirx.IntImm)) or int(one) for one in extents):
        return None
    return filled(site, list(value.shape), math.nan, type_name(x))


def _variance(site: Site) -> tuple[relax.Expr, relax.Expr, list[int], bool]:
    x, keep, correction = site["self"], site["keepdim"], site["correction"]
    shape = shape_of(x) or []
    axes = _axes(site["dim"], len(shape))
    (value, *_) = pytree.tree_leaves(site.node.meta["val"])
    if (nothing := _of_nothing(site, x, axes, value)) is not None:
        return nothing, x, axes, keep
    found = site.emit(relax.op.variance(x, axes, keepdims=keep))
    if correction := 1 if correction is None else correction:
        count = math.prod(_static(shape[axis], site) for axis in axes)
        factor = count / (count - correction) if count > correction else math.nan if count == correction else math.inf
        found = site.emit(relax.op.multiply(found, relax.const(factor, type_name(found))))
    return found, x, axes, keep


def _static(extent: Any, site: Site) -> int:
    if not isinstance(extent, (int, tirx.IntImm)):
        hint = "pass correction=0, or leave the axis static"
        raise ModelError("a static axis under a corrected variance", str(extent), str(site.node.target), hint)
    return int(extent)


def sums_of_integers(scan: Reduce) -> Callable[[Site], relax.Expr]:
    """aten.cumsum and aten.cumprod: of integers and truth values in int64; of floats in the dtype asked for."""

    def convert(site: Site) -> relax.Expr:
        return site.emit(scan(site.cast(site["self"], accumulator(site.dtype)), site["dim"]))

    return convert


def product(site: Site) -> relax.Expr:
    """aten.prod of all elements or along one axis."""
    names = names_of(site)
    x = site.cast(site["self"], accumulator(site.dtype))
    if "dim" not in names:
        return site.emit(relax.op.prod(x))
    return site.emit(relax.op.prod(x, site["dim"], keepdims=site["keepdim"]))


def top_k(site: Site) -> relax.Expr:
    """aten.topk: of a softmax, the pipeline puts our reduction in place of TVM's sort."""
    return site.emit(relax.op.topk(site["self"], site["k"], site["dim"], "both", site["largest"], "int64"))


def stable_sort(site: Site) -> relax.Expr:
    """aten.sort.stable, as TVM sorts: equal elements stay in order."""
    axis = site["dim"]
    order = site.emit(relax.op.argsort(site["self"], axis, site["descending"], dtype="int64"))
    return site.emit(relax.Tuple([site.emit(relax.op.gather_elements(site["self"], order, axis=axis)), order]))
