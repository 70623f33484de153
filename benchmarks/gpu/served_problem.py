"""A program of a server, or a plain product, on a device: its tensors, and its formula in torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from tvm import tirx

from benchmarks.gpu.formula import ScoreForm, form_of
from benchmarks.gpu.problem import as_tensor, unwritten
from benchmarks.gpu.served import Served, dense, served
from tvm_cascade.corpus.programs.attention import attention_over
from tvm_cascade.corpus.programs.product import product_of
from tvm_cascade.corpus.programs.program import dtype_of, extents
from tvm_cascade.corpus.workload import Workload
from tvm_cascade.errors import WorkloadError

_COMPARED = 4
"""Positions of that axis, where the inputs can be cut along it."""


class ServedProblem:
    """A workload with its tensors.

    Attributes
    ----------
    torch : the module.
    workload : the program with its shape.
    smallest : whether programs that are hundreds of times slower are measured too.
    formula : from the inputs to the output, in torch.
    func : the unfused program, unscheduled.
    inputs : tensors in the order of its parameters.
    named : the same by name.
    rows : what is compared: positions of the axis of the output that the formula names.
    """

    def __init__(
        self, torch: Any, workload: Workload, inputs: Sequence[Any], smallest: bool = False, func: Any = None
    ) -> None:
        self.torch, self.workload, self.inputs, self.smallest = torch, workload, list(inputs), smallest
        self.program = workload.program
        formula = served(workload, self.output_dtype)
        if formula is None:
            raise WorkloadError("a program with a formula in torch", workload.family, f"workload `{workload.name}`")
        self.formula: Served = formula
        self.func: tirx.PrimFunc = self.program.prim_func() if func is None else func
        names = [argument.tensor.name for argument in self.program.arguments]
        self.named = dict(zip(names, self.inputs, strict=True))
        count = extents(self.program.outputs[0])[formula.axis]
        every = range(count) if not formula.cut else {k * (count - 1) // (_COMPARED - 1) for k in range(_COMPARED)}
        self.rows = sorted(every)

    @classmethod
    def drawn(cls, torch: Any, workload: Workload, device: str, seed: int, smallest: bool = False) -> ServedProblem:
        """The workload on normal data, what is large drawn on the device."""
        generator = torch.Generator(device=device).manual_seed(seed)
        rng, inputs = np.random.default_rng(seed), []
        for argument in workload.program.arguments:
            shape, dtype = extents(argument.tensor), dtype_of(argument.tensor)
            if len(shape) > 1 and np.issubdtype(np.dtype("float32") if dtype.kind == "V" else dtype, np.floating):
                values = torch.randn(shape, generator=generator, device=device) * argument.deviation
                inputs.append(values.to(getattr(torch, dtype.name)))
            else:
                inputs.append(as_tensor(torch, argument.values(rng, "normal"), device))
        return cls(torch, workload, inputs, smallest)

    @property
    def kind(self) -> object:
        """The key under which two programs at a small size are the same."""
        builder: Any = self.workload.builder
        return (builder.func, *builder.args, *builder.keywords.items())

    @property
    def length(self) -> int:
        """Positions of the cascade axis."""
        return self.workload.length

    @property
    def output_dtype(self) -> Any:
        """Of the output, in torch."""
        return getattr(self.torch, dtype_of(self.program.outputs[0]).name)

    @property
    def attends(self) -> bool:
        """Whether it is an attention with keys and values of its own, and has what follows."""
        builder: Any = self.workload.builder
        return builder.func is attention_over

    @property
    def multiplies(self) -> bool:
        """Whether it is a plain matrix product."""
        builder: Any = self.workload.builder
        return builder.func is product_of

    @property
    def form(self) -> ScoreForm:
        """What happens to scores, of an attention."""
        return form_of(self.workload)

    @property
    def q(self) -> Any:
        """[batch, head, query, feature], of an attention."""
        q = self.named["q"]
        return q if q.ndim == 4 else q[None]

    @property
    def slopes(self) -> Any:
        """[head]; None where the program has none."""
        return self.named.get("slopes")

    def own(self, name: str) -> Any:
        """Keys or values as [batch, head, position, feature], in their own dtype."""
        return dense(self.torch, self.named, name)

    def dense(self, name: str) -> Any:
        """The same in q's dtype."""
        return self.own(name).to(self.q.dtype)

    def eager(self) -> Any:
        """The output as torch computes it."""
        return self.formula.compute(self.torch, self.named)

    def references(self) -> Iterator[Any]:
        """The exact output of the rows that are compared, in float64."""
        named = self._widened()
        yield self.formula.compute(self.torch, named) if self.formula.exact is None else self.formula.exact(named)

    def usual(self) -> Iterator[Any]:
        """The same with what the program rounds inside; nothing where that is no difference."""
        if self.formula.exact is not None:
            yield self.formula.compute(self.torch, self._widened())

    def _widened(self) -> dict[str, Any]:
        chosen = {name: self._chosen(name, x) for name, x in self.named.items()}
        return {name: x.double() if x.is_floating_point() else x for name, x in chosen.items()}

    def _chosen(self, name: str, tensor: Any) -> Any:
        if name not in self.formula.cut:
            return tensor
        rows = self.torch.tensor(self.rows, device=tensor.device)
        wide = tensor.view(self.torch.uint8) if tensor.element_size() == 1 and tensor.is_floating_point() else tensor
        return wide.index_select(self.formula.cut[name], rows).view(tensor.dtype)

    def compared(self, output: Any) -> list[Any]:
        """Those rows of an output."""
        return [output.index_select(self.formula.axis, self.torch.tensor(self.rows, device=output.device))]

    def empty_output(self) -> Any:
        """A tensor for the output, filled with NaN; with −1 where it has indices."""
        shape, dtype = extents(self.program.outputs[0]), self.output_dtype
        return self.torch.full(shape, unwritten(dtype), dtype=dtype, device=self.inputs[0].device)

    def as_operand(self, output: Any) -> Any:
        """An output as it is."""
        return output
