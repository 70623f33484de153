"""Reductions that TVM's importer lacks, or takes in a dtype that loses their result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, te, tirx

from tvm_cascade.errors import ModelError
from tvm_cascade.torch.site import Site, accumulator, shape_of, type_name

Reduce = Callable[..., relax.Expr]


def extremum(reduce: Reduce) -> Callable[[Site], relax.Var]:
    """aten.amax and aten.amin."""

    def convert(site: Site) -> relax.Var:
        axes = list(site["dim"] or []) or None
        return site.emit(reduce(site["self"], axes, keepdims=site["keepdim"]))

    return convert


def extremum_with_position(reduce: Reduce, locate: Reduce) -> Callable[[Site], relax.Expr]:
    """aten.max.dim and aten.min.dim: values and positions."""

    def convert(site: Site) -> relax.Expr:
        x, axis, keep = site["self"], site["dim"], site["keepdim"]
        values = site.emit(reduce(x, axis, keepdims=keep))
        positions = site.emit(locate(x, axis, keepdims=keep))
        return site.emit(relax.Tuple([values, site.cast(positions, "int64")]))

    return convert


def any_true(site: Site) -> relax.Expr:
    """aten.any in its three forms, as a reduction of truth values."""
    return _truth(site, "any", lambda a, b: tirx.any(a, b), False)


def all_true(site: Site) -> relax.Expr:
    """aten.all in its three forms."""
    return _truth(site, "all", lambda a, b: tirx.all(a, b), True)


def _truth(site: Site, name: str, combine: Callable[[Any, Any], Any], identity: bool) -> relax.Expr:
    x = site["self"]
    rank = len(site.node.args[0].meta["val"].shape)
    names = {argument.name for argument in site.node.target._schema.arguments}
    given = site["dim"] if "dim" in names else None
    axes = _axes(given, rank)
    keep = "keepdim" in names and site["keepdim"]
    if not rank:
        return x if type_name(x) == "bool" else site.emit(relax.op.not_equal(x, relax.const(0, type_name(x))))
    reducer = te.comm_reducer(combine, lambda _: tirx.const(identity, "bool"), name=name)

    def formula(a: te.Tensor) -> te.Tensor:
        loops = {axis: te.reduce_axis((0, a.shape[axis]), f"k{axis}") for axis in axes}
        shape = [1 if n in loops else e for n, e in enumerate(a.shape) if keep or n not in loops]

        def value(*i: Any) -> Any:
            spatial = iter(i)
            positions = {n: next(spatial) for n in range(rank) if keep or n not in loops} | loops
            index = [positions[n] for n in range(rank)]
            element = a(*index)
            truth = element if str(a.dtype) == "bool" else element != tirx.const(0, str(a.dtype))
            return reducer(truth, axis=list(loops.values()))

        return te.compute(shape, value, name=name)

    return site.cast(site.compute(formula, x, name=name), site.dtype)


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
    return site.emit(relax.Tuple([found, site.emit(relax.op.mean(x, axes, keepdims=keep))]))


def _variance(site: Site) -> tuple[relax.Expr, relax.Expr, list[int], bool]:
    x, keep, correction = site["self"], site["keepdim"], site["correction"]
    shape = shape_of(x) or []
    axes = _axes(site["dim"], len(shape))
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
    names = {argument.name for argument in site.node.target._schema.arguments}
    x = site.cast(site["self"], accumulator(site.dtype))
    if "dim" not in names:
        return site.emit(relax.op.prod(x))
    return site.emit(relax.op.prod(x, site["dim"], keepdims=site["keepdim"]))


def top_k(site: Site) -> relax.Expr:
    """aten.topk: of a softmax, the pipeline puts our reduction in place of TVM's sort."""
    return site.emit(relax.op.topk(site["self"], site["k"], site["dim"], "both", site["largest"], "int64"))
