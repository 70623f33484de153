"""Filled tensors and selections with infinities as literals, which TVM's own converters cannot lower or hide.

A literal inside a selection is what the analysis of masks, and the kernels that skip masked tiles, look for; TVM's
`where` reads it from a tensor without dimensions instead.
"""

from __future__ import annotations

from typing import Any

from torch import fx
from tvm import relax, te, tirx

from tvm_cascade.torch.site import Site, broadcast, joined, shape_of

LITERALS = ("scalar_tensor.default", "full.default")
"""Operators whose number conversions of other operators look for."""


def full(site: Site) -> relax.Expr:
    return filled(site, list(site["size"]), site["fill_value"])


def empty(site: Site) -> relax.Expr:
    """aten.empty_permuted: zeros, where torch promises nothing."""
    return filled(site, list(site["size"]), 0)


def full_like(site: Site) -> relax.Expr:
    return filled(site, shape_of(site["self"]) or [], site["fill_value"])


def arange(site: Site) -> relax.Expr:
    """aten.arange, as many numbers as PyTorch counts; of integers up to a symbol by TVM's converter."""
    start, step, value = site["start"], site["step"], site.node.meta["val"]
    if not all(isinstance(one, (int, float)) for one in (start, step, *value.shape)):
        return site.importer.create_convert_map()[site.node.target.__name__](site.node)

    def formula() -> te.Tensor:
        kind = "float64" if value.is_floating_point() else "int64"
        first, each = (tirx.const(one, kind) for one in (start, step))
        return te.compute(tuple(value.shape), lambda i: (first + i.astype(kind) * each).astype(site.dtype))

    return site.compute(formula, name="arange")


def to_copy(site: Site) -> relax.Expr:
    """aten._to_copy, of a number too, by TVM's converter of a tensor."""
    given = site.given("self")
    if not isinstance(given, fx.Node):
        return filled(site, [], given)
    return site.importer.create_convert_map()[site.node.target.__name__](site.node)


def scalar_tensor(site: Site) -> relax.Expr:
    return filled(site, [], site["s"])


def filled(site: Site, shape: list[Any], value: Any, dtype: str | None = None) -> relax.Expr:
    """A tensor of one number: a literal, one that depends on extents, or that of a tensor without dimensions."""
    dtype = dtype or site.dtype
    if isinstance(getattr(value, "ty", None), relax.TensorType):
        return site.compute(lambda v: te.compute(shape, lambda *_: v().astype(dtype), name="full"), value, name="full")
    if not shape and isinstance(value, (bool, int, float)):
        return relax.const(value, dtype)
    number = tirx.const(value, dtype) if isinstance(value, (bool, int, float)) else value.astype(dtype)
    return site.compute(lambda: te.compute(shape, lambda *_: number, name="full"), name="full")


def where(site: Site) -> relax.Expr:
    """aten.where: a literal operand stays one."""
    condition = site["condition"]
    dtype = site.dtype
    sides = [_literal(site.given(name), dtype) for name in ("self", "other")]
    tensors = [site.cast(site[name], dtype) for name, one in zip(("self", "other"), sides, strict=True) if one is None]

    def formula(c: te.Tensor, *given: te.Tensor) -> te.Tensor:
        rest = iter(given)
        operands = [next(rest) if side is None else side for side in sides]
        shape = joined([x for x in (c, *operands) if isinstance(x, te.Tensor)])

        def value(*i: Any) -> Any:
            chosen = [broadcast(x, i) if isinstance(x, te.Tensor) else x for x in operands]
            return tirx.if_then_else(broadcast(c, i), *chosen)

        return te.compute(shape, value, name="where")

    return site.compute(formula, condition, *tensors, name="where")


def _literal(node: Any, dtype: str) -> Any | None:
    """The number that a node of one element was made of."""
    if not isinstance(node, fx.Node) or getattr(node.target, "__name__", "") not in LITERALS:
        return None
    if node.meta["val"].dim():
        return None
    value = node.args[1 if node.target.__name__ == "full.default" else 0]
    return tirx.const(value, dtype) if isinstance(value, (bool, int, float)) else None
