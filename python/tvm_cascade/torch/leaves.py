"""What a compiled model was promised of its arguments, and what it refuses: dtypes, shapes, devices, constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.export.graph_signature import ConstantArgument, InputKind

from tvm_cascade.errors import ModelError, PositionError
from tvm_cascade.torch.graph import Traced
from tvm_cascade.torch.site import Site, names_of

Extent = int | str


@dataclass(frozen=True)
class Leaf:
    """One tensor argument.

    Attributes
    ----------
    name : in the exported graph.
    dtype : of its elements.
    shape : extents; symbolic ones by their expressions.
    positions : the lowest and the highest value that its elements may have, where they are positions in a tensor.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[Extent, ...]
    positions: tuple[int, int] | None = None

    def __str__(self) -> str:
        return f"`{self.name}`: {str(self.dtype).removeprefix('torch.')} [{', '.join(map(str, self.shape))}]"


Ranges = dict[str, tuple[int, int | None]]


def promised(program: Traced, names: Sequence[Mapping[int, str]]) -> tuple[tuple[Leaf | None, ...], Ranges]:
    """The tensor arguments by position, None of a constant; the least and the largest value of each symbolic extent.

    Parameters
    ----------
    names : of extents, per argument and axis, in place of torch's.
    """
    values = {node.name: node.meta["val"] for node in program.graph.find_nodes(op="placeholder")}
    positions, specs = _positions(program.graph), program.graph_signature.input_specs
    given = [spec.arg for spec in specs if spec.kind is InputKind.USER_INPUT]
    tensors = [None if isinstance(one, ConstantArgument) else values[one.name] for one in given]
    known = {
        str(value.shape[axis]): name
        for value, own in zip(tensors, names, strict=False)
        for axis, name in own.items()
        if value is not None
    }

    def leaf(name: str, value: torch.Tensor) -> Leaf:
        shape = tuple(e if isinstance(e, int) else known.get(str(e), str(e.node.expr)) for e in value.shape)
        return Leaf(name, value.dtype, shape, positions.get(name))

    ranges = Ranges()
    for symbol, limits in program.range_constraints.items():
        if symbol.is_integer:  # no number that the model reads off a tensor
            upper = int(limits.upper) if str(limits.upper).isdecimal() else None
            ranges[known.get(str(symbol), str(symbol))] = int(limits.lower), upper
    pairs = zip(given, tensors, strict=True)
    return tuple(None if value is None else leaf(one.name, value) for one, value in pairs), ranges


_READS_AT: Mapping[str, tuple[str, str]] = {
    "aten::embedding": ("weight", "indices"),
    "aten::index_select": ("self", "index"),
    "aten::gather": ("self", "index"),
    "aten::index": ("self", "indices"),
}
"""Operators that read a tensor at positions: the arguments for both. Only the last one counts from the end too."""


def _positions(graph: fx.Graph) -> dict[str, tuple[int, int]]:
    """The lowest and the highest position that a graph may read at, by the inputs whose elements are the positions."""
    found: dict[str, tuple[int, int]] = {}
    for node in graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if schema is None or schema.name not in _READS_AT:
            continue
        data, index = (Site(node, None).given(name) for name in _READS_AT[schema.name])
        several = schema.name == "aten::index"
        dim = 0 if "dim" not in names_of(Site(node, None)) else Site(node, None).given("dim")
        for axis, one in enumerate(index) if several else ((dim, index),):
            source, extent = _whole(one), (*data.meta["val"].shape, *[1] * (not data.meta["val"].dim()))[axis]
            if source is None or not isinstance(extent, int) or source.meta["val"].dtype == torch.bool:
                continue
            low, high = found.get(source.name, (-extent, extent - 1))
            found[source.name] = max(low, -extent if several else 0), min(high, extent - 1)
    return found


def _whole(node: fx.Node | None) -> fx.Node | None:
    """The input of the graph whose elements are all those of a node, if there is one."""
    while isinstance(node, fx.Node) and node.op == "call_function":
        schema, operands = getattr(node.target, "_schema", None), node.all_input_nodes
        if schema is None or len(operands) != 1 or not _as_many(node.meta["val"], operands[0].meta["val"]):
            return None
        if schema.name not in _COPIES and schema.arguments[0].alias_info is None:
            return None
        (node,) = operands
    return node if isinstance(node, fx.Node) and node.op == "placeholder" else None


_COPIES = ("aten::clone", "aten::contiguous", "aten::to", "aten::_to_copy")


def _as_many(one: Any, other: Any) -> bool:
    """Whether two integer tensors have equally many elements."""
    values = (one, other)
    if not all(isinstance(value, torch.Tensor) and not value.is_floating_point() for value in values):
        return False
    return all(isinstance(value.numel(), int) for value in values) and one.numel() == other.numel()


def check(
    leaf: Leaf,
    argument: object,
    device: torch.device,
    ranges: Mapping[str, tuple[int, int | None]],
    sizes: dict[str, int],
) -> torch.Tensor:
    """The argument, where it is what the model was compiled for.

    Parameters
    ----------
    sizes : values of symbolic extents that earlier arguments have, to which those of this one are added.

    Raises
    ------
    ModelError
        When it is not.
    """
    hint = "call tvm_cascade.optimize with an example of this kind; `dynamic` says which extents may change"
    if not isinstance(argument, torch.Tensor):
        raise ModelError(f"the tensor {leaf}", type(argument).__name__, "call of the model", hint)
    if argument.dtype != leaf.dtype or argument.dim() != len(leaf.shape):
        raise ModelError(str(leaf), _told(argument), "call of the model", hint)
    if argument.device != device:
        raise ModelError(f"{leaf} on {device}", f"on {argument.device}", "call of the model", "move it with .to(…)")
    if argument.requires_grad and torch.is_grad_enabled():
        raise ModelError(
            f"{leaf} without gradient", "one that requires it", "call of the model", "call it under torch.no_grad()"
        )
    if argument.shape == leaf.shape:
        return argument
    for wanted, extent in zip(leaf.shape, argument.shape, strict=True):
        known = wanted if isinstance(wanted, int) else sizes.setdefault(wanted, extent)
        lower, upper = ranges.get(str(wanted), (0, None)) if isinstance(wanted, str) else (extent, extent)
        if extent != known or extent < lower or (upper is not None and extent > upper):
            limits = f" where {wanted} is {_between(lower, upper)}" if isinstance(wanted, str) else ""
            raise ModelError(f"{leaf}{limits}", _told(argument), "call of the model", hint)
    return argument


def _told(argument: torch.Tensor) -> str:
    return f"{str(argument.dtype).removeprefix('torch.')} {list(argument.shape)}"


def check_positions(leaf: Leaf, argument: torch.Tensor) -> None:
    """Refuses positions that a tensor does not have, on CPUs: on GPUs it would have to be waited for.

    Raises
    ------
    PositionError
        An IndexError too, as PyTorch raises.
    """
    if leaf.positions is None or argument.device.type != "cpu" or not argument.numel():
        return
    low, high = (int(one) for one in argument.aminmax())
    if low < leaf.positions[0] or high > leaf.positions[1]:
        expected = f"positions from {leaf.positions[0]} to {leaf.positions[1]} as `{leaf.name}`"
        raise PositionError(expected, f"some from {low} to {high}", "call of the model")


def _between(lower: int, upper: int | None) -> str:
    return f"{lower} or more" if upper is None else f"from {lower} to {upper}"


def check_constant(name: str, value: object, argument: Any) -> None:
    """Refuses another value of an argument that was taken for a constant."""
    if type(value) is not type(argument) or value != argument:
        hint = "call tvm_cascade.optimize with this value, or pass a tensor"
        raise ModelError(f"the constant {value!r} of the example", repr(argument), name, hint)
