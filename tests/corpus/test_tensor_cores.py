"""Every program of the tables with products of half precision or float8 has them on the tensor cores of a Hopper."""

from __future__ import annotations

from itertools import groupby

import pytest

from corpus import workloads
from tvm_cascade import explain

from ..tiers import quick_but

HOPPER = {"kind": "cuda", "arch": "sm_90a"}
FAMILIES = ("attention", "mla", "routing", "quantised", "decode", "head", "product")
NAMES = [
    next(names)
    for family in FAMILIES
    for _, names in groupby(
        (name for name in workloads.names(family) if workloads.get(name).dtype in ("float16", "bfloat16")),
        key=lambda name: (id(workloads.get(name).builder), workloads.get(name).dtype),
    )
]
"""The first of neighbouring rows with one program, which differ in their extents."""


def on_cuda_cores(name: str) -> list[str]:
    """The kernels of a workload that multiply matrices without tensor cores; all of them where none is on any."""
    workload = workloads.get(name)
    (report,) = explain(workload.build(), HOPPER, **dict.fromkeys(workload.allowances, True)).functions
    kernels = [(step.kernel, step.flops) for step in report.plan] or [(report.lowering, 1.0)]
    others = [(kernel, flops) for kernel, flops in kernels if not kernel.startswith("the tensor-core kernel")]
    return [kernel for kernel, flops in others if flops or len(others) == len(kernels)]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_products_of_the_tables_are_on_tensor_cores(name: str) -> None:
    assert not on_cuda_cores(name)


@pytest.mark.parametrize(
    "name", quick_but(["R5"], ["H1", "H7", "L7", "R5", "Q7", "DC_ALIBI", "decode_draft", "mla_paged", "product_gelu"])
)  # routers: tests/plan/test_routers.py
def test_one_of_each_kind_is_on_tensor_cores(name: str) -> None:
    assert not on_cuda_cores(name)
