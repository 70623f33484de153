"""Guards of row kernels: a row that fails is folded again as the program has it, and all others stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product

import numpy as np
import pytest
from tvm import te, tirx

import tvm_cascade
from benchmarks.check.definition import Definition
from tvm_cascade.evaluate.oracle import evaluate
from tvm_cascade.evaluate.tolerance import assert_close, check, kinds
from tvm_cascade.tile.row import again

from ..analysis.programs import array, fold, number, program
from ..tiers import slow_but
from ..transform.running import Array, Arrays, build, numpy_dtype, run
from .emulator.run import compiler, emulate
from .row_programs import layer_norm
from .test_row_kernels import BLOCK, CLUSTER, GRID, MANY, SHARES, WARP, RowConfig, row_kernel

TARGET = {"kind": "cuda", "arch": "sm_90a"}
ROWS, LENGTH = 12, 80
PLAIN = [0, 8, 9, 10, 11]
KEPT = RowConfig(128, 128, 4, 1, kept=True)
PEELED = RowConfig(128, 128, 4, 1, peeled=True)
STAGED = RowConfig(128, 128, 4, 1, segments=2, clustered=True, staged=True)
LEVELS = {"warp": WARP, "block": BLOCK, "cluster": CLUSTER, "grid": GRID, "many": MANY}
WRITING = {"warp": WARP, "kept": KEPT, "kept by a cluster": SHARES}

emulated = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


def special(dtype: str = "float32", seed: int = 0, length: int = LENGTH) -> Array:
    """Normal rows, of which some are large or tiny, or hold infinities or NaN."""
    x = np.random.default_rng(seed).standard_normal((ROWS, length)).astype("float32")
    x[1] *= np.float32(1e30)
    x[2, 5], x[3, 70], x[4, 40] = np.inf, -np.inf, np.nan
    x[5, 3], x[5, 60] = np.inf, -np.inf
    x[6] *= np.float32(1e-25)
    x[7] = 0.0
    with np.errstate(over="ignore"):
        return x.astype(numpy_dtype(dtype))


def standardised() -> tirx.PrimFunc:
    """x -> Σ z⁴ with z = (x − mean)/deviation: Σ (x − mean)⁴ leaves the range where z⁴ is in it."""
    x = array("x", ROWS, LENGTH)
    s = fold("s", lambda i, j: x[i, j], te.sum, LENGTH, (ROWS,))
    mean = lambda i: s[i] / number(LENGTH)  # noqa: E731
    q = fold("q", lambda i, j: te.power(x[i, j] - mean(i), number(2)), te.sum, LENGTH, (ROWS,))
    fourth = lambda i, j: te.power((x[i, j] - mean(i)) / te.sqrt(q[i]), number(4))  # noqa: E731
    return program(x, fold("out", fourth, te.sum, LENGTH, (ROWS,)))


def by_a_sum() -> tirx.PrimFunc:
    """x, v -> Σ v/Σ x: the divisor may have any size."""
    x, v = array("x", ROWS, LENGTH), array("v", ROWS, LENGTH)
    s = fold("s", lambda i, j: x[i, j], te.sum, LENGTH, (ROWS,))
    return program(x, v, fold("out", lambda i, j: v[i, j] / s[i], te.sum, LENGTH, (ROWS,)))


def mean_by_shares() -> tirx.PrimFunc:
    """x, v -> Σ x/Σ|x|·v: a product x·v may leave the range, where no share of v does."""
    x, v = array("x", ROWS, LENGTH), array("v", ROWS, LENGTH)
    s = fold("s", lambda i, j: te.abs(x[i, j]), te.sum, LENGTH, (ROWS,))
    return program(x, v, fold("out", lambda i, j: x[i, j] / s[i] * v[i, j], te.sum, LENGTH, (ROWS,)))


def written_by_a_sum() -> tirx.PrimFunc:
    """x, v -> v/Σ x·(Σ v/Σ x), position by position."""
    x, v = array("x", ROWS, LENGTH), array("v", ROWS, LENGTH)
    s = fold("s", lambda i, j: x[i, j], te.sum, LENGTH, (ROWS,))
    t = fold("t", lambda i, j: v[i, j] / s[i], te.sum, LENGTH, (ROWS,))
    return program(x, v, te.compute((ROWS, LENGTH), lambda i, j: v[i, j] / s[i] * t[i], name="out"))


def product_by_a_sum() -> tirx.PrimFunc:
    """x, v -> Π v/Σ x: the power of the divisor leaves the range where no quotient does."""
    x, v = array("x", ROWS, LENGTH), array("v", ROWS, LENGTH)
    s = fold("s", lambda i, j: x[i, j], te.sum, LENGTH, (ROWS,))
    times = te.comm_reducer(lambda a, b: a * b, lambda dtype: tirx.const(1, dtype))
    return program(x, v, fold("out", lambda i, j: v[i, j] / s[i], times, LENGTH, (ROWS,)))


def largest_share() -> tirx.PrimFunc:
    """x -> max x/Σ x: a row of NaN has NaN."""
    x = array("x", ROWS, LENGTH)
    s = fold("s", lambda i, j: x[i, j], te.sum, LENGTH, (ROWS,))
    return program(x, fold("out", lambda i, j: x[i, j] / s[i], te.max, LENGTH, (ROWS,)))


CASES: dict[str, Callable[[], tirx.PrimFunc]] = {
    "standardised": standardised,
    "by a sum": by_a_sum,
    "largest share": largest_share,
    "written by a sum": written_by_a_sum,
    "layer norm": lambda: layer_norm("float32", ROWS, LENGTH),
}


def inputs_of(func: tirx.PrimFunc, written: int) -> Arrays:
    """Special rows in the first input, normal numbers in the others."""
    rng, found = np.random.default_rng(1), []
    for k, param in enumerate(func.params[: len(func.params) - written]):
        shape, dtype = [int(n) for n in param.ty.shape], str(param.ty.dtype)
        found.append(special(dtype) if k == 0 else rng.standard_normal(shape).astype(numpy_dtype(dtype)))
    return found


@cache
def unfused(name: str) -> tuple[tirx.PrimFunc, Arrays, list[Array]]:
    """A program with inputs, and what it gives as it was written."""
    func = CASES[name]()
    inputs = inputs_of(func, 2 if name == "layer norm" else 1)
    return func, inputs, list(run(build(func), func, inputs).values())


def assert_classes(func: tirx.PrimFunc, config: RowConfig | None, inputs: Arrays, expected: list[Array]) -> None:
    """The kernel is guarded; its classes are the program's; rows that pass are those of a kernel without guards."""
    kernel, off = row_kernel(func, config), row_kernel(func, config, guards="off")
    assert kernel.guarded and not off.guarded
    found, plain = (emulate(one.func, inputs) for one in (kernel, off))
    for own, without, wanted in zip(found, plain, expected, strict=True):
        np.testing.assert_array_equal(kinds(own), kinds(wanted))
        np.testing.assert_array_equal(own[PLAIN], without[PLAIN])


def assert_near(func: tirx.PrimFunc, inputs: Arrays, found: Array) -> None:
    """The only output is as near to the oracle's as tolerance.py asks."""
    exact, usual = evaluate(func, inputs), evaluate(func, inputs, rounding=True)
    outcome = check(found, exact["out"], usual["out"], length=LENGTH, dtype="float32")
    assert outcome.ok, outcome.message


@emulated
@pytest.mark.parametrize(
    ("name", "level"),
    slow_but(
        [
            *(("by a sum", level) for level in LEVELS),
            ("standardised", "block"),
            ("standardised", "cluster"),
            ("largest share", "warp"),
            ("largest share", "grid"),
        ],
        product(["standardised", "by a sum", "largest share"], LEVELS),
    ),
)
def test_every_row_has_the_class_that_it_has_unfused(name: str, level: str) -> None:
    func, inputs, expected = unfused(name)
    assert_classes(func, LEVELS[level], inputs, expected)


@emulated
@pytest.mark.parametrize(
    ("name", "config"),
    slow_but(
        [("written by a sum", "warp"), ("layer norm", "kept"), ("written by a sum", "kept by a cluster")],
        product(["written by a sum", "layer norm"], WRITING),
    ),
)
def test_what_is_written_reads_the_results_that_are_folded_again(name: str, config: str) -> None:
    func, inputs, expected = unfused(name)
    assert_classes(func, WRITING[config], inputs, expected)


@emulated
@pytest.mark.parametrize("level", slow_but(["warp", "cluster"], LEVELS))
def test_a_row_that_leaves_the_range_has_the_numbers_of_the_program(level: str) -> None:
    func, rng = mean_by_shares(), np.random.default_rng(3)
    x, v = (rng.standard_normal((ROWS, LENGTH)).astype("float32") for _ in range(2))
    x[1], v[1] = x[1] * np.float32(1e30), v[1] * np.float32(1e20)
    (on,), (off,) = (emulate(row_kernel(func, LEVELS[level], guards=g).func, [x, v]) for g in ("auto", "off"))
    assert_near(func, [x, v], on)
    np.testing.assert_array_equal(np.delete(on, 1), np.delete(off, 1))
    assert np.isfinite(on[1]) and not np.isfinite(off[1])


@emulated
@pytest.mark.parametrize(("config", "length"), [(PEELED, 83), (STAGED, 160)], ids=["peeled", "staged"])
def test_rows_that_are_peeled_or_staged_are_folded_again_from_memory(config: RowConfig, length: int) -> None:
    func = layer_norm("float32", ROWS, length)
    rng = np.random.default_rng(1)
    inputs = [special(length=length), *(rng.standard_normal(length).astype("float32") for _ in range(2))]
    assert_classes(func, config, inputs, list(run(build(func), func, inputs).values()))


@emulated
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_rows(dtype: str) -> None:
    func = layer_norm(dtype, ROWS, LENGTH)
    inputs = inputs_of(func, 2)
    assert_classes(func, None, inputs, list(evaluate(func, inputs, rounding=True).values()))


@emulated
def test_rows_known_at_launch_alone() -> None:
    _func, inputs, expected = unfused("layer norm")
    kernel = row_kernel(layer_norm("float32", te.var("n", "int64"), LENGTH))
    assert kernel.guarded == "centred"
    for own, wanted in zip(emulate(kernel.func, inputs), expected, strict=True):
        np.testing.assert_array_equal(kinds(own), kinds(wanted))


@emulated
def test_truth_values_are_decided_upon_by_the_results_that_they_read() -> None:
    func = Definition("sure", "top = max x; mass = sum exp(x - top); out = any exp(x - top)/mass > 0.1").build()
    x = np.zeros((5, 37), "float32")
    x[1], x[3, 4] = -np.inf, 10.0
    found = {guards: emulate(row_kernel(func, guards=guards).func, [x])[0] for guards in ("off", "auto", "always")}
    for guards in ("auto", "always"):
        np.testing.assert_array_equal(found[guards], [False, False, False, True, False])
    assert found["off"][1]


@pytest.fixture
def all_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row is folded again."""
    monkeypatch.setattr(again, "fails", lambda *_: tirx.const(True, "bool"))


@emulated
@pytest.mark.usefixtures("all_fail")
@pytest.mark.parametrize("level", slow_but([level for level in LEVELS if level != "many"], LEVELS))
def test_the_fallback_is_the_program(level: str) -> None:
    func = standardised()
    x = np.random.default_rng(3).standard_normal((ROWS, LENGTH)).astype("float32")
    (found,) = emulate(row_kernel(func, LEVELS[level], guards="always").func, [x])
    assert_near(func, [x], found)


@emulated
@pytest.mark.usefixtures("all_fail")
def test_products_are_folded_again_in_the_dtype_of_their_states() -> None:
    x, v = np.full((ROWS, LENGTH), 1 / LENGTH, "float32"), np.empty((ROWS, LENGTH), "float32")
    v[:, ::2], v[:, 1::2] = np.float32(1e7), np.float32(1e-7)
    func = product_by_a_sum()
    for config in (WARP, BLOCK):
        (found,) = emulate(row_kernel(func, config).func, [x, v])
        assert_near(func, [x, v], found)


@pytest.mark.parametrize(
    ("func", "guards", "told"),
    [
        (by_a_sum, "auto", "with guards of out"),
        (standardised, "auto", "with guards of q, out"),
        (CASES["layer norm"], "auto", "with guards of centred"),
        (by_a_sum, "off", ""),
    ],
    ids=["unbounded", "powers", "another class", "without guards"],
)
def test_what_is_guarded_is_a_row_kernel_and_explained(
    func: Callable[[], tirx.PrimFunc], guards: str, told: str
) -> None:
    (report,) = tvm_cascade.explain(func(), target=TARGET, guards=guards).functions
    assert report.lowering.startswith("the memory-bound kernel `row`")
    assert told in report.lowering and ("guards" in report.lowering) == bool(told)


@emulated
def test_a_long_product_of_quotients_has_the_digits_that_its_divisor_leaves() -> None:
    """Its state and the power of the divisor leave float32 on either side; the result is 1e-20."""
    text = "total = sum w; out = prod N*w/total -> out, total"
    kernel = row_kernel(Definition("shares", text, rows=2, length=3000).build(), RowConfig(128, 128, 4, 1))
    w = (1 + 0.3 * np.random.default_rng(0).uniform(-1, 1, (2, 3000))).astype("float32")
    out, total = emulate(kernel.func, [w])
    exact = np.prod(3000 * w.astype("float64") / total[:, None], axis=1)
    assert_close(out, exact, length=4, dtype="float32")  # 1e-6: no digits are lost by the length
