"""A row reduction on a device: its program, its tensors, and its formula in torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import tirx

from benchmarks.gpu.problem import as_tensor
from tvm_cascade.corpus.programs import gradients, moments, normalisation, softmax
from tvm_cascade.corpus.programs.draws import positive
from tvm_cascade.corpus.programs.normalisation import EPSILON
from tvm_cascade.corpus.programs.program import Builder, dtype_of, extents
from tvm_cascade.corpus.workload import Workload
from tvm_cascade.errors import WorkloadError

Formula = Callable[..., Any]


def _inertia(_torch: Any, mass: Any, position: Any) -> Any:
    centre = (mass[..., None] * position).sum(1) / mass.sum(1)[:, None]
    return (mass * ((position - centre[:, None]) ** 2).sum(-1)).sum(1)


def _softmax_gradient(torch: Any, x: Any, d_out: Any) -> Any:
    p, gradient = _wide(torch, x).softmax(-1), _wide(torch, d_out)
    return (p * (gradient - (p * gradient).sum(-1, keepdim=True))).to(x.dtype)


def _cross_entropy_gradient(torch: Any, logits: Any, target: Any, d_loss: Any) -> Any:
    hit = torch.arange(logits.shape[1], device=logits.device) == target[:, None]
    p = _wide(torch, logits).softmax(-1)
    return (_wide(torch, d_loss)[:, None] * (p - hit.to(p.dtype))).to(logits.dtype)


def _layer_norm_gradient(torch: Any, x: Any, gain: Any, d_out: Any) -> Any:
    offset = _wide(torch, x) - _wide(torch, x).mean(-1, keepdim=True)
    inverse_std = torch.rsqrt((offset * offset).mean(-1, keepdim=True) + EPSILON)
    normal, scaled = offset * inverse_std, _wide(torch, gain) * _wide(torch, d_out)
    centred = scaled - scaled.mean(-1, keepdim=True)
    return ((centred - normal * (scaled * normal).mean(-1, keepdim=True)) * inverse_std).to(x.dtype)


def _wide(torch: Any, x: Any) -> Any:
    """In single precision at least, as sums of half-width floats are taken."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


FORMULAS: Mapping[Builder, Formula] = {
    moments.variance: lambda _torch, x: x.var(dim=1, unbiased=False),
    moments.inertia: _inertia,
    softmax.softmax: lambda _torch, x: x.softmax(-1),
    softmax.cross_entropy: lambda torch, x, target: torch.nn.functional.cross_entropy(x, target, reduction="none"),
    normalisation.rms_norm: lambda torch, x, gain: torch.nn.functional.rms_norm(x, x.shape[1:], gain, EPSILON),
    normalisation.layer_norm: lambda torch, x, gain, bias: torch.nn.functional.layer_norm(
        x, x.shape[1:], gain, bias, EPSILON
    ),
    gradients.softmax_gradient: _softmax_gradient,
    gradients.cross_entropy_gradient: _cross_entropy_gradient,
    gradients.layer_norm_gradient: _layer_norm_gradient,
}
"""What a user of torch writes, by the builder of the workload's program."""

_OF_ALL_ROWS = ("gain", "bias")
"""Arguments that have an element for every position, and the same ones for all rows."""

_COMPARED_ROWS = 16


class RowProblem:
    """A workload of rows with its tensors.

    Attributes
    ----------
    torch : the module.
    workload : the program with its shape.
    smallest : whether programs that are hundreds of times slower are measured too: none is, of rows.
    formula : in torch, from the inputs to the output.
    func : the unfused program, unscheduled.
    inputs : tensors in the order of its parameters.
    rows : numbers of those that are compared: the first and the last, and some between.
    """

    def __init__(
        self, torch: Any, workload: Workload, inputs: Sequence[Any], smallest: bool = True, func: Any = None
    ) -> None:
        if workload.builder not in FORMULAS:
            raise WorkloadError("a program of rows with a formula in torch", workload.family, workload.name)
        self.torch, self.workload, self.inputs, self.smallest = torch, workload, list(inputs), True
        self.formula = FORMULAS[workload.builder]
        self.program = workload.program
        self.func: tirx.PrimFunc = self.program.prim_func() if func is None else func
        count = int(self.inputs[0].shape[0])
        self.rows = sorted({k * (count - 1) // (_COMPARED_ROWS - 1) for k in range(_COMPARED_ROWS)})

    @classmethod
    def drawn(cls, torch: Any, workload: Workload, device: str, seed: int, smallest: bool = True) -> RowProblem:
        """The workload on normal data; what has an element for every row and position is drawn on the device."""
        generator = torch.Generator(device=device).manual_seed(seed)
        rng, inputs = np.random.default_rng(seed), []
        for argument in workload.program.arguments:
            shape, dtype = extents(argument.tensor), dtype_of(argument.tensor)
            if len(shape) == 1:
                inputs.append(as_tensor(torch, argument.values(rng, "normal"), device))
                continue
            values = torch.randn(shape, generator=generator, device=device)
            drawn = values.abs() + 0.5 if argument.draw is positive else values
            inputs.append(drawn.to(getattr(torch, dtype.name)))
        return cls(torch, workload, inputs)

    @property
    def kind(self) -> object:
        """The key under which two programs at a small size are the same."""
        return self.workload.builder

    @property
    def length(self) -> int:
        """Positions of a row."""
        return int(self.inputs[0].shape[1])

    @property
    def output_dtype(self) -> Any:
        """Of the output, in torch."""
        return getattr(self.torch, dtype_of(self.program.outputs[0]).name)

    def eager(self) -> Any:
        """The output as torch computes it."""
        return self.formula(self.torch, *self.inputs)

    def references(self) -> Iterator[Any]:
        """The exact output of the rows that are compared, in float64."""
        chosen = [
            x if argument.tensor.name in _OF_ALL_ROWS else x[self.rows]
            for argument, x in zip(self.program.arguments, self.inputs, strict=True)
        ]
        yield self.formula(self.torch, *(x.double() if x.is_floating_point() else x for x in chosen))

    def compared(self, output: Any) -> list[Any]:
        """Those rows of an output."""
        return [output[self.rows]]

    def empty_output(self) -> Any:
        """A tensor for the output, filled with NaN."""
        shape = extents(self.program.outputs[0])
        return self.torch.full(shape, float("nan"), dtype=self.output_dtype, device=self.inputs[0].device)

    def as_operand(self, output: Any) -> Any:
        """An output as it is."""
        return output
