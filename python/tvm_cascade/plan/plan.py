"""A plan as data: steps in order, what passes between them, and the estimate of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import tvm_ffi
from tvm import tirx
from tvm.ir import prim

from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.tile.estimate import Work
from tvm_cascade.tile.launch.dependent import Ahead
from tvm_cascade.tile.skeleton import Kernel
from tvm_cascade.transform.fuse_function import AsItIs, Outcome


@dataclass(frozen=True)
class Step:
    """A function of a plan: one kernel of a skeleton, or an S-TIR schedule of its nests.

    Attributes
    ----------
    func : its nests as they were written; parameters are the caller's buffers and the plan's temporaries.
    outcome : what the pass made of it.
    chosen : its kernel, or why no skeleton has one.
    work : what it moves and computes, at least.
    seconds : that it is estimated to take after a step before it.
    others : the kernels of other skeletons that take it, by estimated time.
    """

    func: tirx.PrimFunc
    outcome: Outcome
    chosen: Kernel | AsItIs | str
    work: Work
    seconds: float
    others: tuple[Kernel, ...] = ()

    @property
    def buffers(self) -> tuple[tirx.Var, ...]:
        """The parameters that are buffers."""
        return tuple(param for param in self.func.params if tirx.is_buffer_var(param))

    @property
    def arguments(self) -> tuple[tirx.Var, ...]:
        """What it is called with: its function's parameters, and tensors that it fetches for the next step."""
        return (*self.func.params, *(() if self.ahead is None else self.ahead.tensors))

    @property
    def ahead(self) -> Ahead | None:
        """What its kernel fetches for the next step."""
        return self.chosen.launch.ahead if isinstance(self.chosen, Kernel) else None

    @property
    def early(self) -> bool:
        """Whether the next kernel is started with it, on multiprocessors that it leaves."""
        return isinstance(self.chosen, Kernel) and self.chosen.launch.early

    @property
    def fast_math(self) -> bool:
        """Whether approximate hardware functions are exact enough: for S-TIR schedules, where all is of half width."""
        if isinstance(self.chosen, Kernel):
            return self.chosen.fast_math
        return all(_is_half(buffer) for buffer in self.buffers)

    @cached_property
    def written(self) -> tuple[tirx.Var, ...]:
        """The parameters that it writes."""
        stores: list[tirx.BufferStore] = []
        tvm_ffi.structural_walk(self.func.body, (tirx.BufferStore, stores.append))
        return tuple(buffer for buffer in self.buffers if among(buffer, [store.buffer for store in stores]))

    @property
    def results(self) -> tuple[str, ...]:
        """Names of the parameters that it writes."""
        return tuple(buffer.name for buffer in self.written)


def _is_half(buffer: tirx.Var) -> bool:
    dtype = dtype_of(buffer)
    return dtype in ("float16", "bfloat16") or not dtype.startswith("float")


@dataclass(frozen=True)
class Declined:
    """A cascade that has a fold, and whose reductions a plan computes apart.

    Attributes
    ----------
    names : of the results.
    kernel : what would compute them together, with what they are computed from.
    fused, apart : seconds that this and the steps in its place are estimated to take.
    steps : how many these are.
    """

    names: tuple[str, ...]
    kernel: str
    fused: float
    apart: float
    steps: int

    def __str__(self) -> str:
        times = f"estimated {self.fused * 1e6:.1f} us fused, {self.apart * 1e6:.1f} us as {self.steps} steps"
        return f"{', '.join(self.names)}: {times}; fused it is {self.kernel}"


@dataclass(frozen=True)
class Plan:
    """Steps that together compute a function.

    Attributes
    ----------
    params : of the function.
    steps : in order.
    launch : seconds that the first takes longer to start than those after it.
    whole : why it is no one kernel: the reasons of every skeleton; empty where there is one.
    declined : the cascades that are not computed by one step.
    """

    params: tuple[tirx.Var, ...]
    steps: tuple[Step, ...]
    launch: float = 0.0
    whole: str = ""
    declined: tuple[Declined, ...] = ()

    @property
    def seconds(self) -> float:
        """Estimated, with the launches of all steps."""
        return self.launch + sum(step.seconds for step in self.steps)

    @cached_property
    def words(self) -> str:
        """What tells a plan from others of its function: the results of its steps."""
        return "; ".join(", ".join(step.results) for step in self.steps)

    @property
    def temporaries(self) -> tuple[tirx.Var, ...]:
        """What passes between steps, in the order in which it is computed."""
        return temporaries(self.params, [step.func for step in self.steps])


def bytes_of(buffers: Sequence[tirx.Var]) -> int | None:
    """Bytes of buffers; None where an extent is symbolic."""
    extents = [extent for buffer in buffers for extent in buffer.ty.shape]
    if not all(isinstance(extent, prim.IntImm) for extent in extents):
        return None
    return sum(math.prod(map(int, b.ty.shape)) * tvm_ffi.dtype(dtype_of(b)).itemsize for b in buffers)


def temporaries(params: Sequence[tirx.Var], funcs: Sequence[tirx.PrimFunc]) -> tuple[tirx.Var, ...]:
    """The buffers of functions' parameters that the caller does not pass, each once."""
    found: list[tirx.Var] = []
    for param in (param for func in funcs for param in func.params if tirx.is_buffer_var(param)):
        if not among(param, params) and not among(param, found):
            found.append(param)
    return tuple(found)
