"""How kernels of a plan overlap, beyond their launches.

One that computes more than it moves fetches for the next what that one reads. One that needs what others computed in
its results alone waits for them there.

    prefix of 64 sequences    16 µs of products, 9 µs of copies     fetches 10 MB of the sequences' own keys and values
    their own keys            14 µs of copies                       of which 2 µs are done already

Where the second needs the first's results that late, both may run *side by side*: the first has some multiprocessors,
the second is started with it on the others, and keeps its states until the first has ended. One computes while the
other moves bytes.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

from tvm import tirx

from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.devices.device import Gpu
from tvm_cascade.plan.plan import Plan, Step, bytes_of
from tvm_cascade.tile.launch.dependent import Ahead
from tvm_cascade.tile.skeleton import Kernel, Setting, reconfigured

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
