"""Policies by choice: references that move lazily or by powers of two, and float8 inside a cascade."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes  # registers float8 with NumPy
import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.ir import Expr

import tvm_cascade
from benchmarks.judge.power import rejects
from tvm_cascade.analysis.extract import Group, Reductions
from tvm_cascade.analysis.reading import read_program
from tvm_cascade.evaluate import oracle, tolerance
from tvm_cascade.evaluate.inputs import INPUTS
from tvm_cascade.tvm_faults.float8 import FLOAT8

from ..analysis.programs import LENGTH, ROWS, array, each, fold, maximum, number, program, softmax_stages, softmax_stats
from .running import Array, Arrays, Unfused, build

COLUMNS = 3


def softmax_times_values() -> tirx.PrimFunc:
    x, v = array("x"), array("v")
    row_max, row_sum = softmax_stages(x)
    return program(x, v, fold("out", lambda i, j: te.exp(x[i, j] - row_max[i]) / row_sum[i] * v[i, j]))


def divided_by_the_largest() -> tirx.PrimFunc:
    x, w = array("x"), array("w")
    largest = fold("largest", lambda i, j: te.abs(x[i, j]), maximum)
    return program(x, w, fold("out", lambda i, j: x[i, j] / largest[i] * w[i, j]))


def read(func: tirx.PrimFunc, **options: object) -> Unfused:
    program_ = read_program(func)
    groups = [c.group for c in Reductions(program_, **options).cascades() if c.group is not None]
    assert groups
    return Unfused(func, program_, groups, build(func))


def only_group(func: tirx.PrimFunc, **options: object) -> Group:
    return read(func, **options).groups[0]


def drawn(kind: str) -> Arrays:
    rng = np.random.default_rng(3)
    return [INPUTS[kind](rng, (ROWS, LENGTH), "float32"), INPUTS["normal"](rng, (ROWS, LENGTH), "float32")]


@pytest.mark.parametrize("kind", ["normal", "rising", "falling", "late_spike", "neg_inf_first_segment", "large_offset"])
def test_a_lazy_reference_gives_the_same_numbers(kind: str) -> None:
    lazy = read(softmax_times_values(), reference="lazy")
    for tile, segments in [(5, 1), (4, 3)]:
        lazy.check(drawn(kind), tile=tile, segments=segments)


def test_a_lazy_reference_moves_only_past_its_threshold() -> None:
    """The reference is no output; that it stays put is told by the last digits, which exp(0) would not touch."""
    func = softmax_stats()
    step = np.linspace(0.0, 7.0, LENGTH, dtype=np.float32)
    given = [np.broadcast_to(step, (ROWS, LENGTH)).copy()]
    group = only_group(func, reference="lazy")
    (reference,) = group.fold.references
    assert reference.move == "lazy" and reference.free
    assert group.fold.finish[group.fold.cascade.results[1]].has(reference.symbol)
    lazy, exact = read(func, reference="lazy"), read(func)
    script = lazy.fuse(tile=5).script()
    assert "T.float32(8.0)" in script and "T.float32(8.0)" not in exact.fuse(tile=5).script()
    lazy.check(given, tile=5)


@pytest.mark.parametrize("kind", ["normal", "tiny", "zeros", "late_spike", "rising"])
def test_a_scale_rounded_to_a_power_of_two_gives_the_same_numbers(kind: str) -> None:
    scaled = read(divided_by_the_largest(), reference="power_of_two")
    assert [r.move for r in scaled.groups[0].fold.references] == ["power_of_two"]
    for tile, segments in [(5, 1), (4, 3)]:
        scaled.check(drawn(kind), tile=tile, segments=segments)


def test_what_was_asked_for_is_told_and_an_unknown_move_is_refused() -> None:
    told = str(tvm_cascade.explain(divided_by_the_largest(), force=True, reference="power_of_two"))
    assert "PowerOfTwo" in told and "|x/c| ≤ 1" in told
    told = str(tvm_cascade.explain(softmax_stats(), force=True, reference="lazy"))
    assert "more than 8 away: exp(x − c) ≤ exp(8)" in told
    with pytest.raises(tvm_cascade.errors.OptionError, match="reference"):
        tvm_cascade.explain(softmax_stats(), reference="eager")


def quantised(dtype: str, power_of_two: bool = True, least: float | None = 1e-12) -> tirx.PrimFunc:
    """x, w -> Σ float8(x/scale)·w · scale, with a scale for each row from its largest |x|, or from `least`."""
    x, w = array("x"), array("w", LENGTH, COLUMNS)
    absmax = fold("absmax", lambda i, j: te.abs(x[i, j]), maximum)

    def scale(i: Expr) -> Expr:
        largest = absmax[i] if least is None else te.max(absmax[i], number(least))
        whole = largest / number(FLOAT8[dtype].largest)
        return tirx.exp2(te.ceil(tirx.log2(whole))) if power_of_two else whole

    product = fold(
        "product",
        lambda i, n, j: (x[i, j] / scale(i)).astype(dtype).astype("float32") * w[j, n],
        rows=(ROWS, COLUMNS),
    )
    return program(x, w, each("out", lambda i, n: product[i, n] * scale(i), ROWS, COLUMNS))


def test_a_power_of_two_of_a_bare_extremum_is_one_though_its_logarithm_may_be_infinite() -> None:
    explained = tvm_cascade.explain(quantised("float8_e4m3fn", least=None), force=True)
    (group,) = (group for group in explained.groups if "product" in group.buffers)
    assert group.reason.code == "fold" and any("WholePower(ceiling" in quantity for quantity in group.references)


def _zero_rows(values: Array) -> Array:
    values[1] = 0
    return values


def _zeros_first(values: Array) -> Array:
    values[:, :20] = 0
    return values


def _exact_powers(values: Array) -> Array:
    values[:, 5] = 896.0
    return values


DATA: dict[str, Callable[[Array], Array]] = {
    "normal": lambda values: values,
    "rows of zeros": _zero_rows,
    "first tiles of zeros": _zeros_first,
    "all zeros": np.zeros_like,
    "large": lambda values: values * np.float32(1e6),
    "scale on the boundary": _exact_powers,
    "growing": lambda values: values * np.linspace(1, 64, LENGTH, dtype=np.float32),
}


@pytest.mark.parametrize("dtype", FLOAT8)
def test_float8_at_a_power_of_two_scale_needs_no_leave_and_rounds_as_the_program_does(dtype: str) -> None:
    func = quantised(dtype)
    compiled = tvm_cascade.compile(func, force=True, tile=5)
    assert compiled.report.fused
    for name, change in DATA.items():
        rng = np.random.default_rng(7)
        x = change(rng.standard_normal((ROWS, LENGTH)).astype(np.float32))
        w = rng.standard_normal((LENGTH, COLUMNS)).astype(np.float32)
        found = tvm.runtime.tensor(np.full((ROWS, COLUMNS), np.nan, np.float32))
        compiled(x, w, found)
        rounded = oracle.evaluate(func, [x, w], rounding=True)["out"]
        judged = tolerance.check(found.numpy(), rounded, length=LENGTH, dtype="float32")
        assert judged.ok, f"{name}: {judged.message}"


@pytest.mark.parametrize("dtype", FLOAT8)
def test_float8_at_any_other_scale_is_refused_unless_it_is_listed(dtype: str) -> None:
    func = quantised(dtype, power_of_two=False)
    (refused,) = tvm_cascade.explain(func, force=True).groups
    assert refused.reason.code == "rounding" and refused.reason.counterexample is not None
    compiled = tvm_cascade.compile(func, force=True, tile=5, rescalable_casts=(dtype,))
    assert compiled.report.fused
    rng = np.random.default_rng(7)
    x = _zeros_first(rng.standard_normal((ROWS, LENGTH)).astype(np.float32))
    x[1] = 0
    w = rng.standard_normal((LENGTH, COLUMNS)).astype(np.float32)
    found = tvm.runtime.tensor(np.full((ROWS, COLUMNS), np.nan, np.float32))
    compiled(x, w, found)
    exact = oracle.evaluate(func, [x, w])["out"]
    rounded = oracle.evaluate(func, [x, w], rounding=True)["out"]
    tolerance.assert_close(found.numpy(), exact, rounded, length=LENGTH, dtype="float32")
    assert rejects(exact, LENGTH, "float32", baseline=rounded) == []


@pytest.mark.parametrize("dtype", FLOAT8)
def test_casts_to_float8_round_on_the_cpu(dtype: str) -> None:
    rng = np.random.default_rng(0)
    size = np.exp2(rng.integers(-20, 20, 500)) * rng.choice([-1, 1], 500)
    values = np.concatenate(
        [size * rng.uniform(1, 2, 500), [0, 448, 449, 464, 465, 480, -1e9, np.inf, -np.inf, np.nan]]
    )
    values = values.astype(np.float32)
    x = te.placeholder(values.shape, "float32", name="x")
    func = program(x, te.compute(values.shape, lambda i: x[i].astype(dtype).astype("float32"), name="y"))
    found = tvm.runtime.tensor(np.zeros(values.shape, np.float32))
    tvm_cascade.compile(func)(values, found)
    kind = np.dtype(getattr(ml_dtypes, dtype))
    np.testing.assert_array_equal(found.numpy(), values.astype(kind).astype(np.float32))
