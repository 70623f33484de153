"""Random programs with matrix products: they mean what torch computes, and their products are on tensor cores."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu.problem import as_array, as_tensor
from benchmarks.products import trial
from benchmarks.products.__main__ import summary
from benchmarks.products.case import ProductCase, Statement
from benchmarks.products.composition import compose
from benchmarks.products.grammar import PRODUCTIONS, draw
from benchmarks.products.operations import FOLDS, MAPS
from benchmarks.products.program import data, program
from benchmarks.products.tensor_cores import left_out
from benchmarks.products.trial import Built, Found
from tvm_cascade import explain
from tvm_cascade.report.group import FunctionReport

from ..plan.run import emulated, plan_of, run, skeletons
from ..tile.emulator.run import compiler

torch = pytest.importorskip("torch")

HOPPER = {"kind": "cuda", "arch": "sm_90a"}
SEEDS = range(200)


def test_a_seed_is_one_case() -> None:
    for seed in (0, 7, 199):
        assert draw(seed) == draw(seed) and str(draw(seed)) == str(draw(seed))
        first, again = (data(draw(seed), draw(seed).small, 3) for _ in range(2))
        assert all(np.array_equal(x, y) for x, y in zip(first, again, strict=True))
    assert draw(0) != draw(1)


def test_two_hundred_cases_hold_what_the_grammar_has() -> None:
    cases = [draw(seed) for seed in SEEDS]
    assert {case.shape_of for case in cases} == set(PRODUCTIONS)
    operations = Counter(statement.op for case in cases for statement in case.statements)
    assert set(FOLDS) | set(MAPS) | {"product", "round", "causal"} <= set(operations)
    assert {case.dtype for case in cases} == {"float16", "bfloat16"} and len({case.inputs for case in cases}) > 4
    extents = [size for case in cases for size in case.large.values()]
    assert any(size % 8 for size in extents if size > 8), "rows that are no multiple of 16 bytes"
    stored = [s.axes for case in cases for s in case.statements if s.op == "input" and len(s.axes) > 2]
    assert len({len(axes) for axes in stored}) > 1, "batches"
    for case in cases:
        assert case.products and all(case.is_half(k) for k in case.products if _rounded(case, k))
        assert case.flops(case.small) < case.flops(case.large) <= 60 * 10**9


def _rounded(case: ProductCase, position: int) -> bool:
    return all(case.statements[k].half for k in case.statements[position].args)


@pytest.mark.parametrize("seed", [0, 2, 6, 9, 10, 12, 16, 20, 26, 31])
def test_the_program_is_the_composition_of_library_calls(seed: int) -> None:
    case = draw(seed)
    func, arrays = program(case, case.small), data(case, case.small, 1)
    outputs = compose(torch, case, [as_tensor(torch, array, "cpu").float() for array in arrays])
    *_, message = trial.judged(case, func, arrays, [as_array(x) for x in outputs])
    assert not message
    wrong = [as_array(x) * 1.2 for x in outputs]
    *_, message = trial.judged(case, func, arrays, wrong)
    assert "not close" in message


class _Clock:
    """Takes ours for a second, and torch for half of one."""

    def __init__(self) -> None:
        self.calls = 0

    def seconds(self, run: Any, runs: int) -> list[float]:
        run()
        return [1.0 if "run(inputs)" in _source(run) else 0.5] * runs


def _source(run: Any) -> str:
    return "run(inputs)" if "run" in run.__code__.co_freevars else ""


@pytest.mark.parametrize("seed", [1, 12])
def test_a_trial_checks_both_sizes_and_times_them(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = draw(seed)
    monkeypatch.setattr(trial, "draw", lambda seed: replace(small, large=small.small))
    built = trial.build(seed, tmp_path, "auto")
    assert set(built.paths) == {"small", "large"}
    found = trial.tried(torch, built, _Clock(), "cpu")
    assert found.finding == "" and 0 < found.error <= found.allowed and found.ratio == 2.0


def test_a_trial_finds_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = trial.build(12, tmp_path, "auto")
    plain = trial.program
    monkeypatch.setattr(trial, "program", lambda case, extents: plain(_doubled(case), extents))
    found = trial.tried(torch, built, _Clock(), "cpu")
    assert found.finding.startswith("wrong") and found.ratio is None
    broken = trial.build(12, tmp_path, "no such target")
    assert not broken.paths
    assert "InputError" in trial.tried(torch, broken, _Clock(), "cpu").finding


def _doubled(case: ProductCase) -> ProductCase:
    """The case with a map left out: what was compiled halves its products."""
    changed = [replace(s, op="absolute") if s.op == "halved" else s for s in case.statements]
    return replace(case, statements=tuple(changed))


def test_the_summary_counts_findings_and_slow_ones() -> None:
    fine, left = Built(1, {"small": "", "large": ""}, "", "k"), Built(2, {}, "why", "s")
    found = [
        Found(fine, "linear", 1, seconds={"ours": 1.0, "eager": 2.0}),
        Found(left, "linear", 1, seconds={"ours": 6.0, "eager": 2.0}),
        Found(fine, "linear", 1, finding="wrong: x"),
    ]
    first, second = summary(found)
    assert "3 programs: 1 wrong or failed, 1 with products" in first
    assert "at most 3.00; 1 over 2" in second


def test_what_stays_on_cuda_cores_is_found() -> None:
    case = ProductCase(
        0, "linear",
        (
            Statement("input", (), ("i", "k"), half=True),
            Statement("input", (), ("k", "j"), half=True),
            Statement("product", (0, 1), ("i", "j"), "k"),
        ),
        {"i": 4, "j": 4, "k": 4}, {"i": 8, "j": 8, "k": 8}, "float16", (2,), "normal",
    )  # fmt: skip
    found = left_out(case, case.large, FunctionReport("main", "unchanged", "", "an S-TIR schedule: why"))
    assert found is not None and found.flops == 2 * 8**3 and "why" in found.reason and not found.allowed
    assert not left_out(case, case.large, FunctionReport("main", "unchanged", "", "the tensor-core kernel `x`"))
    assert not left_out(case, {**case.large, "i": 1}, FunctionReport("main", "unchanged", "", "an S-TIR schedule: why"))
    wide = replace(case, statements=(*(replace(s, half=False) for s in case.statements[:2]), case.statements[2]))
    assert not left_out(wide, wide.large, FunctionReport("main", "unchanged", "", "an S-TIR schedule: why"))


def on_cuda_cores(seed: int) -> str:
    """Why a case has products there; empty where it has none, or the reason is allowed."""
    case = draw(seed)
    (report,) = explain(program(case, case.large), HOPPER).functions
    left = left_out(case, case.large, report)
    return "" if left is None or left.allowed else left.reason


@pytest.mark.parametrize("seed", [1, 6, 7, 9, 10, 12, 14, 16, 17, 19, 26, 91])
def test_products_of_half_precision_are_on_tensor_cores(seed: int) -> None:
    assert not on_cuda_cores(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(first, first + 20) for first in SEEDS[::20]], ids=str)
def test_products_of_two_hundred_programs_are_on_tensor_cores(seeds: range) -> None:
    assert not {seed: reason for seed in seeds if (reason := on_cuda_cores(seed))}


EMULATED, EMULATED_TOO = (6, 8), (0, 2, 9, 11, 16, 17, 21, 22, 26, 31)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("seed", [*EMULATED, *(pytest.param(k, marks=pytest.mark.slow) for k in EMULATED_TOO)])
def test_plans_of_random_programs_are_right_in_the_emulator(seed: int) -> None:
    case = draw(seed)
    func, arrays = program(case, case.small), data(case, case.small, 0)
    plan = plan_of(func)
    assert any(skeletons(plan))
    *_, message = trial.judged(case, func, arrays, list(run(plan, arrays, emulated).values()))
    assert not message
