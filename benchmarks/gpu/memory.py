"""Measured memory bandwidth: the least time of a program that only moves its tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.gpu.timing import Clock
from tvm_cascade.corpus.programs.program import Program

_BYTES = 4 * 2**30
"""Of what is read to measure: far more than caches hold."""

_RUNS = 5


@dataclass(frozen=True)
class Memory:
    """Bandwidths in bytes a second.

    Attributes
    ----------
    read : of a sum of a large vector.
    copy : of a copy of it: bytes read and bytes written together.
    """

    read: float
    copy: float

    def seconds(self, program: Program) -> float:
        """What the compulsory traffic of a program takes at least.

        A byte read costs 1/read, and a byte written what a copy takes for it beside that: 2/copy − 1/read.
        """
        return program.bytes_read / self.read + program.bytes_written * (2 / self.copy - 1 / self.read)


def measured(torch: Any, clock: Clock, device: str) -> Memory:
    """The bandwidths now: the best of some runs."""
    source = torch.randn(_BYTES // 4, device=device)
    target = torch.empty_like(source)
    copied = min(clock.seconds(lambda: target.copy_(source), _RUNS)[1:])
    summed = min(clock.seconds(source.sum, _RUNS)[1:])
    return Memory(_BYTES / summed, 2 * _BYTES / copied)
