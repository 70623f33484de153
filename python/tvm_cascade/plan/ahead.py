"""How kernels of a plan overlap, beyond their launches.

One that computes more than it moves fetches for the next what that one reads. One that needs what others computed in
its results alone waits for them there.

    prefix of 64 sequences    16 µs of products, 9 µs of copies     fetches 10 MB of the sequences' own keys and values
    their own keys            14 µs of copies                       of which 2 µs are done already
"""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import tvm
from tvm import tirx
from tvm.ir import prim

from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.tir import dtype_of, loads_of
from tvm_cascade.devices.device import Gpu
from tvm_cascade.plan.plan import Plan, Step
from tvm_cascade.tile.ahead import Ahead
from tvm_cascade.tile.skeleton import Kernel

_KEPT = 0.2
"""The part of the cache that what was fetched may take, beside what the kernel itself passes through it. Fetches take
bandwidth from its own copies: 42.9 µs with 0.15, 43.3 with 0.3, 44.9 with 0.5, 44.6 with none (measured, of a prefix of
8192 keys and 64 sequences of 256)."""

_LEAST = 1 << 20
"""Bytes of a tensor that are worth fetching: smaller ones come in one latency."""


def fetching_ahead(plan: Plan, gpu: Gpu) -> Plan:
    """The plan with kernels that fetch what the next ones read."""
    if not gpu.has_clusters:
        return plan
    steps = list(plan.steps)
    for k, (step, following) in enumerate(pairwise(plan.steps)):
        ahead = _ahead(step, following, plan, gpu)
        if ahead is not None:
            steps[k] = _with_program(steps[k], ahead=ahead)
        if late := _late(following, plan):
            steps[k + 1] = _with_program(steps[k + 1], late=late)
    return dataclasses.replace(plan, steps=tuple(steps))


def _with_program(step: Step, **changes: object) -> Step:
    kernel = step.chosen
    assert isinstance(kernel, Kernel)
    program = dataclasses.replace(kernel.program, **changes)
    return dataclasses.replace(step, chosen=dataclasses.replace(kernel, program=program))


def _late(step: Step, plan: Plan) -> tuple[tirx.Var, ...]:
    """What a step reads of others of the plan, where it does so in its results alone and may wait for them there."""
    kernel = step.chosen
    if not isinstance(kernel, Kernel) or not kernel.skeleton.may_wait_late(kernel.program, kernel.config):
        return ()
    written = [buffer for other in plan.steps for buffer in other.written]
    read = [buffer for buffer in step.buffers if among(buffer, written) and not among(buffer, step.written)]
    stream = kernel.program.stream
    elements = [*(atom.expression for atom in stream.group.atoms.atoms.values()), *stream.scales]
    early = [operand.buffer for operand in stream.operands]
    early += [load.source for element in elements for load in loads_of(element)]
    read_of_caller = any(among(buffer, plan.params) for buffer in read)
    plain = not read_of_caller and all(dtype_of(buffer) == "float32" and not among(buffer, early) for buffer in read)
    return tuple(read) if plain else ()


def _ahead(step: Step, following: Step, plan: Plan, gpu: Gpu) -> Ahead | None:
    """What a step may fetch for the next one: inputs of the plan, in the time that its own copies leave."""
    kernel, rate = step.chosen, gpu.memory_bytes_per_second
    if not isinstance(kernel, Kernel) or not kernel.skeleton.fetches_ahead(kernel.config):
        return None
    idle = kernel.seconds * rate - step.work.bytes
    written = [buffer for other in plan.steps for buffer in other.written]
    inputs = [b for b in following.buffers if among(b, plan.params) and not among(b, (*written, *step.buffers))]
    sized = [(b, size) for b in inputs if (size := _bytes(b)) is not None and size >= _LEAST]
    total = sum(size for _, size in sized)
    fetched = int(min(idle, _KEPT * gpu.l2_bytes, total))
    if not sized or fetched < _LEAST:
        return None
    return Ahead(tuple(b for b, _ in sized), tuple(size for _, size in sized), fetched)


def _bytes(buffer: tirx.Var) -> int | None:
    """Of a tensor of known extents."""
    count = 1
    for extent in buffer.ty.shape:
        if not isinstance(extent, prim.IntImm):
            return None
        count *= int(extent)
    return count * tvm.DataType(dtype_of(buffer)).itemsize
