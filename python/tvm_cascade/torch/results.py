"""What a converted operator must give: the dtype and the extents that PyTorch gives."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import sympy
import torch
from tvm import relax, sym, tirx

from tvm_cascade.errors import ModelError
from tvm_cascade.torch.site import ConversionError, Site, dtype_name, origin, shape_of, type_name


def checked(site: Site, value: Any) -> Any:
    """The value, whose extents Relax is told where it does not know them, or does not know them for PyTorch's.

    Raises
    ------
    ModelError
        Where it has another dtype or another shape than PyTorch gives.
    """
    expected = site.node.meta.get("val")
    if not isinstance(expected, torch.Tensor) or not isinstance(getattr(value, "ty", None), relax.TensorType):
        return value
    wanted = dtype_name(expected.dtype), list(expected.shape)
    extents = shape_of(value)
    if extents is not None and (type_name(value) != wanted[0] or not _alike(extents, wanted[1])):
        found = f"{type_name(value)} {[*map(str, extents)]}"
        hint = "this is a fault of the conversion: please report the operator"
        node = site.node.args[0] if site.node.target is operator.getitem else site.node
        where = f"result of {node.target}, {origin(node)}"
        raise ConversionError([node.target], f"{wanted[0]} {[*map(str, wanted[1])]}", found, where, hint)
    if extents is not None and all(isinstance(one, (int, tirx.IntImm)) for one in extents):
        return value
    shape, prover = extents_of(site, expected), sym.Analyzer()
    if extents is not None and all(map(prover.can_prove_equal, extents, shape)):
        return value
    return site.importer.block_builder.match_cast(value, relax.TensorType(shape, type_name(value)))


def extents_of(site: Site, value: torch.Tensor) -> list[Any]:
    """The extents of a tensor of PyTorch's, in TVM's variables."""
    symbols = _symbols(site)
    return [_extent(one, symbols) for one in value.shape]


def _alike(found: list[Any], wanted: list[Any]) -> bool:
    """Whether extents agree as far as both are numbers."""
    if len(found) != len(wanted):
        return False
    pairs = [(int(a), b) for a, b in zip(found, wanted, strict=True) if isinstance(a, (int, tirx.IntImm))]
    return all(not isinstance(b, int) or a == b for a, b in pairs)


def _symbols(site: Site) -> dict[str, Any]:
    """TVM's variables of the symbolic extents of the graph's inputs, by torch's names."""
    known: dict[str, Any] = {}
    for node in site.node.graph.find_nodes(op="placeholder"):
        value, expression = node.meta.get("val"), site.importer.env.get(node)
        if isinstance(value, torch.Tensor) and expression is not None:
            for extent, variable in zip(value.shape, shape_of(expression) or [], strict=False):
                if isinstance(extent, torch.SymInt) and isinstance(variable, tirx.Var):
                    known[str(extent.node.expr)] = variable
    return known


_JOINED: Mapping[str, Callable[[Any, Any], Any]] = {
    "Add": lambda a, b: a + b,
    "Mul": lambda a, b: a * b,
    "FloorDiv": lambda a, b: tirx.floordiv(a, b),
    "CleanDiv": lambda a, b: tirx.floordiv(a, b),
    "Mod": lambda a, b: tirx.floormod(a, b),
    "PythonMod": lambda a, b: tirx.floormod(a, b),
    "Max": lambda a, b: tirx.max(a, b),
    "Min": lambda a, b: tirx.min(a, b),
}


def _extent(extent: Any, symbols: Mapping[str, Any]) -> Any:
    """An extent of torch in TVM's variables."""
    return int(extent) if isinstance(extent, int) else _in_tvm(extent.node.expr, symbols)


def _in_tvm(expression: sympy.Expr, symbols: Mapping[str, Any]) -> Any:
    if expression.is_Integer:
        return tirx.const(int(expression), "int64")
    if str(expression) in symbols:
        return symbols[str(expression)]
    join = _JOINED.get(type(expression).__name__)
    if join is None:
        raise ModelError("extents that are sums, products and quotients", str(expression), "symbolic extents")
    first, *others = (_in_tvm(one, symbols) for one in expression.args)
    for other in others:
        first = join(first, other)
    return first
