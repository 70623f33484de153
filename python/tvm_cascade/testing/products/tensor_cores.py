"""Which products of half precision a lowered program leaves to CUDA cores, and why."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tvm_cascade.report.group import FunctionReport
from tvm_cascade.testing.products.case import Extents, ProductCase

_ON_TENSOR_CORES = "the tensor-core kernel"
"""How a report names kernels of skeletons that multiply on tensor cores."""

ALLOWED: Mapping[str, str] = {
    "the last dimension runs along neither": "an operand is contiguous along an axis of the batch",
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


def left_out(case: ProductCase, extents: Extents, report: FunctionReport) -> list[LeftOut]:
    """The kernels of a report that compute products of half precision without tensor cores.

    A kernel counts with all its products. As many operations as the case has in products of float32 operands are not
    counted: those belong to CUDA cores.
    """
    others: float = sum(case.flops(extents, [k]) for k in case.products if not case.is_half(k))
    found = []
    for step in _steps(case, extents, report):
        own = step.flops - others
        others = max(0.0, others - step.flops)
        if own > 0:
            found.append(LeftOut(own, step.reason))
    return found


def _steps(case: ProductCase, extents: Extents, report: FunctionReport) -> list[LeftOut]:
    if plan := getattr(report, "plan", ()):
        return [
            LeftOut(step.flops, step.kernel)
            for step in plan
            if step.flops and not step.kernel.startswith(_ON_TENSOR_CORES)
        ]
    if report.lowering.startswith(_ON_TENSOR_CORES):
        return []
    return [LeftOut(case.flops(extents), report.lowering)]
