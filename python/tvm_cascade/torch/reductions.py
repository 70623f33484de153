"""Reductions that TVM's importer lacks, or takes in a dtype that loses their result."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree
from tvm import relax, te, tirx

from tvm_cascade.errors import ModelError
from tvm_cascade.torch.constants import filled
from tvm_cascade.torch.site import Site, accumulator, names_of, shape_of, type_name

Reduce = Callable[..., relax.Expr]


def extremum(*, largest: bool) -> Callable[[Site], relax.Expr]:
    """aten.amax, aten.amin, and aten.max and aten.min of all elements."""
    return lambda site: _extremum(site, largest)


def extremum_with_position(*, largest: bool) -> Callable[[Site], relax.Expr]:
    """aten.max.dim and aten.min.dim: values and positions."""
    return lambda site: site.emit(relax.Tuple([_extremum(site, largest), _position(site, largest)]))


def position(*, largest: bool) -> Callable[[Site], relax.Expr]:
    """aten.argmax and aten.argmin."""
    return lambda site: _position(site, largest)


def _along(site: Site) -> tuple[list[int], bool]:
    """The axes that are reduced, as numbers from 0, all where none is given; and whether they are kept."""
    names, rank = names_of(site), len(shape_of(site["self"]) or ())
    given = site["dim"] if "dim" in names else None
    axes = [given] if isinstance(given, int) else list(given or range(rank))
    return sorted(axis % rank for axis in axes), "keepdim" in names and site["keepdim"]


def _extremum(site: Site, largest: bool) -> relax.Expr:
    x = site["self"]
    if not type_name(x).startswith("float"):
        axes, keep = _along(site)
        return site.emit((relax.op.max if largest else relax.op.min)(x, axes, keepdims=keep))
    # TVM starts a maximum at the lowest finite number, which is not that of -inf alone.
    start = -math.inf if largest else math.inf
    name, choose = ("max", tirx.max) if largest else ("min", tirx.min)
    reducer = te.comm_reducer(lambda a, b: choose(a, b), lambda dtype: tirx.const(start, dtype), name=name)
    return _reduced(site, lambda element: element, reducer, name)


def _position(site: Site, largest: bool) -> relax.Expr:
    """Where an extremum stands: TVM has -1 where no number is above the lowest, as in rows of -inf."""
    locate = relax.op.argmax if largest else relax.op.argmin
    found = site.cast(site.emit(locate(site["self"], site["dim"], keepdims=site["keepdim"])), "int64")
    return site.emit(relax.op.maximum(found, relax.const(0, "int64")))


def any_true(site: Site) -> relax.Expr:
    """aten.any in its three forms, as a reduction of truth values."""
    x = site["self"]
    if not shape_of(x):
        return x if type_name(x) == "bool" else site.emit(relax.op.not_equal(x, relax.const(0, type_name(x))))
    reducer = te.comm_reducer(lambda a, b: tirx.any(a, b), lambda _: tirx.const(False, "bool"), name="any")

    def truth(element: Any) -> Any:
        return element if str(element.ty.dtype) == "bool" else element != tirx.const(0, str(element.ty.dtype))

    return site.cast(_reduced(site, truth, reducer, "any"), site.dtype)


def _reduced(site: Site, read: Callable[[Any], Any], reducer: Callable[..., Any], name: str) -> relax.Expr:
    """The reduction of what is read of each element."""
    axes, keep = _along(site)

    def formula(a: te.Tensor) -> te.Tensor:
        loops = {axis: te.reduce_axis((0, a.shape[axis]), f"k{axis}") for axis in axes}
        shape = [1 if n in loops else e for n, e in enumerate(a.shape) if keep or n not in loops]

        def value(*i: Any) -> Any:
            spatial = iter(i)
            positions = {n: next(spatial) for n in range(len(a.shape)) if keep or n not in loops} | loops
            return reducer(read(a(*(positions[n] for n in range(len(a.shape))))), axis=list(loops.values()))

        return te.compute(shape, value, name=name)

    return site.compute(formula, site["self"], name=name)


def mean(site: Site) -> relax.Expr:
    x = site.cast(site["self"], accumulator(site.dtype))
    return _moment(site, x, relax.op.mean, site.node.meta["val"])


def variance(site: Site) -> relax.Expr:
    """aten.var.correction."""
    x, correction = site["self"], site["correction"]
    (value, *_) = pytree.tree_leaves(site.node.meta["val"])
    found = _moment(site, x, relax.op.variance, value)
    if correction := 1 if correction is None else correction:
        count = math.prod(_static((shape_of(x) or [])[axis], site) for axis in _along(site)[0])
        factor = count / (count - correction) if count > correction else math.nan if count == correction else math.inf
        found = site.emit(relax.op.multiply(found, relax.const(factor, type_name(found))))
    return found


def variance_and_mean(site: Site) -> relax.Expr:
    """aten.var_mean.correction."""
    mean_of = _moment(site, site["self"], relax.op.mean, site.node.meta["val"][1])
    return site.emit(relax.Tuple([variance(site), mean_of]))


def _moment(site: Site, x: relax.Expr, reduce: Reduce, value: torch.Tensor) -> relax.Expr:
    """A mean or a variance; NaN where there is nothing along the axes."""
    axes, keep = _along(site)
    extents = [(shape_of(x) or [])[axis] for axis in axes]
    if any(isinstance(one, (int, tirx.IntImm)) and not int(one) for one in extents):
        return filled(site, list(value.shape), math.nan, type_name(x))
    return site.emit(reduce(x, axes, keepdims=keep))


def _static(extent: Any, site: Site) -> int:
    if not isinstance(extent, (int, tirx.IntImm)):
        hint = "pass correction=0, or leave the axis static"
        raise ModelError("a static axis under a corrected variance", str(extent), str(site.node.target), hint)
    return int(extent)


def sums_of_integers(scan: Reduce) -> Callable[[Site], relax.Expr]:
    """aten.cumsum and aten.cumprod: of integers and truth values in int64; of floats in the dtype asked for."""

    def convert(site: Site) -> relax.Expr:
        x = site.cast(site["self"], accumulator(site.dtype))
        shape = shape_of(x) or []
        extents = [int(one) for one in shape if isinstance(one, tirx.IntImm)]
        if scan is not relax.op.cumsum or not site.on_gpu or not extents or len(extents) < len(shape):
            return site.emit(scan(x, site["dim"]))
        axis = site["dim"] % len(shape)
        few = math.prod(extents) * extents[axis] <= _FEW_ADDITIONS
        return site.compute(partial(_sums_up_to, axis=axis), x, name="cumsum") if few else site.emit(scan(x, axis))

    return convert


_FEW_ADDITIONS = 1 << 22
"""That a GPU does in one kernel, each sum by itself, sooner than it launches the four of TVM's scan."""


def _sums_up_to(x: te.Tensor, axis: int) -> te.Tensor:
    k, zero = te.reduce_axis((0, x.shape[axis]), "k"), tirx.const(0, x.dtype)

    def value(*i: Any) -> Any:
        return te.sum(tirx.if_then_else(k <= i[axis], x(*i[:axis], k, *i[axis + 1 :]), zero), axis=k)

    return te.compute(x.shape, value, name="cumsum")


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
