"""`tvm_cascade.optimize`: a PyTorch module in, a callable on torch tensors out."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from tvm.target import Target

from tvm_cascade.driver.cache import kept, key_of
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.errors import CascadeError, InputError, ModelError
from tvm_cascade.relax import get_pipeline
from tvm_cascade.torch.calls import names_of_extents
from tvm_cascade.torch.code import Code, texts_of
from tvm_cascade.torch.devices import asked_for, device_of, placed
from tvm_cascade.torch.exporting import ONE_AT_A_TIME, Dynamic, arguments_of, exported
from tvm_cascade.torch.importer import import_program
from tvm_cascade.torch.leaves import leaves_of, named, ranges_of
from tvm_cascade.torch.model import OptimizedModel, Program
from tvm_cascade.torch.site import told
from tvm_cascade.torch.state import shared_state


def optimize(
    module: torch.nn.Module,
    example_inputs: Any,
    target: str | dict[str, Any] | Target = "auto",
    dynamic: Dynamic = None,
) -> OptimizedModel:
    """Compile a module for inference, its cascades of reductions fused.

    Parameters
    ----------
    module : in evaluation mode. Its parameters and buffers are shared, not copied: what is written to them counts.
    example_inputs : a tensor, a tuple of the positional arguments, or a mapping of keyword arguments. Tensors stand for
        all of their shape and dtype; what is no tensor is a constant.
    target : as `tvm_cascade.compile` takes it; "auto" is the device that the module and the example are on, a CPU or a
        GPU. On a GPU calls are put on torch's current stream.
    dynamic : which extents may change, as `dynamic_shapes` of `torch.export.export`: per argument a mapping from
        dimensions to `torch.export.Dim`.

    Returns
    -------
    model : called as the module, with torch tensors, which it reads where they lie.

    Raises
    ------
    InputError
        When the module or the target is none, or the example is not what the module takes.
    ModelError
        When the module has an operator that cannot be converted, or control flow that depends on its data; or when its
        tensors are on several devices, or not on the target's.

    Examples
    --------
    >>> import torch, tvm_cascade
    >>> softmax = tvm_cascade.optimize(torch.nn.Softmax(dim=-1), torch.randn(8, 64))
    >>> softmax(torch.randn(8, 64)).shape
    torch.Size([8, 64])
    """
    if not isinstance(module, torch.nn.Module):
        hint = "wrap a function in a module whose forward calls it"
        raise InputError("a torch.nn.Module", type(module).__name__, "tvm_cascade.optimize", hint)
    args, kwargs = arguments_of(example_inputs, module)
    device = device_of(module, (args, kwargs))
    with ONE_AT_A_TIME:
        program = exported(module, args, kwargs, dynamic)
        code = compiled(program, target, device)
    signature = inspect.signature(module.forward)
    run = runnable(code, program, module, names_of_extents(signature, args, kwargs, dynamic))
    return OptimizedModel(type(module).__name__, signature, run, program.call_spec)


def compiled(
    program: torch.export.ExportedProgram, target: str | dict[str, Any] | Target, device: torch.device
) -> Code:
    """The code of an exported module for the device that its tensors are on.

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

    key = key_of(resolved, pipeline.options, lambda: texts_of(program, device))
    return kept(key, made, Code.bundle, partial(Code.load, target=resolved, device=place))


def runnable(
    code: Code,
    program: torch.export.ExportedProgram,
    module: torch.nn.Module | None,
    extents: Sequence[Mapping[int, str]] = (),
) -> Program:
    """The code with the parameters and buffers of its module, or with the program's own.

    Parameters
    ----------
    extents : names of extents for messages, per leaf of the arguments and axis; torch's by default.
    """
    state = shared_state(program, module, code.interface.state, code.device.tvm)
    leaves, ranges = named(leaves_of(program, code.interface.inputs), extents, ranges_of(program))
    return Program(code, leaves, ranges, state)
