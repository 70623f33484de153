"""From a module and an example of its arguments to an exported program; what torch says of a failure, put shortly."""

from __future__ import annotations

import inspect
import re
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import exported_program
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta as traceback_of_nodes
from torch.utils import _pytree as pytree

from tvm_cascade.errors import InputError, ModelError
from tvm_cascade.torch.calls import take_caches_apart

Dynamic = Mapping[str, Any] | Sequence[Any] | None

ONE_AT_A_TIME = threading.RLock()
"""Held while a model is exported and compiled, since torch.export is of one thread."""

_LIBRARIES = (Path(torch.__file__).parent, Path(__file__).parents[1])
_FOR_TORCH = re.compile(
    r"For (more|extended|C\+\+)|TORCH|Caused by|https?://|^consider using|^The following call|^File "
)
"""Lines of torch's messages that tell how to debug torch."""

_MESSAGE_LINES = 4
_HINT = "torch.compile(model, backend='tvm_cascade') takes a model in parts, and runs what cannot be taken in PyTorch"
_HINT_OF_DYNAMIC = (
    "`dynamic` is what torch.export.export takes as `dynamic_shapes`: a mapping from names of arguments to "
    "{axis: Dim}; an example has extents of 2 or more where they may change, and torch.export.Dim.DYNAMIC for a named "
    "Dim asks torch for no proof that every size will do"
)


class ExportError(ModelError):
    """A module that torch.export does not take."""


def arguments_of(example: Any, module: torch.nn.Module) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The positional and the keyword arguments that an example stands for, each a tensor of its own.

    Raises
    ------
    InputError
        When it holds something else than tensors and constants, or the module takes other arguments.
    """
    where = "example_inputs of tvm_cascade.optimize"
    if example is None:
        hint = "pass torch.randn(…) of the shape and dtype of calls, or () where there are no arguments"
        raise InputError("a tensor, a tuple of arguments, or a mapping of them", "None", where, hint)
    if any(isinstance(leaf, np.ndarray) for leaf in pytree.tree_leaves(example)):
        raise InputError("tensors of torch", "an array of NumPy", where, "pass torch.from_numpy(array)")
    take_caches_apart()
    args: tuple[Any, ...] = tuple(example) if isinstance(example, (tuple, list)) else (example,)
    args, kwargs = ((), dict(example)) if isinstance(example, Mapping) else (args, {})
    signature = inspect.signature(module.forward)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        hint = "pass a tuple of the positional arguments, or a mapping by name"
        expected = f"arguments of {type(module).__name__}.forward{signature}"
        raise InputError(expected, str(error), where, hint) from error
    seen = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
    return pytree.tree_map_only(torch.Tensor, lambda leaf: _apart(leaf, seen), (args, kwargs))


def _apart(leaf: torch.Tensor, seen: set[int]) -> torch.Tensor:
    """The tensor, or a copy of one that was seen: torch.export takes two arguments that are one tensor for one."""
    if id(leaf) in seen:
        return leaf.detach().clone().requires_grad_(leaf.requires_grad)
    seen.add(id(leaf))
    return leaf


def exported(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic: Dynamic
) -> torch.export.ExportedProgram:
    """The exported module.

    Raises
    ------
    ExportError
        When torch cannot export it.
    """
    try:
        with torch.no_grad():
            program = torch.export.export(module, args, kwargs, dynamic_shapes=dynamic)
            if _takes_state_for_constants(program):
                program = torch.export.export(module, args, kwargs, dynamic_shapes=dynamic, strict=True)
            return program
    except Exception as error:
        of_dynamic = dynamic is not None and isinstance(error, (torch._dynamo.exc.UserError, TypeError, ValueError))
        where = ", ".join(filter(None, (type(module).__name__, _line(error))))
        hint = _HINT_OF_DYNAMIC if of_dynamic else _HINT
        raise ExportError("a module that torch.export takes", _shortly(error), where, hint) from error


def _takes_state_for_constants(program: torch.export.ExportedProgram) -> bool:
    """Whether buffers that the module reads by another name, such as in a cache, became constants beside them."""
    known, buffers = {**program.constants, **program.state_dict}, program.graph_signature.buffers
    own = {id(known[name]) for name in buffers}
    return any(id(one) in own for name, one in program.constants.items() if name not in buffers)


@contextmanager
def kept_whole(kept: Sequence[Any], table: Mapping[Any, Any]) -> Iterator[None]:
    """While this lasts, graphs have these operators, which torch makes of others before a graph sees them.

    Parameters
    ----------
    table : what some others of that kind are made of instead.
    """
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    rules = {one: rule for one, rule in table.items() if one.has_kernel_for_dispatch_key(composite)}
    with exported_program._override_composite_implicit_decomp({**rules, **dict.fromkeys(kept, _as_it_is)}):
        yield


def _as_it_is(*_: Any, **__: Any) -> Any:
    return NotImplemented


def retraced(module: fx.GraphModule, inputs: Sequence[Any], table: Mapping[Any, Any]) -> fx.GraphModule:
    """A graph made again by running it on fake tensors, its nodes named anew, its inputs not.

    Parameters
    ----------
    inputs : fake tensors, and sizes.
    table : what operators are made of; those of `kept_whole` are left where that lasts.
    """
    made = traced(fx.Interpreter(module).run, inputs, table)
    places = (graph.find_nodes(op="placeholder") for graph in (module.graph, made.graph))
    for given, one, value in zip(*places, inputs, strict=True):
        one.name, one.target = given.name, given.target
        one.meta.setdefault("val", value)  # which torch 2.13 leaves out of sizes
    made.recompile()
    return made


def traced(function: Callable[..., Any], inputs: Sequence[Any], table: Mapping[Any, Any]) -> fx.GraphModule:
    """The graph of a function of fake tensors and sizes; `table` as of `retraced`."""
    modes = (one.fake_mode for one in inputs if isinstance(one, FakeTensor))
    with next(modes, FakeTensorMode()), enable_python_dispatcher(), traceback_of_nodes(), torch.no_grad():
        return make_fx(function, decomposition_table=dict(table))(*inputs)


def decomposed(program: torch.export.ExportedProgram, table: Mapping[Any, Any]) -> torch.export.ExportedProgram:
    """The program with operators replaced by those that the table makes of them.

    Raises
    ------
    ModelError
        When torch cannot, as of arguments that overlap where one is written to.
    """
    try:
        with warnings.catch_warnings():  # of torch, about a copy that it makes of its own
            warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)`", FutureWarning)
            return program.run_decompositions(dict(table))
    except Exception as error:
        where = "torch.export.ExportedProgram.run_decompositions"
        raise ModelError("a program that torch decomposes", _shortly(error), where, _HINT) from error


def _shortly(error: Exception) -> str:
    text = re.split(r"The error above occurred|The following call raised", str(error))[0]
    lines = [re.split(r"For more information", line)[0].strip() for line in text.splitlines()]
    lines = [line for line in lines if line] or ["without a text"]
    told = [line for line in lines if not _FOR_TORCH.search(line)] or lines
    return f"{type(error).__name__}: " + "\n    ".join(told[:_MESSAGE_LINES])


def _line(error: Exception) -> str:
    """The last line of the user's that was running."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if not any(Path(one.filename).is_relative_to(folder) for folder in _LIBRARIES)]
    files = [one for one in own if Path(one.filename).is_file() and "/importlib/" not in one.filename]
    return f"{files[-1].filename}:{files[-1].lineno}: {files[-1].line}" if files else ""
