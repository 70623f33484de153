"""Guards of row and column kernels that select: a top-k, or an argmax, beside results that a row may spoil."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product

import numpy as np
import pytest
from tvm import te, tirx

import tvm_cascade
from tvm_cascade.evaluate.oracle import evaluate
from tvm_cascade.evaluate.tolerance import kinds
from tvm_cascade.te.selection import ranked
from tvm_cascade.tile.row import again
from tvm_cascade.tile.row.config import RowConfig

from ..analysis.programs import array, each, fold, program
from ..tiers import slow_but
from ..transform.running import Array, Arrays, build, numpy_dtype, run
from .emulator.run import compiler, emulate
from .test_columns import FEW_LANES, ONE, transposed
from .test_row_guards import LENGTH, LEVELS, PLAIN, ROWS, TARGET, assert_near, special
from .test_row_kernels import BLOCK, WARP, row_kernel

emulated = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


def shares(dtype: str = "float32", ranks: int = 2) -> tirx.PrimFunc:
    """x, v -> Σ v/Σ exp x, and the positions of the largest v/Σ exp x with these."""
    x, v = array("x", ROWS, LENGTH, dtype=dtype), array("v", ROWS, LENGTH, dtype=dtype)
    s = fold("s", lambda i, j: te.exp(x[i, j]), te.sum, LENGTH, (ROWS,))
    keys = each("keys", lambda i, j: v[i, j] / s[i], ROWS, LENGTH)
    best = ranked(keys, ranks, 1, True, "best")
    return program(x, v, fold("out", lambda i, j: v[i, j] / s[i], te.sum, LENGTH, (ROWS,)), *best)


def beside_an_argmax() -> tirx.PrimFunc:
    """x, v -> Σ x/Σ|x|·v, and the largest x with its position, which reads no result."""
    x, v = array("x", ROWS, LENGTH), array("v", ROWS, LENGTH)
    s = fold("s", lambda i, j: te.abs(x[i, j]), te.sum, LENGTH, (ROWS,))
    out = fold("out", lambda i, j: x[i, j] / s[i] * v[i, j], te.sum, LENGTH, (ROWS,))
    return program(x, v, out, *ranked(x, 1, 1, True, "best"))


def of_integers() -> tirx.PrimFunc:
    """x -> max x, an integer, and Σ (x − max x)², a number."""
    x = array("x", ROWS, LENGTH, dtype="int8")
    m = fold("m", lambda i, j: x[i, j], te.max, LENGTH, (ROWS,))
    far = lambda i, j: x[i, j].astype("float32") - m[i].astype("float32")  # noqa: E731
    return program(x, m, fold("out", lambda i, j: far(i, j) * far(i, j), te.sum, LENGTH, (ROWS,)))


CASES: dict[str, Callable[[], tirx.PrimFunc]] = {"shares": shares, "an argmax": lambda: shares(ranks=1)}


def data(dtype: str = "float32") -> Arrays:
    return [special(dtype), np.random.default_rng(4).standard_normal((ROWS, LENGTH)).astype(numpy_dtype(dtype))]


@cache
def unfused(name: str) -> tuple[tirx.PrimFunc, list[Array]]:
    func = CASES[name]()
    return func, list(run(build(func), func, data()).values())


def assert_as_unfused(found: list[Array], without: list[Array], wanted: list[Array]) -> None:
    """Positions and classes are the program's; rows that pass are those of a kernel without guards."""
    for own, off, expected in zip(found, without, wanted, strict=True):
        np.testing.assert_array_equal(kinds(own), kinds(expected))
        if own.dtype.kind == "i":
            np.testing.assert_array_equal(own, expected)
        np.testing.assert_array_equal(own[PLAIN], off[PLAIN])


@emulated
@pytest.mark.parametrize(
    ("name", "level"),
    # More segments than lanes are merged in guarded rows without a selection, too.
    slow_but(
        [("an argmax", "warp"), ("shares", "block"), ("shares", "cluster"), ("an argmax", "grid")],
        product(CASES, LEVELS),
    ),
)
def test_selections_of_rows_that_fail_are_the_programs(name: str, level: str) -> None:
    func, wanted = unfused(name)
    on, off = (row_kernel(func, LEVELS[level], guards=guards) for guards in ("auto", "off"))
    assert on.skeleton.name == "row" and on.guarded.startswith("out, best") and not off.guarded
    found, without = (emulate(kernel.func, data()) for kernel in (on, off))
    assert_as_unfused(found, without, wanted)
    assert any(
        (kinds(a) != kinds(b)).any() or (a.dtype.kind == "i" and (a != b).any())
        for a, b in zip(without, wanted, strict=True)
    )


@emulated
@pytest.mark.parametrize("config", [ONE, FEW_LANES], ids=["one", "few lanes"])
def test_selections_of_columns_that_fail_are_the_programs(config: RowConfig) -> None:
    func, wanted = unfused("shares")
    inputs = [np.ascontiguousarray(array.T) for array in data()]
    on, off = (row_kernel(transposed(func), config, guards=guards) for guards in ("auto", "off"))
    assert on.config.strided and on.guarded
    assert_as_unfused(*(emulate(kernel.func, inputs) for kernel in (on, off)), wanted)


@emulated
@pytest.mark.parametrize("config", slow_but([BLOCK], [WARP, BLOCK]), ids=["warp", "block"])
def test_a_sum_beside_an_argmax_that_is_in_no_doubt(config: RowConfig) -> None:
    func = beside_an_argmax()
    x, v = (np.random.default_rng(k).standard_normal((ROWS, LENGTH)).astype("float32") for k in range(2))
    x[1], v[1] = x[1] * np.float32(1e30), v[1] * np.float32(1e20)
    on, off = (row_kernel(func, config, guards=guards) for guards in ("auto", "off"))
    assert on.guarded == "out"
    wanted = list(run(build(func), func, [x, v]).values())
    found, without = (emulate(kernel.func, [x, v]) for kernel in (on, off))
    assert_near(func, [x, v], found[0])
    for own, expected in zip(found[1:], wanted[1:], strict=True):
        np.testing.assert_array_equal(own, expected)
    assert np.isfinite(found[0][1]) and not np.isfinite(without[0][1])


@emulated
def test_bfloat16_results_have_guards() -> None:
    x, v = array("x", ROWS, LENGTH, dtype="bfloat16"), array("v", ROWS, LENGTH, dtype="bfloat16")
    s = fold("s", lambda i, j: te.abs(x[i, j]), te.sum, LENGTH, (ROWS,))
    func = program(x, v, fold("out", lambda i, j: v[i, j] / s[i], te.sum, LENGTH, (ROWS,)))
    kernel = row_kernel(func)
    assert kernel.guarded == "out"
    (found,) = emulate(kernel.func, data("bfloat16"))
    wanted = evaluate(func, data("bfloat16"), rounding=True)["out"]
    np.testing.assert_array_equal(kinds(found), kinds(wanted))


@emulated
def test_integers_are_folded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(again, "fails", lambda *_: tirx.const(True, "bool"))
    x = np.random.default_rng(5).integers(-9, 5, (ROWS, LENGTH), "int8")
    kernel = row_kernel(of_integers(), WARP, guards="always")
    assert kernel.guarded == "m, out"
    most, out = emulate(kernel.func, [x])
    np.testing.assert_array_equal(most, x.max(axis=1))
    np.testing.assert_array_equal(out, ((x - most[:, None]).astype("int64") ** 2).sum(axis=1))


def test_what_selects_is_a_guarded_row_kernel_and_explained() -> None:
    (report,) = tvm_cascade.explain(shares(), target=TARGET, force=True).functions
    assert report.lowering.startswith("the memory-bound kernel `row`")
    assert "with guards of out, best.v0, best.v1, best.v2, best.v3" in report.lowering


def by_a_fixed_part() -> tirx.PrimFunc:
    """x, v -> Σ v/Σ x[:, :, 1]: of the sums, a fixed part is read apart."""
    x, v = array("x", ROWS, LENGTH, 2), array("v", ROWS, LENGTH)
    s = fold("s", lambda i, c, j: x[i, j, c], te.sum, LENGTH, (ROWS, 2))
    return program(x, v, fold("out", lambda i, j: v[i, j] / s[i, 1], te.sum, LENGTH, (ROWS,)))


def test_what_is_in_doubt_and_has_no_fallback_is_no_kernel() -> None:
    told = {
        guards: tvm_cascade.explain(by_a_fixed_part(), target=TARGET, force=True, guards=guards)
        for guards in ("auto", "off")
    }
    (reason,) = (group.reason for group in told["auto"].groups)
    assert reason.code == "unguarded" and not told["auto"].fused
    law = "no result can be reduced again where a fixed part of one is read by itself"
    assert reason.detail.startswith(f"{law}: out: 1/s_1 ")
    assert told["off"].fused and "kernel `" not in told["auto"].functions[0].lowering
