"""From an exported program, or a captured graph, to a Relax module; each operator gives what PyTorch gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

import torch
import tvm
from torch import fx
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from tvm_cascade.errors import CascadeError, ModelError
from tvm_cascade.torch.complexes import is_of_complex_numbers, of_pairs
from tvm_cascade.torch.converters import CONVERTERS
from tvm_cascade.torch.degenerate import (
    has_nothing,
    is_along_no_axis,
    nothing,
    operands_with_an_axis,
    without_axis,
)
from tvm_cascade.torch.exporting import decomposed, kept_whole, retraced, traced
from tvm_cascade.torch.graph import ImportedGraph, Interface, Traced, captured, prepared
from tvm_cascade.torch.losses import nll_loss_backward
from tvm_cascade.torch.precision import computes_on_halves, operands_in_float32, rounded
from tvm_cascade.torch.results import checked
from tvm_cascade.torch.rules import RULES, group_norm, log_softmax, of_float64, rms_norm
from tvm_cascade.torch.site import ConversionError, Site, origin, told
from tvm_cascade.torch.values import compared

_ATEN = torch.ops.aten
KEPT_WHOLE = (_ATEN.scaled_dot_product_attention.default, _ATEN.matmul.default, _ATEN.linear.default)
"""Not decomposed: their parts flatten batch and sequence between cascades, and lose what is not of known length."""

_RULES: Mapping[Any, Callable[..., Any]] = {**torch._decomp.decomposition_table, **RULES}
"""What operators are made of: torch's rules, those that `torch.export` does not take by default too, and ours."""

_HINT = "tvm_cascade.optimize(…, cut=True) and torch.compile(…, backend='tvm_cascade') run it in PyTorch, the rest here"

DECOMPOSED: Mapping[Any, Callable[..., Any]] = {
    _ATEN.rms_norm.default: rms_norm,
    _ATEN.native_layer_norm.default: of_float64(_RULES[_ATEN.native_layer_norm.default]),
    _ATEN.native_group_norm.default: group_norm,
    **{
        one: _RULES[one]
        for one in (
            _ATEN._native_batch_norm_legit_functional.default,
            _ATEN._native_batch_norm_legit.no_stats,
            _ATEN.linalg_vector_norm.default,
            _ATEN.slice_scatter.default,
            _ATEN.elu.default,
        )
    },
    **RULES,
}
"""Decomposed here: what torch makes of them depends on the device, or TVM's converters take them in part."""


OF_GRADIENTS = {_ATEN._log_softmax.default: log_softmax, _ATEN.nll_loss_backward.default: nll_loss_backward}
"""Decomposed in graphs with gradients, so that a row's extremum and logarithm are saved in place of a tensor."""


def whole() -> AbstractContextManager[None]:
    """While this lasts, graphs without gradients keep products and attention whole."""
    return kept_whole(KEPT_WHOLE, DECOMPOSED)


def import_program(program: Traced, device: torch.device) -> tuple[tvm.IRModule, Interface]:
    """A module whose function `main` takes the program's state and its inputs, and how that is called.

    Parameters
    ----------
    device : that the program's tensors are on, and its results must be on.

    Raises
    ------
    ModelError
        Where it has an operator that cannot be converted, or that is converted to something else.
    """
    if isinstance(program, torch.export.ExportedProgram):
        program = functional(program)
    before = program
    known, first = {node.target for node in _calls(program.graph)}, None
    apart = set[Any]()
    while True:
        shown, interface = prepared(program, device)
        try:
            module = translated(shown)
            compared(shown.graph, _by_themselves)
            return module, interface
        except ConversionError as error:
            first = error if first is None or known.issuperset(error.operators) else first
            first.program = before
            if not apart.isdisjoint(error.operators):  # a rule that leaves its operator
                raise first from None
            apart.update(error.operators)
            program = _taken_apart(program, error.operators, first)


def _read(function: Callable[..., Any], inputs: Sequence[Any]) -> tuple[tvm.IRModule, Sequence[int]]:
    """The module of a function, traced on fake tensors and sizes, and which of these its `main` takes.

    Raises
    ------
    ModelError
        As `import_program`, of the node whose function it is.
    """
    device = next(one.device for one in inputs if isinstance(one, torch.Tensor))
    shown, passed = captured(traced(function, inputs, table()), device)
    try:
        return import_program(shown, device)[0], passed.places
    except ConversionError as error:
        raise ModelError(error.expected, error.found, error.where, error.hint) from error


def _by_themselves(function: Callable[..., Any], inputs: Sequence[Any]) -> tuple[tvm.IRModule, Sequence[int]]:
    """As `_read`, of operators that are not made of others, and of the results that are used."""
    with kept_whole(KEPT_WHOLE, {}):
        made = traced(function, inputs, {})
    made.graph.eliminate_dead_code()
    shown, passed = captured(made, torch.device("cpu"))
    return translated(shown), passed.places


def functional(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program of operators that converters are for, which write to nothing.

    Raises
    ------
    ModelError
        When torch cannot decompose it.
    """
    return decomposed(program, table())


@cache
def table() -> Mapping[Any, Callable[..., Any]]:
    """What operators that have no converter are made of."""
    known = dict(torch.export.default_decompositions().items())
    return {one: rule for one, rule in known.items() if one not in KEPT_WHOLE} | dict(DECOMPOSED)


_Program = TypeVar("_Program", torch.export.ExportedProgram, ImportedGraph)


def _taken_apart(program: _Program, operators: Sequence[Any], refusal: ConversionError) -> _Program:
    """The program with operators that are not converted rightly replaced by what torch makes of them.

    Raises
    ------
    ConversionError
        The refusal, where torch has no rule for them.
    """
    if not all(one in _RULES for one in operators):
        raise refusal
    rules = {**table(), **{one: _RULES[one] for one in operators}}
    try:
        if isinstance(program, torch.export.ExportedProgram):
            return decomposed(program, rules)
        inputs = [node.meta["val"] for node in program.graph.find_nodes(op="placeholder")]
        with whole():
            return replace(program, graph_module=retraced(program.graph_module, inputs, rules))
    except ModelError:
        raise refusal from None


def translated(shown: ImportedGraph) -> tvm.IRModule:
    _refuse_unknown(shown.graph)
    convert = {node.target.__name__: _converter(node.target.__name__) for node in _calls(shown.graph)}
    try:
        module: tvm.IRModule = from_exported_program(shown, run_ep_decomposition=False, custom_convert_map=convert)
    except NotImplementedError as error:  # of the dtype of an argument: operators are converted by `_converter`
        hint = "convert it before the model is called, to float32 say, or by torch.view_as_real"
        raise ModelError(
            "arguments of dtypes that TVM's importer takes", str(error), "the model's graph", hint
        ) from error
    return module


def _calls(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "call_function"]


def _unknown(graph: fx.Graph) -> dict[Any, fx.Node]:
    """The operators that have no converter, each with its first use."""
    known = {*CONVERTERS, *ExportedProgramImporter().convert_map}
    nodes = [node for node in _calls(graph) if not is_of_complex_numbers(node)]
    return {node.target: node for node in reversed(nodes) if node.target.__name__ not in known}


def _refuse_unknown(graph: fx.Graph) -> None:
    random = [node for node in _calls(graph) if _is_random(node)]
    if random:
        hint = "call the module's .eval(), or draw outside of it"
        operators, expected = [node.target for node in random], "operators that draw no random numbers"
        raise ConversionError(operators, expected, _names(random), origin(random[0]), hint, of_any_shape=True)
    unknown = [*_unknown(graph).values()][::-1]
    if unknown:
        operators = [node.target for node in unknown]
        expected, found, where = "operators that can be converted", _names(unknown), origin(unknown[0])
        raise ConversionError(operators, expected, found, where, _HINT, of_any_shape=True)


def _is_random(node: fx.Node) -> bool:
    """Whether an operator draws random numbers; those of ours that could, with dropout, refuse by themselves."""
    seeded = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    return seeded and node.target.__name__ not in CONVERTERS


def _names(nodes: list[fx.Node]) -> str:
    return ", ".join(dict.fromkeys(str(node.target) for node in nodes))


def _converter(name: str) -> Callable[[fx.Node, Any], Any]:
    """The conversion of an operator: ours if there is one, TVM's else; by PyTorch's rule for halves; checked."""

    def convert(node: fx.Node, importer: Any) -> Any:
        site = Site(node, importer, _read)
        own = CONVERTERS.get(name)

        def convert_as_is() -> Any:
            # The importer's own table has this function in place of TVM's, of which a new table is made.
            return own(site) if own else importer.create_convert_map()[name](node)

        try:
            if has_nothing(node):
                return nothing(site)
            if is_of_complex_numbers(node):
                return checked(site, of_pairs(site, convert_as_is))
            with ExitStack() as changed:
                if computes_on_halves(node):
                    changed.enter_context(operands_in_float32(site))
                if is_along_no_axis(node):
                    changed.enter_context(operands_with_an_axis(site))
                found = convert_as_is()
                found = site.emit(found) if isinstance(found, relax.Call) else found
            return checked(site, rounded(site, without_axis(site, found) if is_along_no_axis(node) else found))
        except ConversionError:
            raise
        except CascadeError as error:
            raise ConversionError([node.target], error.expected, error.found, error.where, error.hint) from error
        except Exception as error:
            expected = f"a use of {node.target} that can be converted"
            raise ConversionError([node.target], expected, told(error), origin(node), _HINT) from error

    return convert
