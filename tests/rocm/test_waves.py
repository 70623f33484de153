"""Programs for AMD GPUs, executed on the CPU from the LLVM IR of their kernels, against the float64 oracle."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from tvm import tirx
from tvm_ffi import StructuralKey

from benchmarks import suites
from corpus import workloads
from corpus.programs.attention import VARIANTS, attention
from corpus.workload import Workload

from ..schedule.test_gpu import softmax_sum
from ..tiers import slow_but
from .emulator.run import compiler, execute
from .programs import assert_right, differences, lowered, target_of

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

FEW = (
    "softmax",  # rows folded by a whole block, through LDS
    "attention_causal",  # products staged in LDS, rows folded by exchanges of a wave
    "R4",  # tuples, top-k, float16
    "Q1",  # float8
    "rmsnorm_gemm",  # a deferred reference
)

LAZY = {"tile": 16, "reference": "lazy"}

PARTS = 6
"""Of the other twins, so that several processes test them."""


def assert_workload_right(job: Workload, **options: object) -> None:
    assert_right(job.build(), job.inputs(np.random.default_rng(0)), **options)


def small(name: str) -> Workload:
    """The small twin of a workload, which selects two at most."""
    return workloads.get(name).cpu.within({"topk": 2})


@pytest.mark.parametrize("name", FEW)
def test_small_twin_is_right(name: str) -> None:
    assert_workload_right(small(name))


def distinct(gpu_suites: Sequence[str] = ()) -> dict[StructuralKey, Workload]:
    """The small twins of all workloads, and of those that these suites measure in another dtype; each program once.

    Of the operators that a suite measures in several dtypes and lengths, whose names begin alike, the first.
    """
    named = [workloads.get(name).cpu for name in workloads.names()]
    entries = [entry for suite in gpu_suites for entry in suites.entries(suite)]
    kinds = {(job.name, job.dtype) for job in named}
    others = [entry.workload.cpu for entry in entries if (entry.workload.name, entry.workload.dtype) not in kinds]
    measured = [job.within({"length": 197, "rows": 2, "batch": 1, "tokens": 16, "topk": 12}) for job in others]
    found: dict[StructuralKey, Workload] = {}
    first = {job.name.split()[0]: job for job in reversed(measured)}
    for job in (*named, *first.values()):
        found.setdefault(StructuralKey(job.build()), job)
    return found


@cache
def rest() -> list[Workload]:
    """The twins beside `FEW`, measured dtypes included."""
    fast = {StructuralKey(small(name).build()) for name in FEW}
    return [job for key, job in distinct(suites.KERNELS).items() if key not in fast]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_small_twin_is_right(part: int) -> None:
    wrong = {}
    for job in rest()[part::PARTS]:
        func, inputs = job.build(), job.inputs(np.random.default_rng(0))
        if difference := differences(func, inputs, execute(lowered(func), target_of(), inputs)):
            wrong[job.label] = difference
    assert wrong == {}
    assert len(rest()) > 40


@pytest.mark.parametrize(("name", "dtype"), [("attention_softcap", "bfloat16"), ("attention_softcap", "float64")])
def test_other_dtypes(name: str, dtype: str) -> None:
    assert_workload_right(workloads.get(name).cpu.with_dtype(dtype))


@pytest.mark.parametrize("options", slow_but([LAZY], [{"tile": 7}, LAZY]), ids=str)
def test_lengths_that_are_no_multiples_of_a_tile(options: dict[str, object]) -> None:
    assert_workload_right(workloads.get("attention").cpu.with_length(45), **options)


@pytest.mark.parametrize("kind", ["all_neg_inf_row", "nan"])
def test_special_values(kind: str) -> None:
    shape = {"heads": 1, "queries": 5, "keys": 70, "head_dim": 16}
    job = Workload("full", "attention", "tests", shape, "float32", "float32", attention(VARIANTS["full"]), ("keys",))
    assert_right(job.build(), job.inputs(np.random.default_rng(0), kind))


def test_symbolic_extents() -> None:
    x = np.random.default_rng(0).standard_normal((7, 600)).astype("float32")
    symbolic = softmax_sum(tirx.Var("m", "int32"), tirx.Var("n", "int32"))
    found = execute(lowered(symbolic), target_of(), [x])
    assert not differences(softmax_sum(7, 600), [x], found)
