"""The specials contract of docs/accuracy.md: class by class, the fused result is what the unfused program gives.

The classes are finite, NaN, +inf and −inf. Where the contract does not hold, it is tested to fail as that page says.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from tvm import te, tirx
from tvm.ir import Expr

from tvm_cascade.evaluate import oracle
from tvm_cascade.evaluate.inputs import INPUTS
from tvm_cascade.evaluate.tolerance import kinds

from ..analysis.programs import (
    LENGTH,
    ROWS,
    array,
    each,
    fold,
    maximum,
    minimum,
    number,
    program,
    softmax_stages,
    variance,
)
from ..tiers import quick_but
from .programs import PROGRAMS
from .running import Array, Arrays, Unfused, read

TILINGS = [(5, 1), (5, 6)]
"""With six segments of tiles of five, the last two segments are empty."""


def _put(*places: tuple[slice, slice, float]) -> Callable[[np.random.Generator, tuple[int, ...]], Array]:
    """Normal numbers, with values at (rows, positions)."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        values = rng.standard_normal(shape).astype("float32")
        for rows, positions, value in places:
            values[rows, positions] = value
        return values

    return draw


FIRST, ALL, INF = slice(0, 1), slice(None), np.inf
DATA: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Array]] = {
    "a row of -inf": _put((FIRST, ALL, -INF)),
    "one -inf": _put((FIRST, slice(5, 6), -INF)),
    "-inf first": _put((ALL, slice(0, 18), -INF)),
    "-inf last": _put((ALL, slice(18, None), -INF)),
    "one +inf": _put((FIRST, slice(18, 19), INF)),
    "+inf at the start": _put((FIRST, slice(0, 1), INF)),
    "a row of +inf": _put((FIRST, ALL, INF)),
    "both infinities": _put((FIRST, slice(3, 4), INF), (FIRST, slice(20, 21), -INF)),
    "one NaN": _put((FIRST, slice(18, 19), np.nan)),
    "NaN at the start": _put((FIRST, slice(0, 1), np.nan)),
    "NaN at the end": _put((FIRST, slice(-1, None), np.nan)),
    "zeros": _put((ALL, ALL, 0.0)),
    "one row of zeros": _put((FIRST, ALL, 0.0)),
}


def softmax_at_a_temperature(scale: float) -> Callable[[], tirx.PrimFunc]:
    """x -> Σ exp((x − max x)·t), with t an input that holds `scale`."""

    def build() -> tirx.PrimFunc:
        x, t = array("x"), array("t", 1)
        m = fold("m", lambda i, j: x[i, j], maximum)
        return program(x, t, fold("out", lambda i, j: te.exp((x[i, j] - m[i]) * t[0])))

    build.given = {"t": np.float32([scale])}  # type: ignore[attr-defined]
    return build


def log_sum_exp() -> tirx.PrimFunc:
    """x -> log Σ exp x."""
    x = array("x")
    row_max, row_sum = softmax_stages(x)
    return program(x, each("out", lambda i: row_max[i] + te.log(row_sum[i]), ROWS))


def product_of_exponentials() -> tirx.PrimFunc:
    """x, w -> Σ exp(x − max x)·exp(w − max w)."""
    x, w = array("x"), array("w")
    m, n = fold("m", lambda i, j: x[i, j], maximum), fold("n", lambda i, j: w[i, j], maximum)
    return program(x, w, fold("out", lambda i, j: te.exp(x[i, j] - m[i]) * te.exp(w[i, j] - n[i])))


def powers_about_an_extremum(power: int, combine: Callable[..., Expr], of: str) -> Callable[[], tirx.PrimFunc]:
    """x, w -> Σ w·(x − m)^power, with m the extremum of x or w."""

    def build() -> tirx.PrimFunc:
        x, w = array("x"), array("w")
        m = fold("m", lambda i, j: (x if of == "x" else w)[i, j], combine)
        return program(x, w, fold("out", lambda i, j: w[i, j] * te.power(x[i, j] - m[i], number(power))))

    return build


def logarithms_of_ratios() -> tirx.PrimFunc:
    """x -> Σ log(|x|/max |x|)."""
    x = array("x")
    largest = fold("largest", lambda i, j: te.abs(x[i, j]), maximum)
    return program(x, fold("out", lambda i, j: te.log(te.abs(x[i, j]) / largest[i])))


def divided_by_the_largest() -> tirx.PrimFunc:
    """x, w -> Σ x/max|x| · w."""
    x, w = array("x"), array("w")
    largest = fold("largest", lambda i, j: te.abs(x[i, j]), maximum)
    return program(x, w, fold("out", lambda i, j: x[i, j] / largest[i] * w[i, j]))


def divided_by_a_sum(of: str) -> Callable[[], tirx.PrimFunc]:
    """x, w -> Σ x/Σ|x| or Σ w/Σ|x|."""

    def build() -> tirx.PrimFunc:
        x, w = array("x"), array("w")
        s = fold("s", lambda i, j: te.abs(x[i, j]))
        return program(x, w, fold("out", lambda i, j: (x if of == "x" else w)[i, j] / s[i]))

    return build


CASCADES: dict[str, Callable[[], tirx.PrimFunc]] = {
    "softmax · v": PROGRAMS["softmax_times_values"],
    "softmax in base two": PROGRAMS["softmax_in_base_two"],
    "softmax at scale two": PROGRAMS["softmax_at_scale_two"],
    "softmax of a minimum": PROGRAMS["softmax_of_minimum"],
    "softmax-weighted variance": PROGRAMS["softmax_weighted_variance"],
    "second moment of logits": PROGRAMS["second_moment_of_logits"],
    "Σ exp(x − max x)·exp(w − max w)": product_of_exponentials,
    "Σ exp(x − mean)": PROGRAMS["exponential_about_the_mean"],
    "root of a sum": PROGRAMS["root_of_a_sum"],
    "log-sum-exp": log_sum_exp,
    "variance": variance,
    "fourth power": PROGRAMS["fourth_power"],
    "Σ w·(x − min x)²": powers_about_an_extremum(2, minimum, "x"),
    "Σ w·(x − max x)³": powers_about_an_extremum(3, maximum, "x"),
    "Σ w·(x − max w)²": powers_about_an_extremum(2, maximum, "w"),
    "Σ w·(x − min w)³": powers_about_an_extremum(3, minimum, "w"),
    "Σ log(|x|/max |x|)": logarithms_of_ratios,
    "Σ x/max|x| · w": divided_by_the_largest,
    "Σ x/Σ|x|": divided_by_a_sum("x"),
    **{f"temperature {t}": softmax_at_a_temperature(t) for t in (0.0, 0.5, 3.0, -1.0)},
}


@cache
def unfused(name: str) -> Unfused:
    return read({**CASCADES, **EXCEPTIONS}[name]())


def given(name: str, kind: str) -> Arrays:
    """The kind of data in the first input, normal numbers in the others."""
    rng = np.random.default_rng(zlib.crc32(f"{name} {kind}".encode()))
    fixed = getattr({**CASCADES, **EXCEPTIONS}[name], "given", {})
    arrays = []
    for k, param in enumerate(oracle.signature(unfused(name).func).inputs):
        shape = tuple(int(extent) for extent in param.ty.shape)
        drawn = DATA[kind](rng, shape) if k == 0 else INPUTS["normal"](rng, shape, "float32")
        arrays.append(fixed.get(param.name, drawn))
    return arrays


OTHERS = {"temperature 0.5", "temperature 3.0", "softmax at scale two", "softmax in base two", "fourth power"}
"""Another temperature, scale, base and power."""


@pytest.mark.parametrize("name", quick_but(OTHERS, CASCADES))
def test_every_element_has_the_class_that_it_has_unfused(name: str) -> None:
    wrong = []
    for kind in DATA:
        arrays = given(name, kind)
        expected = unfused(name).results(arrays)
        for tile, segments in TILINGS:
            found = unfused(name).fused_results(arrays, tile=tile, segments=segments)
            if any((kinds(found[output]) != kinds(values)).any() for output, values in expected.items()):
                wrong.append((kind, tile, segments, found, expected))
    assert not wrong


def _after_a_sum(combine: Callable[..., object], element: Callable[..., object]) -> Callable[[], tirx.PrimFunc]:
    def build() -> tirx.PrimFunc:
        x = array("x")
        s = fold("s", lambda i, j: x[i, j])
        return program(x, fold("out", lambda i, j: element(x[i, j], s[i]), combine))

    return build


def softmax_statistics() -> tirx.PrimFunc:
    """x -> max x (as `out`) and Σ exp(x − max x)."""
    x = array("x")
    out = fold("out", lambda i, j: x[i, j], maximum)
    return program(x, out, fold("row_sum", lambda i, j: te.exp(x[i, j] - out[i])))


EXCEPTIONS: dict[str, Callable[[], tirx.PrimFunc]] = {
    "an infinite factor": divided_by_a_sum("w"),
    "an infinite multiple": _after_a_sum(te.sum, lambda x, s: x * s),
    "NaN under a maximum": softmax_statistics,
    "a difference of infinities under a maximum": _after_a_sum(
        maximum, lambda x, s: te.abs(x - s / number(LENGTH))
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kind", "usual", "fused"),
    [
        # ±inf of each element's own sign adds up to NaN; the whole sum times ∞ is ±inf.
        ("an infinite factor", "one row of zeros", (1,), (2, 3)),
        ("an infinite multiple", "one +inf", (1,), (2, 3)),
        # TVM's max keeps or drops a NaN by the order in which it meets it.
        ("NaN under a maximum", "NaN at the end", (0, 1), (0, 1)),
        ("a difference of infinities under a maximum", "-inf last", (1, 2), (1, 2)),
    ],
)
def test_where_the_contract_does_not_hold_it_fails_as_documented_without_guards(
    name: str, kind: str, usual: tuple[int, ...], fused: tuple[int, ...]
) -> None:
    arrays = given(name, kind)
    assert kinds(unfused(name).results(arrays)["out"])[0] in usual
    for tile, segments in TILINGS:
        found = kinds(unfused(name).fused_results(arrays, tile=tile, segments=segments, guards="off")["out"])
        assert found[0] in fused
        others = kinds(unfused(name).results(arrays)["out"])[1:]
        if kind not in ("-inf last",):  # there every row is special
            np.testing.assert_array_equal(found[1:], others)


@pytest.mark.parametrize(
    ("name", "kind"), [("an infinite factor", "one row of zeros"), ("an infinite multiple", "one +inf")]
)
def test_a_guard_gives_an_infinite_factor_the_class_that_it_has_unfused(name: str, kind: str) -> None:
    arrays = given(name, kind)
    expected = kinds(unfused(name).results(arrays)["out"])
    for tile, segments in TILINGS:
        found = kinds(unfused(name).fused_results(arrays, tile=tile, segments=segments)["out"])
        np.testing.assert_array_equal(found, expected)
