"""Which products of half precision a lowered program leaves to CUDA cores, and why."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.products.case import Extents, ProductCase
from tvm_cascade.report.group import FunctionReport

_ON_TENSOR_CORES = "the tensor-core kernel"
"""How a report names kernels of skeletons that multiply on tensor cores."""

ALLOWED: Mapping[str, str] = {
    "the last dimension runs along neither": "an operand is contiguous along an axis of extent 1, or of the batch",
}
"""Patterns of reasons for which a product of half precision may stay on CUDA cores, with why no kernel takes it."""


@dataclass(frozen=True)
class LeftOut:
    """Products on CUDA cores.

    Attributes
    ----------
    flops : their operations.
    reason : why no skeleton of tensor cores takes them, as the report says.
    """

    flops: float
    reason: str

    @property
    def allowed(self) -> bool:
        """Whether the table of reasons has one for it."""
        return any(re.search(pattern, self.reason) for pattern in ALLOWED)


def left_out(case: ProductCase, extents: Extents, report: FunctionReport) -> LeftOut | None:
    """The products of half precision that a report has in no kernel of tensor cores; None where it has all.

    Products of float32 operands are not asked for, as those belong to CUDA cores, nor products of a matrix and a
    vector, whose time is that of the memory.
    """
    matrices = [k for k in case.products if case.is_half(k) and case.multiplies_matrices(k, extents)]
    wanted = case.flops(extents, matrices)
    missing = wanted - _on_tensor_cores(case, extents, report)
    if missing <= _ROUNDING * wanted:
        return None
    steps = [step.kernel for step in report.plan if not step.kernel.startswith(_ON_TENSOR_CORES)]
    return LeftOut(missing, "; ".join(steps) if report.plan else report.lowering)


_ROUNDING = 1e-6
"""Of operations, which reports have as floats."""


def _on_tensor_cores(case: ProductCase, extents: Extents, report: FunctionReport) -> float:
    if report.lowering.startswith(_ON_TENSOR_CORES):
        return float(case.flops(extents))
    return sum(step.flops for step in report.plan if step.kernel.startswith(_ON_TENSOR_CORES))
