"""A program on a device: its tensors, its formula in torch, and what of its output is compared."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import tirx

from benchmarks.gpu.formula import ScoreForm, eager, form_of, reference
from benchmarks.gpu.served import Served, dense, served
from corpus.programs.attention import attention_over
from corpus.programs.draws import Draw, positive, ranked
from corpus.programs.product import product_of
from corpus.programs.program import dtype_of, extents
from corpus.workload import Workload, WorkloadError

_COMPARED_QUERIES = 8192
"""Rows of a head up to which all are compared; then every third, fifth, …: odd, to meet each row of a tile."""


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


def _drawn(torch: Any, draw: Draw, normal: Any) -> Any:
    """What a draw gives of normal data, up to its own numbers."""
    if draw is positive:
        return normal.abs() + 0.5
    if draw is ranked:
        return torch.linspace(-4.0, 4.0, normal.shape[-1], device=normal.device)[normal.argsort(-1)]
    return normal


class Problem:
    """A workload's program and tensors, shared by all rows of its table.

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
        count, most = extents(self.program.outputs[0])[formula.axis], formula.compared
        self.rows = sorted(range(count) if not formula.cut else {k * (count - 1) // (most - 1) for k in range(most)})

    @classmethod
    def drawn(cls, torch: Any, workload: Workload, device: str, seed: int, smallest: bool = False) -> Problem:
        """The workload on normal data, what is large drawn on the device."""
        generator = torch.Generator(device=device).manual_seed(seed)
        rng, inputs = np.random.default_rng(seed), []
        for argument in workload.program.arguments:
            shape, dtype = extents(argument.tensor), dtype_of(argument.tensor)
            if len(shape) > 1 and np.issubdtype(np.dtype("float32") if dtype.kind == "V" else dtype, np.floating):
                values = _drawn(torch, argument.draw, torch.randn(shape, generator=generator, device=device))
                values = values * argument.deviation
                inputs.append(values.to(getattr(torch, dtype.name)))
            else:
                inputs.append(as_tensor(torch, argument.values(rng, "normal"), device))
        return cls(torch, workload, inputs, smallest)

    @property
    def kind(self) -> object:
        """The key under which two programs at a small size are the same."""
        builder: Any = functools.partial(self.workload.builder)
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
        return getattr(self.workload.builder, "func", None) is attention_over

    @property
    def multiplies(self) -> bool:
        """Whether it is a plain matrix product."""
        return getattr(self.workload.builder, "func", None) is product_of

    @property
    def form(self) -> ScoreForm:
        """What happens to scores, of an attention."""
        return form_of(self.workload)

    @property
    def q(self) -> Any:
        """[batch, head, query, feature], of an attention, in the dtype of its output."""
        q = self.named["q"].to(self.output_dtype)
        return q if q.ndim == 4 else q[None]

    @property
    def slopes(self) -> Any:
        """[head]; None where the program has none."""
        return self.named.get("slopes")

    def own(self, name: str) -> Any:
        """Keys or values as [batch, head, position, feature], in their own dtype."""
        return dense(self.torch, self.named, name)

    def dense(self, name: str) -> Any:
        """The same in the dtype of the output."""
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


class SelfAttention(Problem):
    """Attention of a whole prompt, of whose output some heads are compared, in float64 by blocks of queries.

    Attributes
    ----------
    heads : what is compared: the first, and the last of the last batch.
    """

    def __init__(
        self, torch: Any, workload: Workload, inputs: Sequence[Any], smallest: bool = False, func: Any = None
    ) -> None:
        super().__init__(torch, workload, inputs, smallest, func)
        batch, heads, queries, _ = self.q.shape
        self.heads = list(dict.fromkeys([(0, 0), (batch - 1, heads - 1)]))
        self._every = 1 + 2 * ((queries - 1) // _COMPARED_QUERIES)

    def eager(self) -> Any:
        """The output as torch computes it, from a formula that stores all scores."""
        found = eager(self.torch, self.form, self.q, self.dense("k"), self.dense("v"), self.slopes)
        return found if self.named["q"].ndim == 4 else found[0]

    def references(self) -> Iterator[Any]:
        """The exact values of what is compared, in float64."""
        q, k, v, slopes = self.q, self.own("k"), self.own("v"), self.slopes
        group = q.shape[1] // k.shape[1]
        for batch, head in self.heads:
            slope = None if slopes is None else slopes[head : head + 1]
            keys, values = (x[batch, head // group] for x in (k, v))
            yield reference(self.torch, self.form, q[batch, head], keys, values, slope)[:: self._every]

    def compared(self, output: Any) -> list[Any]:
        """The part of an output that is compared, as in `references`."""
        by_head = output if output.ndim == 4 else output[None]
        return [by_head[batch, head, :: self._every] for batch, head in self.heads]


def problem_class(workload: Workload) -> type[Problem]:
    """Of attention where queries and keys are the same, that of whole prompts."""
    shape = workload.shape
    prompt = "queries" in shape and shape["queries"] == shape["keys"] and "value_dim" not in shape
    return SelfAttention if prompt else Problem
