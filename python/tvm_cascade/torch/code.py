"""What a model is compiled to, kept on disk by all that its code depends on: graph, constants, device."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from tvm import relax
from tvm.target import Target

from tvm_cascade.driver.as_json import as_value, from_json, to_json
from tvm_cascade.driver.bundle import Files
from tvm_cascade.errors import ModelError
from tvm_cascade.relax import pipeline
from tvm_cascade.report.explanation import Explanation
from tvm_cascade.torch.devices import ModelDevice
from tvm_cascade.torch.graph import Interface
from tvm_cascade.torch.site import told
from tvm_cascade.torch.tensors import compact

for _kind in (torch.dtype, torch.layout, torch.memory_format):
    as_value(_kind, lambda one: str(one).removeprefix("torch."), lambda name: getattr(torch, name))
as_value(torch.device, str, torch.device)

_INTERFACE = "interface.json"


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
        """The parts of a bundle of it."""
        return {**pipeline.saved((self.executable, self.report)), _INTERFACE: to_json(self.interface)}

    @classmethod
    def load(cls, files: Files, target: Target, device: ModelDevice) -> Code:
        """The code of a bundle."""
        executable, report = pipeline.load(files)
        return cls(executable, from_json(files[_INTERFACE]), target, device, report)


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""What objects without a text of their own are told by, which tells nothing to another process."""


def texts_of(program: torch.export.ExportedProgram, device: torch.device) -> list[str] | None:
    """What tells an exported program from all others; None where that is not known.

    The values of parameters and buffers, which are passed at each call, are none of it.
    """
    told = [torch.__version__, str(device), str(program.graph_signature), str(program.range_constraints)]
    told += [text for graph in _graphs(program.graph_module) for text in (str(graph), *map(_value, graph.nodes))]
    for name, constant in program.constants.items():
        if not isinstance(constant, torch.Tensor):
            return None
        told += [name, str(constant.dtype), str(tuple(constant.shape)), _content(constant)]
    return None if any(map(_ADDRESS.search, told)) else told


def _graphs(module: fx.GraphModule) -> Iterator[fx.Graph]:
    return (one.graph for one in module.modules() if isinstance(one, fx.GraphModule))


def _value(node: fx.Node) -> str:
    """The kinds of the tensors that a node is, or is called with."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {tuple(value.shape)} {value.stride()} {value.device}"
    return str(value)


def _content(constant: torch.Tensor) -> str:
    return hashlib.sha256(compact(constant.cpu()).reshape(-1).view(torch.uint8).numpy()).hexdigest()
