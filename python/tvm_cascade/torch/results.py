"""What a converted operator must give: the dtype and the extents that PyTorch gives."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import sympy
import torch
from tvm import relax, sym, tirx

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


_OF_SIZES: Mapping[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("FloorDiv", "CleanDiv"), tirx.floordiv),
    **dict.fromkeys(("Mod", "PythonMod"), tirx.floormod),
    "Max": tirx.max,
    "Min": tirx.min,
}
"""Functions in torch's expressions of sizes, of which the rest are sums and products."""


def extents_of(site: Site, value: torch.Tensor) -> list[Any]:
    """The extents of a tensor of PyTorch's, in TVM's variables."""
    variables = _variables(site)
    names = {expression: sympy.Dummy() for expression in variables}

    def extent(expression: sympy.Expr) -> Any:
        read = sympy.lambdify([*names.values()], expression.xreplace(names), [dict(_OF_SIZES)])
        return tirx.convert(read(*variables.values())).astype("int64")

    return [int(one) if isinstance(one, int) else extent(one.node.expr) for one in value.shape]


def _alike(found: list[Any], wanted: list[Any]) -> bool:
    """Whether extents agree as far as both are numbers."""
    if len(found) != len(wanted):
        return False
    pairs = [(int(a), b) for a, b in zip(found, wanted, strict=True) if isinstance(a, (int, tirx.IntImm))]
    return all(not isinstance(b, int) or a == b for a, b in pairs)


def _variables(site: Site) -> dict[sympy.Expr, tirx.Var]:
    """TVM's variables of the symbolic extents of the graph's inputs."""
    known: dict[sympy.Expr, tirx.Var] = {}
    for node in site.node.graph.find_nodes(op="placeholder"):
        value, expression = node.meta.get("val"), site.importer.env.get(node)
        if isinstance(value, torch.Tensor) and expression is not None:
            for extent, variable in zip(value.shape, shape_of(expression) or [], strict=False):
                if isinstance(extent, torch.SymInt) and isinstance(variable, tirx.Var):
                    known[extent.node.expr] = variable
    return known
