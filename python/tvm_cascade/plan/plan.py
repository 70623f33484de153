"""A plan as data: steps in order, what passes between them, the estimate of each, and the function that calls them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import prim

from tvm_cascade.algebra.verdict import Reason
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.statements import sequence, statements_of
from tvm_cascade.analysis.tir import dtype_of, within
from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.estimate import Work, count_work
from tvm_cascade.tile.launch.dependent import WAITS, Ahead
from tvm_cascade.tile.skeleton import Kernel, Setting, reconfigured
from tvm_cascade.transform.fuse_function import AsItIs, Outcome, read_function


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
        stored = {store.buffer for store in within(self.func.body, tirx.BufferStore)}
        return tuple(buffer for buffer in self.buffers if buffer in stored)

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
    at_once : why large temporaries are not had in chunks of an axis.
    """

    params: tuple[tirx.Var, ...]
    steps: tuple[Step, ...]
    launch: float = 0.0
    whole: str = ""
    declined: tuple[Declined, ...] = ()
    at_once: str = ""

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
    given = {*params}
    passed = (param for func in funcs for param in func.params if tirx.is_buffer_var(param))
    return tuple(dict.fromkeys(param for param in passed if param not in given))


# A step of a plan that no skeleton's kernel computes: the estimate of its S-TIR schedule.


def scheduled(outcome: Outcome, why: Kernel | AsItIs | str, setting: Setting, alone: bool = False) -> Step:
    """A function as one step of an S-TIR schedule.

    Parameters
    ----------
    why : it has no kernel of a skeleton.
    alone : it is all of the plan, and so none of its kernels is launched dependently.
    """
    gpu, program = setting.gpu, read_in_part(outcome)
    if program is None:
        return Step(outcome.given, outcome, why, Work(), gpu.dependent_launch_seconds)
    work = count_work(program)
    moved = work if outcome.fused else count_work(program, temporaries=True)
    memory, compute = gpu.rates.scheduled_memory_share, gpu.rates.scheduled_compute_share
    kernels = len(statements_of(outcome.readable.body.block))
    seconds = (
        moved.seconds(gpu, memory, compute, gpu.product_flops_per_second / compute)
        + kernels * gpu.dependent_launch_seconds
    )
    if alone or work.flops:  # threads that walk k by themselves take about a launch as well
        seconds += kernels * (gpu.launch_seconds - gpu.dependent_launch_seconds)
    return Step(program.func, outcome, why, work, seconds)


def read_in_part(outcome: Outcome) -> Program | None:
    """The function as it was read, also where nests of it could not be; None where they share names of memory."""
    read = read_function(outcome.given) if outcome.program is None else outcome.program
    if isinstance(read, Reason) or any(isinstance(one.nest, tirx.DeclBuffer) for one in read.opaque):
        return None
    return read


# The host function of a plan: allocates its temporaries and calls its steps in order.
#
# TVM's runtime takes temporaries from a pool of the calling thread and device, so that a later call has them again: on
# one stream, after all kernels of the call before. Calls of one thread on several streams at once would have the same
# temporaries; calls of several threads have their own.


def host_function(plan: Plan, name: str, steps: Sequence[str]) -> tirx.PrimFunc:
    """The function that a caller calls.

    Parameters
    ----------
    name : the function's own.
    steps : names of the functions of the plan's steps, in the same module.
    """
    pairs = zip(steps, plan.steps, strict=True)
    calls = [tirx.Evaluate(tirx.call_cpacked(called, *step.arguments)) for called, step in pairs]
    return calling(name, plan.params, plan.temporaries, calls)


def calling(
    name: str, params: Sequence[tirx.Var], passed: Sequence[tirx.Var], calls: Sequence[tirx.Stmt]
) -> tirx.PrimFunc:
    """A function that has what passes between others, and calls them in order."""
    allocations = [tirx.AllocBuffer(buffer) for buffer in passed]
    return tirx.PrimFunc(list(params), sequence([*allocations, *calls])).with_attr("global_symbol", name)


def as_step(func: tirx.PrimFunc, name: str, waits: bool) -> tirx.PrimFunc:
    """A step's function under its name; its kernels wait for those before them, or are the first."""
    return func.with_attr("global_symbol", name).with_attr(WAITS, waits)


def names_beside(name: str, count: int, taken: Collection[str]) -> list[str]:
    """Names of so many functions that another calls, which no function has."""
    stem = name
    while any(f"{stem}_{k}" in taken for k in range(count)):
        stem += "_"
    return [f"{stem}_{k}" for k in range(count)]


# How kernels of a plan overlap, beyond their launches.
#
# One that computes more than it moves fetches for the next what that one reads. One that needs what others computed in
# its results alone waits for them there.
#
#     prefix of 64 sequences    16 µs of products, 9 µs of copies    fetches 10 MB of the sequences' own keys and values
#     their own keys            14 µs of copies                      of which 2 µs are done already
#
# Where the second needs the first's results that late, both may run *side by side*: the first has some multiprocessors,
# the second is started with it on the others, and keeps its states until the first has ended. One computes while the
# other moves bytes.


_KEPT = 0.2
"""The part of the cache that what was fetched may take, beside what the kernel itself passes through it. Fetches take
bandwidth from its own copies: 42.9 µs with 0.15, 43.3 with 0.3, 44.9 with 0.5, 44.6 with none (measured, of a prefix of
8192 keys and 64 sequences of 256)."""

_BOUND_BY_MEMORY = 2.0
"""Time of the second kernel over that of its bytes, at most: what computes as well needs all multiprocessors."""

_LEAST = 1 << 20
"""Bytes of a tensor that are worth fetching: smaller ones come in one latency."""


def overlapping(plan: Plan, setting: Setting) -> Plan:
    """The plan with kernels that run side by side, or fetch what the next ones read."""
    gpu = setting.gpu
    if not gpu.has_clusters:
        return plan
    steps = list(plan.steps)
    for k, (step, following) in enumerate(pairwise(plan.steps)):
        late = _late(following, plan)
        if late and (pair := _side_by_side(steps[k], following, late, setting)) is not None:
            steps[k : k + 2] = pair
            continue
        ahead = _ahead(step, following, plan, gpu)
        if ahead is not None:
            steps[k] = _launched(steps[k], ahead=ahead)
        if late:
            steps[k + 1] = _launched(steps[k + 1], late=late)
    return replace(plan, steps=tuple(steps))


def _side_by_side(step: Step, following: Step, late: tuple[tirx.Var, ...], setting: Setting) -> list[Step] | None:
    """Two steps side by side; None where that is estimated to take longer than one after the other."""
    first, second, gpu = step.chosen, following.chosen, setting.gpu
    if not isinstance(first, Kernel) or not isinstance(second, Kernel):
        return None
    if second.seconds > _BOUND_BY_MEMORY * following.work.bytes / gpu.memory_bytes_per_second:
        return None
    copies = (step.work.bytes + following.work.bytes) / (gpu.rates.bulk_memory_share * gpu.memory_bytes_per_second)
    states = 2 * sum(bytes_of([buffer]) or 0 for buffer in late) / gpu.memory_bytes_per_second
    found: list[tuple[float, Kernel, Kernel]] = []
    for leaving in first.skeleton.leaving_room(first.program, setting):
        config = second.skeleton.beside(second.program, second.config, gpu.processors - leaving.blocks, setting)
        if config is not None:
            pair = reconfigured(first, leaving, setting), reconfigured(second, config, setting)
            longer = max(kernel.seconds for kernel in pair)
            found.append((max(gpu.rates.beside_share * longer, copies) + states, *pair))
    if not found:
        return None
    together, first, second = min(found, key=lambda one: one[0])
    if together + 2 * gpu.dependent_launch_seconds >= step.seconds + following.seconds:
        return None
    return [
        _launched(replace(step, chosen=first, seconds=together + gpu.dependent_launch_seconds), early=True),
        _launched(replace(following, chosen=second, seconds=gpu.dependent_launch_seconds), late=late),
    ]


def _launched(step: Step, **changes: Any) -> Step:
    kernel = step.chosen
    assert isinstance(kernel, Kernel)
    return replace(step, chosen=replace(kernel, launch=replace(kernel.launch, **changes)))


def _late(step: Step, plan: Plan) -> tuple[tirx.Var, ...]:
    """What a step reads of others of the plan, where it does so in its results alone and may wait for them there."""
    kernel = step.chosen
    if not isinstance(kernel, Kernel):
        return ()
    written = [buffer for other in plan.steps for buffer in other.written]
    read = [buffer for buffer in step.buffers if among(buffer, written) and not among(buffer, step.written)]
    plain = all(dtype_of(buffer) == "float32" and not among(buffer, plan.params) for buffer in read)
    return tuple(read) if plain and kernel.skeleton.may_wait_late(kernel.program, kernel.config, read) else ()


def _ahead(step: Step, following: Step, plan: Plan, gpu: Gpu) -> Ahead | None:
    """What a step may fetch for the next one: inputs of the plan, in the time that its own copies leave."""
    kernel, rate = step.chosen, gpu.memory_bytes_per_second
    if not isinstance(kernel, Kernel) or not kernel.skeleton.fetches_ahead(kernel.config):
        return None
    idle = kernel.seconds * rate - step.work.bytes
    written = [buffer for other in plan.steps for buffer in other.written]
    inputs = [b for b in following.buffers if among(b, plan.params) and not among(b, (*written, *step.buffers))]
    sized = [(b, size) for b in inputs if (size := bytes_of([b])) is not None and size >= _LEAST]
    total = sum(size for _, size in sized)
    fetched = int(min(idle, _KEPT * gpu.l2_bytes, total))
    if not sized or fetched < _LEAST:
        return None
    return Ahead(tuple(b for b, _ in sized), tuple(size for _, size in sized), fetched)
