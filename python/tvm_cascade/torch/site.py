"""One node of an exported graph as a converter sees it: its arguments by name, as Relax expressions."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg
from tvm import relax, te

from tvm_cascade.errors import ModelError


class ConversionError(ModelError):
    """Operators that are not converted, or not to what PyTorch gives.

    Parameters
    ----------
    operators : of the graph.
    of_any_shape : they are refused whatever the shapes of their arguments.

    Attributes
    ----------
    program : that has them, as it was decomposed for conversion, where that was kept.
    """

    program: torch.export.ExportedProgram | None = None

    def __init__(
        self,
        operators: Sequence[Any],
        expected: str,
        found: str,
        where: str,
        hint: str = "",
        of_any_shape: bool = False,
    ) -> None:
        super().__init__(expected, found, where, hint)
        self.operators, self.of_any_shape = operators, of_any_shape

    def alone(self) -> ConversionError:
        """The same error without frames and programs that it keeps alive."""
        told = self.expected, self.found, self.where, self.hint
        return ConversionError(self.operators, *told, of_any_shape=self.of_any_shape)


HALVES = ("float16", "bfloat16")


@dataclass(frozen=True)
class Site:
    """A node, and the importer that has converted what stands before it.

    Attributes
    ----------
    node : a call of an operator.
    importer : TVM's, with its block builder and its values of earlier nodes.
    read : the module of a function that is traced on fake tensors and sizes, and which of these its `main` takes.
    """

    node: fx.Node
    importer: Any
    read: Any = None

    def __getitem__(self, name: str) -> Any:
        """The argument of that name in the operator's schema, nodes as Relax expressions; its default if not given."""
        return map_arg(self.given(name), lambda node: self.importer.env[node])

    def given(self, name: str) -> Any:
        """The argument of that name as the graph has it."""
        for position, argument in enumerate(self.node.target._schema.arguments):
            if argument.name == name:
                if position < len(self.node.args):
                    return self.node.args[position]
                return self.node.kwargs.get(name, argument.default_value)
        raise KeyError(name)

    @property
    def dtype(self) -> str:
        """Of the result, as PyTorch gives it."""
        return dtype_name(self.node.meta["val"].dtype)

    @property
    def on_gpu(self) -> bool:
        return bool(self.node.meta["val"].device.type != "cpu")

    def emit(self, expression: relax.Expr) -> relax.Var:
        return self.importer.block_builder.emit(expression)

    def compute(self, formula: Callable[..., Any], *arguments: Any, name: str) -> relax.Var:
        """A TE formula over the arguments, as one function of that name."""
        return self.importer.block_builder.emit_te(formula, *arguments, primfunc_name_hint=name)

    def cast(self, value: relax.Expr, dtype: str) -> relax.Expr:
        return value if type_name(value) == dtype else self.emit(relax.op.astype(value, dtype))

    @contextmanager
    def operands(self, chosen: Callable[[fx.Node], bool], change: Callable[[Any], Any]) -> Iterator[None]:
        """While this lasts, the importer's values of some of the node's operands are others."""
        before = {node: self.importer.env[node] for node in self.node.all_input_nodes if chosen(node)}
        try:
            self.importer.env.update({node: change(value) for node, value in before.items()})
            yield
        finally:
            self.importer.env.update(before)


def origin(node: fx.Node) -> str:
    """The module and the line of the user's that a node comes from."""
    stack = node.meta.get("nn_module_stack") or {}
    module = next(reversed(stack.values()))[0] if stack else ""
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").strip().splitlines()]
    return ", ".join(filter(None, (f"module `{module}`" if module else "", " ".join(lines[-2:]), f"node `{node}`")))


def names_of(site: Site) -> set[str]:
    """The names of the operator's arguments."""
    return {argument.name for argument in site.node.target._schema.arguments}


def told(error: Exception) -> str:
    """An error of TVM or of torch in one line: the end of its text, or the line that raised it where it has none."""
    lines = str(error).strip().splitlines()
    frames = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__}: {lines[-1] if lines else frames[-1].line if frames else 'without a text'}"


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def type_name(value: relax.Expr) -> str:
    """The dtype of a tensor expression."""
    return str(value.ty.dtype.dtype)


def shape_of(value: relax.Expr) -> list[Any] | None:
    """The extents of a tensor expression; None where Relax does not know them."""
    return None if value.ty.shape is None else list(value.ty.shape.values)


def hinted(extent: Any) -> int:
    """An extent, of the example where it may change; 2 where it depends on data."""
    if isinstance(extent, torch.SymInt):
        return int(extent.node.hint) if extent.node.hint is not None else 2
    return int(extent)


def accumulator(dtype: str) -> str:
    """The dtype in which PyTorch computes on elements of a dtype."""
    return "float32" if dtype in HALVES else dtype


def broadcast(x: te.Tensor, index: tuple[Any, ...], shape: Sequence[Any] | None = None) -> Any:
    """The element of x that broadcasting puts at an index of the result.

    Parameters
    ----------
    shape : of the result, where it is told: x is read along the result's own axes of one position, so that a product
        of such tensors is one for each position, however many there are.
    """
    rank, extents = len(x.shape), shape or [None] * len(index)
    own = zip(x.shape, index[len(index) - rank :], extents[len(index) - rank :], strict=True)
    return x(*(0 if is_one(extent) and not is_one(of) else position for extent, position, of in own))


def is_one(extent: Any) -> bool:
    """Whether an extent is the number 1, which broadcasting repeats."""
    return (isinstance(extent, int) and extent == 1) or getattr(extent, "value", None) == 1


def joined(tensors: list[te.Tensor]) -> list[Any]:
    """The shape that the tensors broadcast to."""
    rank = max(len(x.shape) for x in tensors)
    padded = [[1] * (rank - len(x.shape)) + list(x.shape) for x in tensors]
    return [next((e for e in extents if not is_one(e)), 1) for extents in zip(*padded, strict=True)]


def of_each_axis(given: Sequence[int], axes: int) -> list[int]:
    """One number for each axis: torch takes one for all of them."""
    return [*given] * axes if len(given) == 1 else [*given]
