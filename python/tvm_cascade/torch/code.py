"""What a model is compiled to, kept on disk by all that its code depends on: graph, constants, device."""

from __future__ import annotations

import hashlib
import pickle
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.export.graph_signature import CustomObjArgument, InputKind
from torch.fx.node import map_arg
from tvm import relax
from tvm.target import Target

from tvm_cascade.driver.bundle import Files
from tvm_cascade.errors import ModelError
from tvm_cascade.relax import pipeline
from tvm_cascade.report.explanation import Explanation
from tvm_cascade.torch.devices import ModelDevice
from tvm_cascade.torch.graph import Interface, Traced
from tvm_cascade.torch.site import told
from tvm_cascade.torch.tensors import compact

_INTERFACE = "interface.pickle"


@dataclass(frozen=True)
class Code:
    """What a model was compiled to.

    Attributes
    ----------
    executable : of TVM's virtual machine.
    interface : what its function `main` takes and gives.
    target : what it was compiled for.
    device : that it runs on.
    report : of its reductions.
    """

    executable: relax.VMExecutable
    interface: Interface
    target: Target
    device: ModelDevice
    report: Explanation

    def function(self) -> Any:
        """`main` in a virtual machine of its own.

        Raises
        ------
        ModelError
            When TVM does not load the code.
        """
        try:
            return relax.VirtualMachine(self.executable, self.device.tvm)["main"]
        except Exception as error:
            raise ModelError("a model whose code TVM loads", told(error), "tvm_cascade.optimize") from error

    def bundle(self) -> Files:
        """The parts of a bundle of it, for any program that is like its own."""
        return {**pipeline.saved((self.executable, self.report)), _INTERFACE: pickle.dumps(self.interface)}

    @classmethod
    def load(cls, files: Files, target: Target, device: ModelDevice) -> Code:
        """The code of a bundle."""
        executable, report = pipeline.load(files)
        return cls(executable, pickle.loads(files[_INTERFACE]), target, device, report)


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""What objects without a text of their own are told by, which tells nothing to another process."""


def texts_of(program: Traced, device: torch.device, by_name: bool) -> list[str] | None:
    """What tells an exported program from all others; None where that is not known.

    The values of parameters and buffers, which are passed at each call, are none of it.

    Parameters
    ----------
    by_name : programs that differ in the names of their inputs are different ones: reports tell of them.
    """
    told = [torch.__version__, str(device), str(program.range_constraints)]
    told += [str(program.graph_signature), str(program.graph)] if by_name else []
    places = {str(spec.target): place for place, spec in enumerate(program.graph_signature.input_specs)}
    for spec in program.graph_signature.input_specs:
        if isinstance(spec.arg, CustomObjArgument):
            return None
        told.append(f"{spec.kind} {type(spec.arg).__name__} {getattr(spec.arg, 'value', None)!r}")
        told += _content(program.constants[str(spec.target)]) if spec.kind is InputKind.CONSTANT_TENSOR else []
    told += [f"{spec.kind} {places.get(str(spec.target))}" for spec in program.graph_signature.output_specs]
    told += [text for graph in _graphs(program.graph_module) for text in _nodes(graph)]
    return None if any(map(_ADDRESS.search, told)) else told


def _graphs(module: fx.GraphModule) -> Iterator[fx.Graph]:
    return (one.graph for one in module.modules() if isinstance(one, fx.GraphModule))


def _nodes(graph: fx.Graph) -> Iterator[str]:
    """The nodes of a graph, which refer to each other by their numbers; constants of functions by their values."""
    numbers = {node: number for number, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        given = map_arg((node.args, node.kwargs), lambda one: f"%{numbers[one]}")
        target = "" if node.op in ("placeholder", "output") else node.target
        yield f"{node.op} {target} {given} {_kind_of(node.meta.get('val'))}"
        constant = getattr(graph.owning_module, node.target) if node.op == "get_attr" else None
        yield from _content(constant) if isinstance(constant, torch.Tensor) else ()


def _kind_of(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {tuple(value.shape)} {value.stride()} {value.device}"
    return str([*map(_kind_of, value)]) if isinstance(value, (tuple, list)) else str(value)


def _content(constant: torch.Tensor) -> list[str]:
    content = compact(constant.cpu()).reshape(-1).view(torch.uint8).numpy()
    return [str(constant.dtype), str(tuple(constant.shape)), hashlib.sha256(content).hexdigest()]
