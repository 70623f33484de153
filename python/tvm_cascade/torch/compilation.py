"""From an exported program to one that is called with tensors: whole, or in parts between operators of PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from tvm.target import Target

from tvm_cascade.driver.cache import kept, key_of
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.errors import CascadeError, ModelError
from tvm_cascade.relax import get_pipeline
from tvm_cascade.torch.code import Code, texts_of
from tvm_cascade.torch.cutting import CutCode
from tvm_cascade.torch.devices import asked_for, placed
from tvm_cascade.torch.graph import Traced
from tvm_cascade.torch.importer import import_program
from tvm_cascade.torch.leaves import promised
from tvm_cascade.torch.model import Program
from tvm_cascade.torch.site import told
from tvm_cascade.torch.state import shared_state


def compiled(
    program: Traced,
    target: str | dict[str, Any] | Target,
    device: torch.device,
    by_name: bool = True,
) -> Code:
    """The code of an exported module, or a captured graph, for the device that its tensors are on.

    Parameters
    ----------
    by_name : code on disk is taken of programs of the same names alone, so that its report tells of them.

    Raises
    ------
    InputError, ModelError
        As `optimize`.
    """
    resolved = resolve_target(asked_for(device, target))
    place, pipeline = placed(device, resolved), get_pipeline(resolved)

    def made() -> Code:
        imported, interface = import_program(program, device)
        try:
            executable, report = pipeline.made(imported)
        except CascadeError:
            raise
        except Exception as error:
            raise ModelError("a model that TVM generates code for", told(error), "tvm_cascade.optimize") from error
        return Code(executable, interface, resolved, place, report)

    key = key_of(resolved, pipeline.options, lambda: texts_of(program, device, by_name))
    return kept(key, made, Code.bundle, partial(Code.load, target=resolved, device=place))


def runnable(
    code: Code | CutCode,
    program: Traced,
    module: torch.nn.Module | None,
    extents: Sequence[Mapping[int, str]] = (),
    keeps_apart: bool = False,
) -> Program:
    """The code with the parameters and buffers of its module, or with the program's own.

    Parameters
    ----------
    extents : names of extents for messages, per leaf of the arguments and axis; torch's by default.
    keeps_apart : as of `Program`.
    """
    state = shared_state(program, module, code.device.tvm)
    leaves, ranges = promised(program, extents)
    return Program(code, leaves, ranges, state, keeps_apart)
