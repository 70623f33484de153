"""`tvm_cascade.optimize`: a PyTorch module in, a callable on torch tensors out."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from tvm.target import Target

from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.errors import InputError
from tvm_cascade.torch.backend import Account, in_pytorch
from tvm_cascade.torch.calls import names_of_extents
from tvm_cascade.torch.code import Code
from tvm_cascade.torch.compilation import compiled, runnable
from tvm_cascade.torch.cutting import CutCode
from tvm_cascade.torch.devices import asked_for, device_of, placed
from tvm_cascade.torch.exporting import ONE_AT_A_TIME, Dynamic, arguments_of, exported
from tvm_cascade.torch.graph import prepared
from tvm_cascade.torch.importer import functional
from tvm_cascade.torch.model import OptimizedModel
from tvm_cascade.torch.site import ConversionError


def optimize(
    module: torch.nn.Module,
    example_inputs: Any,
    target: str | dict[str, Any] | Target = "auto",
    dynamic: Dynamic = None,
    cut: bool = False,
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
    cut : operators that cannot be converted run in PyTorch, and a `FallbackWarning` names them; the parts between them
        are compiled. Such a model cannot be saved.

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
        code: Code | CutCode
        try:
            code = compiled(program, target, device)
        except ConversionError as refusal:
            if not cut:
                raise
            code = _cut(program, refusal, target, device)
    signature = inspect.signature(module.forward)
    run = runnable(code, program, module, names_of_extents(signature, args, kwargs, dynamic))
    return OptimizedModel(type(module).__name__, signature, run, program.call_spec, module)


def _cut(
    program: torch.export.ExportedProgram,
    refusal: ConversionError,
    target: str | dict[str, Any] | Target,
    device: torch.device,
) -> CutCode:
    """The program in PyTorch, in parts where some are worth it, after a warning; the refusal gives up its program."""
    whole, refusal.program = refusal.program or functional(program), None
    account, resolved = Account(), resolve_target(asked_for(device, target))
    (shown, interface), inputs = prepared(whole, device), whole.graph_signature.input_specs
    run = in_pytorch(shown.graph_module, refusal, account)
    return CutCode(run, inputs, whole.constants, account.reports, interface, resolved, placed(device, resolved))
