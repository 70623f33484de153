"""`tvm_cascade.torch_operator`: a program as an operator of PyTorch, with its gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol, runtime_checkable

import torch
from tvm import tirx

from tvm_cascade.driver.arguments import Parameter, parameters_of
from tvm_cascade.driver.compilation import compile_for
from tvm_cascade.driver.entry import extents_of, shape_of
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.errors import InputError
from tvm_cascade.options import FuseOptions
from tvm_cascade.torch.devices import asked_for, placed

_WHERE = "tvm_cascade.torch_operator"


class Runs(Protocol):
    """What runs one function on tensors: inputs, then outputs to fill.

    Attributes
    ----------
    parameters : by the function's name, what it takes, in order.
    """

    @property
    def parameters(self) -> Mapping[str, tuple[Parameter, ...]]: ...

    def __call__(self, *arguments: Any) -> Any: ...


@runtime_checkable
class Differentiable(Protocol):
    """A function with its gradient, as `Gradient` names its parts."""

    @property
    def forward(self) -> tirx.PrimFunc | Runs: ...

    @property
    def backward(self) -> tirx.PrimFunc | Runs: ...


def torch_operator(func: tirx.PrimFunc | Runs | Differentiable, name: str) -> torch.library.CustomOpDef:
    """A function as an operator of `torch.library`, which `torch.compile` and `torch.export` take whole.

    It takes the function's inputs as tensors, by position, and gives its outputs as tensors of their own: one tensor,
    or a tuple in the order of parameters. A PrimFunc is compiled when it is first called, for the device of its
    arguments, by the model's own choices; on a GPU it runs on torch's current stream.

    Parameters
    ----------
    func : a PrimFunc, or what `tvm_cascade.compile` or `tvm_cascade.distributed.shard` made of one; or what
        `tvm_cascade.gradient` gives, sharded or not, of which the operator is the forward function, its results what
        that saves too, and its gradient the backward function.
    name : "namespace::name", which is new; the backward function is "namespace::name_backward".

    Raises
    ------
    InputError
        When the function takes numbers, or has an output whose extents are not those of inputs.

    Examples
    --------
    >>> import torch, tvm_cascade
    >>> from tvm import te
    >>> x, j = te.placeholder((4, 64), "float32", name="x"), te.reduce_axis((0, 64), "j")
    >>> square = te.compute((4,), lambda i: te.sum(x[i, j] * x[i, j], axis=j), name="square")
    >>> gradient = tvm_cascade.gradient(te.create_prim_func([x, square]))
    >>> squares = tvm_cascade.torch_operator(gradient, "examples::squares")
    >>> given = torch.ones(4, 64, requires_grad=True)
    >>> squares(given).sum().backward()
    >>> given.grad[0, 0]
    tensor(2.)
    """
    if not isinstance(func, Differentiable):
        return _registered(func, name)
    forward, backward = _registered(func.forward, name), _registered(func.backward, f"{name}_backward")
    inputs, outputs = _parts(_parameters(func.forward))
    read, made = _parts(_parameters(func.backward))
    adjoints = {one.name.removeprefix("d_"): k for k, one in enumerate(made)}

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        results = output if isinstance(output, tuple) else (output,)
        ctx.save_for_backward(*inputs, *results)

    def gradients(ctx: Any, *given: Any) -> tuple[Any, ...]:
        names = [one.name for one in (*inputs, *outputs)]
        known = dict(zip(names, ctx.saved_tensors, strict=True))
        known |= {f"d_{one.name}": adjoint for one, adjoint in zip(outputs, given, strict=True)}
        found = backward(*(known[one.name] for one in read))
        found = found if isinstance(found, tuple) else (found,)
        return tuple(found[adjoints[one.name]] if one.name in adjoints else None for one in inputs)

    forward.register_autograd(gradients, setup_context=setup)
    return forward


def _registered(func: tirx.PrimFunc | Runs, name: str) -> torch.library.CustomOpDef:
    """The function as an operator without a gradient."""
    parameters = _parameters(func)
    inputs, outputs = _parts(parameters)
    _check(inputs, outputs)
    known = cache(lambda device: code_on(func, device, FuseOptions.from_environment()))

    def made(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        extents = extents_of(zip(inputs, given, strict=True))
        return tuple(
            given[0].new_empty(shape_of(one, extents, name), dtype=getattr(torch, one.dtype)) for one in outputs
        )

    def run(*given: torch.Tensor) -> Any:
        results = made(*given)
        values = dict(zip((one.name for one in (*inputs, *outputs)), (*given, *results), strict=True))
        code = known(given[0].device) if isinstance(func, tirx.PrimFunc) else func
        code(*(values[one.name].detach() for one in parameters))
        return results if len(results) > 1 else results[0]

    def fake(*given: torch.Tensor) -> Any:
        results = made(*given)
        return results if len(results) > 1 else results[0]

    results = ["Tensor"] * len(outputs)
    schema = f"({', '.join(f'Tensor {one.name}' for one in inputs)}) -> "
    schema += results[0] if len(results) == 1 else f"({', '.join(results)})"
    operator = torch.library.custom_op(name, run, mutates_args=(), schema=schema)
    operator.register_fake(fake)
    return operator


Code = Callable[..., None]
"""What runs a function on tensors and numbers, in the order of its parameters."""


def code_on(func: tirx.PrimFunc, device: torch.device, options: FuseOptions) -> Code:
    """The function's code on a device, on torch's current stream of a GPU."""
    target = resolve_target(asked_for(device, "auto"))
    code, place = compile_for(func, target, options, records=""), placed(device, target)

    def call(*given: torch.Tensor | int) -> None:
        with place.current():
            code(*given)

    return call


def _parameters(func: tirx.PrimFunc | Runs) -> Sequence[Parameter]:
    return parameters_of(func) if isinstance(func, tirx.PrimFunc) else next(iter(func.parameters.values()))


def _parts(parameters: Sequence[Parameter]) -> tuple[list[Parameter], list[Parameter]]:
    """Inputs and outputs."""
    return [one for one in parameters if not one.written], [one for one in parameters if one.written]


def _check(inputs: Sequence[Parameter], outputs: Sequence[Parameter]) -> None:
    numbers = [one.name for one in (*inputs, *outputs) if one.shape is None]
    if numbers or not inputs:
        raise InputError("a function of tensors", f"numbers {', '.join(numbers)}" if numbers else "no input", _WHERE)
    known = {extent for one in inputs for extent in one.shape or ()}
    for one in outputs:
        if unknown := [extent for extent in one.shape or () if isinstance(extent, str) and extent not in known]:
            raise InputError("outputs of the extents of inputs", f"{unknown[0]} of `{one.name}`", _WHERE)
