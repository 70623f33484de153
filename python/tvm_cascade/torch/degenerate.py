"""Tensors without elements and tensors without axes, which PyTorch takes everywhere and TVM's operators do not.

A result without elements has no values to convert. An operator along an axis takes a tensor of no dimension as one of
one element.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree
from tvm import relax, te, tirx

from tvm_cascade.errors import ModelError
from tvm_cascade.torch.site import Site, dtype_name, shape_of


def has_nothing(node: fx.Node) -> bool:
    """Whether all results of an operator are known to have no element."""
    results = pytree.tree_leaves(node.meta.get("val"))
    known = hasattr(node.target, "_schema") and bool(results)
    return known and all(isinstance(one, torch.Tensor) and _is_empty(one) for one in results)


def _is_empty(tensor: torch.Tensor) -> bool:
    return all(isinstance(extent, int) for extent in tensor.shape) and not tensor.numel()


def nothing(site: Site) -> relax.Expr:
    """Results without elements, made of an operand, or of any input: TVM cannot load constants without elements."""
    value = site.node.meta["val"]
    known: dict[fx.Node, Any] = site.importer.env
    inputs = [node for node in known if node.op == "placeholder"]
    operands = [known[node] for node in (*site.node.all_input_nodes, *inputs) if _rank(node) is not None][:1]

    def result(one: torch.Tensor) -> relax.Var:
        zero = tirx.const(0, dtype_name(one.dtype))
        return site.compute(lambda *_: te.compute(tuple(one.shape), lambda *_: zero), *operands, name="nothing")

    if not operands:
        hint = "pass a tensor, or use the result without compiling"
        raise ModelError("a tensor among inputs", "none", f"{site.node.target}", hint)
    made = [result(one) for one in pytree.tree_leaves(value)]
    return made[0] if isinstance(value, torch.Tensor) else site.emit(relax.Tuple(made))


def is_along_no_axis(node: fx.Node) -> bool:
    """Whether an operator along axes is given a tensor without any."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not any(argument.name == "dim" for argument in schema.arguments) or not node.args:
        return False
    return isinstance(node.args[0], fx.Node) and _rank(node.args[0]) == 0


def _rank(node: fx.Node) -> int | None:
    value = node.meta.get("val")
    return value.dim() if isinstance(value, torch.Tensor) else None


def operands_with_an_axis(site: Site) -> AbstractContextManager[None]:
    """While this lasts, operands that have no axis have one, of one element."""
    return site.operands(lambda node: _rank(node) == 0, lambda value: site.emit(relax.op.reshape(value, [1])))


def without_axis(site: Site, found: Any) -> Any:
    """The results in the shapes that PyTorch gives them."""
    if isinstance(found, (tuple, list)):
        return type(found)(without_axis(site, one) for one in found)
    if isinstance(getattr(found, "ty", None), relax.TupleType):
        values = site.node.meta["val"]
        parts = [site.emit(relax.TupleGetItem(found, k)) for k in range(len(found.ty.fields))]
        return site.emit(relax.Tuple([_shaped(site, one, values[k]) for k, one in enumerate(parts)]))
    return _shaped(site, found, site.node.meta["val"])


def _shaped(site: Site, found: relax.Expr, value: torch.Tensor) -> relax.Expr:
    shape = list(value.shape)
    return found if shape_of(found) == shape else site.emit(relax.op.reshape(found, shape))
