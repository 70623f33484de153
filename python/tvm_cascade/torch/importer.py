"""From an exported PyTorch program to a Relax module, each operator's result checked against what PyTorch gives."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
import tvm
from torch import fx
from tvm.relax.frontend.torch import from_exported_program
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from tvm_cascade.errors import CascadeError, ModelError
from tvm_cascade.torch import norms
from tvm_cascade.torch.converters import CONVERTERS
from tvm_cascade.torch.exporting import decomposed
from tvm_cascade.torch.graph import ImportedGraph, Interface, prepared
from tvm_cascade.torch.precision import computes_on_halves, operands_in_float32, rounded
from tvm_cascade.torch.results import checked
from tvm_cascade.torch.site import Site

_ATEN = torch.ops.aten
KEPT_WHOLE = (_ATEN.scaled_dot_product_attention.default, _ATEN.matmul.default, _ATEN.linear.default)
"""Not decomposed: their parts flatten batch and sequence between cascades, and lose what is not of known length."""

_HINT = "write it by other operators, or leave it to torch.compile(…, backend='tvm_cascade'), which falls back"

DECOMPOSED = {_ATEN.rms_norm.default: norms.rms_norm}
"""Decomposed here, since what torch makes of them depends on the device."""


def import_program(program: torch.export.ExportedProgram, device: torch.device) -> tuple[tvm.IRModule, Interface]:
    """A module whose function `main` takes the program's state and its inputs, and how that is called.

    Parameters
    ----------
    device : that the program's tensors are on, and its results must be on.

    Raises
    ------
    ModelError
        Where it has an operator that cannot be converted, or that is converted to something else.
    """
    table = torch.export.default_decompositions()
    for kept in KEPT_WHOLE:
        table.pop(kept, None)
    table.update(DECOMPOSED)
    shown, interface = prepared(decomposed(program, table), device)
    return translated(shown), interface


def translated(shown: ImportedGraph) -> tvm.IRModule:
    """The Relax module of a graph."""
    calls = [node for node in shown.graph.nodes if node.op == "call_function"]
    stock: Mapping[str, Any] = ExportedProgramImporter().convert_map
    _refuse_unknown(calls, stock)
    convert = {node.target.__name__: _converter(node.target.__name__) for node in calls}
    try:
        module: tvm.IRModule = from_exported_program(shown, run_ep_decomposition=False, custom_convert_map=convert)
    except NotImplementedError as error:  # of the dtype of an argument: operators are converted by `_converter`
        hint = "convert it before the model is called, to float32 say"
        raise ModelError(
            "arguments of dtypes that TVM's importer takes", str(error), "the model's graph", hint
        ) from error
    return module


def _refuse_unknown(calls: list[fx.Node], stock: Mapping[str, Any]) -> None:
    random = [node for node in calls if _is_random(node)]
    if random:
        hint = "call the module's .eval(), or draw outside of it"
        raise ModelError("operators that draw no random numbers", _names(random), origin(random[0]), hint)
    unknown = [node for node in calls if node.target.__name__ not in {*CONVERTERS, *stock}]
    if unknown:
        raise ModelError("operators that can be converted", _names(unknown), origin(unknown[0]), _HINT)


def _is_random(node: fx.Node) -> bool:
    """Whether an operator draws random numbers; those of ours that could, with dropout, refuse by themselves."""
    seeded = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    return seeded and node.target.__name__ not in CONVERTERS


def _names(nodes: list[fx.Node]) -> str:
    return ", ".join(dict.fromkeys(str(node.target) for node in nodes))


def origin(node: fx.Node) -> str:
    """The module and the line of the user's that a node comes from."""
    stack = node.meta.get("nn_module_stack") or {}
    module = next(reversed(stack.values()))[0] if stack else ""
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").strip().splitlines()]
    return ", ".join(filter(None, (f"module `{module}`" if module else "", " ".join(lines[-2:]), f"node `{node}`")))


def _converter(name: str) -> Callable[[fx.Node, Any], Any]:
    """The conversion of an operator: ours if there is one, TVM's else; by PyTorch's rule for halves; checked."""

    def convert(node: fx.Node, importer: Any) -> Any:
        site = Site(node, importer)
        own = CONVERTERS.get(name)

        def convert_as_is() -> Any:
            # The importer's own table has this function in place of TVM's, of which a new table is made.
            return own(site) if own else importer.create_convert_map()[name](node)

        try:
            if node.target is operator.getitem:
                return checked(site, rounded(site, convert_as_is()))
            if not computes_on_halves(node):
                return checked(site, convert_as_is())
            with operands_in_float32(site):
                found = convert_as_is()
            return checked(site, rounded(site, found))
        except CascadeError:
            raise
        except Exception as error:
            told = f"{type(error).__name__}: {str(error).strip().splitlines()[-1] if str(error).strip() else ''}"
            raise ModelError(f"a use of {node.target} that can be converted", told, origin(node), _HINT) from error

    return convert
