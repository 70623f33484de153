"""An attention problem on a device: its program and tensors, shared by all rows of its table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import tirx

from benchmarks.gpu.formula import ScoreForm, eager, form_of, reference
from tvm_cascade.corpus.programs.program import dtype_of, extents
from tvm_cascade.corpus.workload import Workload

_COMPARED_ROWS = 8192
"""Rows of a head up to which all are compared; then every third, fifth, …: odd, to meet each row of a tile."""

_OPERANDS = 3  # q, k and v, which are large and normal; what follows has values that its role fixes


class Problem:
    """A workload's program and tensors.

    Attributes
    ----------
    torch : the module.
    workload : the program with its shape.
    smallest : whether programs that are hundreds of times slower are measured too.
    form : what happens to scores.
    func : the unfused program, unscheduled.
    inputs : tensors in the order of its parameters.
    q, k, v : the operands as [batch, head, position, feature], widened to v's dtype, which most peers need.
    slopes : [head]; None where the program has none.
    heads : what is compared: the first, and the last of the last batch.
    """

    def __init__(
        self, torch: Any, workload: Workload, inputs: Sequence[Any], smallest: bool = False, func: Any = None
    ) -> None:
        self.torch, self.workload, self.smallest = torch, workload, smallest
        self.form: ScoreForm = form_of(workload)
        self.func: tirx.PrimFunc = workload.build() if func is None else func
        self.inputs = list(inputs)
        widest = self.inputs[_OPERANDS - 1].dtype
        self.q, self.k, self.v = ((x if x.ndim == 4 else x[None]).to(widest) for x in self.inputs[:_OPERANDS])
        self.slopes: Any = self.inputs[_OPERANDS] if self.form.alibi else None
        self.heads = list(dict.fromkeys([(0, 0), (self.q.shape[0] - 1, self.q.shape[1] - 1)]))
        self._every = 1 + 2 * ((self.q.shape[2] - 1) // _COMPARED_ROWS)

    @classmethod
    def drawn(cls, torch: Any, workload: Workload, device: str, seed: int, smallest: bool = False) -> Problem:
        """The workload on normal data, the operands drawn on the device."""
        generator = torch.Generator(device=device).manual_seed(seed)
        rng = np.random.default_rng(seed)
        inputs = []
        for number, argument in enumerate(workload.program.arguments):
            if number < _OPERANDS:
                normal = torch.randn(extents(argument.tensor), generator=generator, device=device)
                inputs.append(normal.to(getattr(torch, dtype_of(argument.tensor).name)))
            else:
                inputs.append(as_tensor(torch, argument.values(rng, "normal"), device))
        return cls(torch, workload, inputs, smallest)

    @property
    def kind(self) -> object:
        """The key under which two programs at a small size are the same."""
        return self.form

    @property
    def output_dtype(self) -> Any:
        """Of the output, in torch."""
        return self.q.dtype

    @property
    def length(self) -> int:
        """Positions of the cascade axis."""
        return int(self.k.shape[2])

    def eager(self) -> Any:
        """The output as torch computes it, from a formula that stores all scores."""
        return eager(self.torch, self.form, self.q, self.k, self.v, self.slopes)

    def references(self) -> Iterator[Any]:
        """The exact values of what is compared, in float64."""
        group = self.q.shape[1] // self.k.shape[1]
        for batch, head in self.heads:
            slope = None if self.slopes is None else self.slopes[head : head + 1]
            k, v = (x[batch, head // group] for x in (self.k, self.v))
            yield reference(self.torch, self.form, self.q[batch, head], k, v, slope)[:: self._every]

    def compared(self, output: Any) -> list[Any]:
        """The part of an output [batch, head, position, feature] that is compared, as in `references`."""
        return [output[batch, head, :: self._every] for batch, head in self.heads]

    def empty_output(self) -> Any:
        """A tensor for the output, filled with NaN."""
        return self.torch.full_like(self.inputs[0], float("nan"), dtype=self.output_dtype)

    def as_operand(self, output: Any) -> Any:
        """An output as [batch, head, position, feature]."""
        return output if output.ndim == 4 else output[None]


def unwritten(dtype: Any) -> float:
    """What outputs of a dtype of torch hold before a run: NaN, and −1 where they are indices."""
    return float("nan") if dtype.is_floating_point else -1


def as_tensor(torch: Any, array: NDArray[Any], device: str) -> Any:
    """The array on a device; NumPy has bfloat16 and float8 by way of ml_dtypes, which torch does not know."""
    if not hasattr(np, array.dtype.name):
        bits = torch.from_numpy(array.view(f"i{array.itemsize}").copy())
        return bits.view(getattr(torch, array.dtype.name)).to(device)
    return torch.from_numpy(array.copy()).to(device)


def as_array(tensor: Any) -> NDArray[Any]:
    """The tensor in float64, which holds every value of a narrower float exactly; integers as they are."""
    values = tensor.double() if tensor.is_floating_point() else tensor
    return np.asarray(values.cpu().numpy())
