"""What the CPU schedules need to know of a target: vector width, vector registers, threads."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.target import Target, codegen

_WIDE, _MIDDLE, _NARROW = 64, 32, 16


@dataclass(frozen=True)
class Machine:
    """A CPU as a schedule sees it.

    Attributes
    ----------
    vector_bytes : of one vector register.
    registers : number of vector registers.
    threads : that a parallel loop is spread over.
    """

    vector_bytes: int
    registers: int
    threads: int

    def lanes(self, dtype: str) -> int:
        """Elements of a dtype in one vector register."""
        return max(1, self.vector_bytes // tvm.DataType(dtype).itemsize)


def machine_of(target: Target) -> Machine:
    """The machine that an LLVM target describes; vectors of 128 bits where its features say nothing."""
    features = {str(name) for name in codegen.llvm_get_cpu_features(target)}
    threads = int(target.attrs.get("num-cores", 0) or 0) or 1
    if "avx512f" in features:
        return Machine(_WIDE, 32, threads)
    if "avx" in features:
        return Machine(_MIDDLE, 16, threads)
    arm = any(name in features for name in ("neon", "sve"))
    return Machine(_NARROW, 32 if arm else 16, threads)
