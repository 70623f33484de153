"""Whether a function is computed in chunks of an axis, and how long these are: memory against time.

d_logits of 4096 tokens × 128256 classes     1002 MiB, 15.6 ms     6 chunks of 21376     231 MiB, 16.0 ms
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tvm import tirx

from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.statements import sequence
from tvm_cascade.errors import SplitError
from tvm_cascade.options import FuseOptions
from tvm_cascade.plan.plan import bytes_of
from tvm_cascade.plan.serial import Call, Serial, axes_of
from tvm_cascade.transform.fuse_function import Outcome

_LARGE, _MIB = 256, 1 << 20
"""MiB of temporaries from which on memory is worth time, where nobody says."""

MOST_TIME, MOST_BYTES = 1.03, 0.25
"""Time and bytes in chunks over those at once, at most, where nobody asked for less memory."""


def least_bytes(options: FuseOptions) -> int:
    """Bytes of temporaries up to which a function is computed at once in any case."""
    return (_LARGE if options.temporaries is None else options.temporaries) * _MIB


@dataclass(frozen=True)
class Cost:
    """Estimated seconds, 0 where nobody estimates, and bytes of temporaries."""

    seconds: float
    bytes: int


@dataclass(frozen=True)
class Part:
    """What the pass made of a function that is called, and what it is lowered to."""

    outcome: Outcome
    chosen: Any


@dataclass(frozen=True)
class Chunks:
    """A function in chunks of an axis.

    Attributes
    ----------
    calls : of its functions, in order.
    cost, whole : in chunks, and at once.
    each : the functions as they are lowered.
    """

    serial: Serial
    calls: tuple[Call, ...]
    cost: Cost
    whole: Cost
    each: tuple[Part, ...] = ()

    def __str__(self) -> str:
        several = " and ".join(f"{call.times} of {call.length}" for call in self.calls if call.length)
        return f"chunks of {self.serial.name} one after the other, {several}"


Measure = Callable[[tirx.PrimFunc], Cost]


def in_chunks(program: Program, measure: Measure, whole: Cost, limit: int | None) -> Chunks | str:
    """The function in the longest chunks that need little enough memory, or why it is computed at once.

    Parameters
    ----------
    measure : of a function.
    whole : of the program at once.
    limit : bytes of temporaries, at most, whatever the time; where it is left out, a part of those at once.
    """
    most = int(MOST_BYTES * whole.bytes) if limit is None else limit
    found, refusals = list[Chunks](), dict[str, None]()
    for axis in axes_of(program):
        one: Chunks | str
        if isinstance(axis, SplitError):
            one = f"{axis.where}: expected {axis.expected}, found {axis.found}"
        else:
            try:
                one = _of_axis(axis, measure, whole, most, limit is None)
            except Exception as defect:  # a compiler pass must not stop a build
                one = f"{axis.name}: {type(defect).__name__}: {defect}"
        if isinstance(one, Chunks):
            found.append(one)
        else:
            refusals[one] = None
    return min(found, key=lambda one: (one.cost.seconds, one.cost.bytes), default="; ".join(refusals))


def _of_axis(axis: Serial, measure: Measure, whole: Cost, most: int, in_time: bool) -> Chunks | str:
    """The longest chunks of an axis that need so many bytes at most; or why there are none.

    Parameters
    ----------
    in_time : they may take little longer than the whole.
    """
    cost = cache(lambda length: _cost(axis, length, measure))
    lengths = axis.lengths if (bytes_of(axis.passed) or 0) < most else []
    place = bisect_left(lengths, True, key=lambda length: cost(length).bytes <= most)
    if place == len(lengths):
        return f"{axis.name}: all chunks need more than {most // _MIB} MiB"
    if in_time and cost(lengths[place]).seconds > MOST_TIME * whole.seconds:
        return f"{axis.name}: chunks take {cost(lengths[place]).seconds / whole.seconds:.2f} times as long"
    return Chunks(axis, tuple(axis.calls(lengths[place])), cost(lengths[place]), whole)


def _cost(axis: Serial, length: int, measure: Measure) -> Cost:
    calls = axis.calls(length)
    costs = [measure(call.func) for call in calls]
    seconds = sum(call.times * cost.seconds for call, cost in zip(calls, costs, strict=True))
    return Cost(seconds, (bytes_of(axis.passed) or 0) + max(cost.bytes for cost in costs))


def host_function(chunks: Chunks, params: Sequence[tirx.Var], name: str, called: Sequence[str]) -> tirx.PrimFunc:
    """The function that a caller calls: it has what passes between the others, and calls them in order.

    Parameters
    ----------
    params : of the function.
    name, called : the function's own, and those of the functions of all calls, in the same module.
    """
    own: list[tirx.Stmt] = [tirx.AllocBuffer(buffer) for buffer in chunks.serial.passed]
    calls = [call.statement(one) for call, one in zip(chunks.calls, called, strict=True)]
    return tirx.PrimFunc(list(params), sequence([*own, *calls])).with_attr("global_symbol", name)
