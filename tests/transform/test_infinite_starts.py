"""Maxima that a program starts at −inf, and minima at +inf: every result has the class that it has unfused."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.ir import Expr
from tvm.script import tirx as T

import tvm_cascade
from tvm_cascade.evaluate.tolerance import assert_close, kinds

from ..analysis.infinite import from_infinity
from ..analysis.programs import ROWS, Attention, array, fold, maximum, number, program, softmax_stats
from ..tiers import slow_but
from .running import Array, Arrays, Unfused, after, build, numpy_dtype, read
from .test_specials import CASCADES, DATA, TILINGS, given

INF = float("inf")
Element = Callable[[Expr, Expr, Expr], Expr]


@cache
def starting_at_infinity(name: str) -> Unfused:
    return read(from_infinity(ALL[name]()))


def starts(build: Callable[[], tirx.PrimFunc]) -> bool:
    return "inf" in from_infinity(build()).script()


ALL = {name: build for name, build in CASCADES.items() if starts(build)}


TWICE = {
    "softmax in base two", "softmax at scale two", "softmax · v", "Σ w·(x − max x)³", "Σ w·(x − min x)²",
}  # fmt: skip
"""Another scale of an exponent, another extremum or degree of a power than of a program beside it."""


@pytest.mark.parametrize("name", slow_but(ALL.keys() - TWICE, ALL))
def test_every_element_has_the_class_that_it_has_unfused(name: str) -> None:
    for kind in DATA:
        arrays = given(name, kind)
        for tile, segments in TILINGS:
            assert_same_classes(starting_at_infinity(name), arrays, f"{kind}, {segments}", tile=tile, segments=segments)


def assert_same_classes(unfused: Unfused, arrays: Arrays, about: str, **options: object) -> None:
    expected, found = unfused.results(arrays), unfused.fused_results(arrays, **options)
    for output, values in expected.items():
        np.testing.assert_array_equal(kinds(found[output]), kinds(values), f"{output}: {about}")
        finite = np.where(np.isfinite(values), values, 0).astype("float64")
        got = np.where(np.isfinite(values), found[output], 0).astype("float64")
        assert_close(got, finite, length=unfused.length, dtype=str(values.dtype))


def test_a_row_of_minus_infinity_is_what_it_is_unfused() -> None:
    x = DATA["a row of -inf"](np.random.default_rng(0), (ROWS, 37))
    found = read(from_infinity(softmax_stats())).fused_results([x], tile=5)
    assert found["row_max"][0] == -INF and np.isnan(found["row_sum"][0])
    assert np.isfinite(found["row_sum"][1:]).all()


@pytest.mark.parametrize(
    "options", [{"lanes": 8, "tile": 16}, {"segments": 4, "tile": 8}, {"reference": "lazy"}], ids=str
)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_lanes_segments_and_dtypes(dtype: str, options: dict[str, object]) -> None:
    unfused = read(from_infinity(softmax_stats(dtype=dtype)))
    for kind in ("a row of -inf", "-inf first", "-inf last", "one +inf"):
        x = DATA[kind](np.random.default_rng(0), (ROWS, 37)).astype(numpy_dtype(dtype))
        expected, found = unfused.results([x])["row_sum"], unfused.fused_results([x], **options)["row_sum"]
        np.testing.assert_array_equal(kinds(found.astype("float32")), kinds(expected.astype("float32")), kind)


def masked(of_max: bool, element: str) -> tirx.PrimFunc:
    """x, keep -> m = max x and Σ exp(x − m), with the mask on either or both."""
    x, keep = array("x"), array("keep", dtype="bool")

    def value(i: Expr, j: Expr) -> Expr:
        return tirx.if_then_else(keep[i, j], x[i, j], number(-INF))

    m = fold("m", value if of_max else lambda i, j: x[i, j], maximum)
    elements: dict[str, Callable[[Expr, Expr], Expr]] = {
        "the value": lambda i, j: te.exp(value(i, j) - m[i]),
        "the exponent": lambda i, j: te.exp(tirx.if_then_else(keep[i, j], x[i, j] - m[i], number(-INF))),
        "the exponential": lambda i, j: tirx.if_then_else(keep[i, j], te.exp(x[i, j] - m[i]), number(0)),
        "either of two": lambda i, j: tirx.if_then_else(keep[i, j], te.exp(x[i, j] - m[i]), x[i, j]),
        "another exponential": lambda i, j: tirx.if_then_else(keep[i, j], te.exp(te.sin(x[i, j]) - m[i]), number(0)),
        "a square": lambda i, j: tirx.if_then_else(keep[i, j], te.power(te.sin(x[i, j]) - m[i], number(2)), number(0)),
    }
    return program(x, keep, m, fold("out", elements[element]))


KEPT: dict[str, tuple[slice, slice] | None] = {
    "all": None,
    "none of two rows": (slice(0, 2), slice(None)),
    "none of the first tiles": (slice(None), slice(0, 11)),
    "none of the last tiles": (slice(None), slice(15, None)),
}


@pytest.mark.parametrize("of_max", slow_but([True], [True, False]), ids=["masked max", "max of all"])
@pytest.mark.parametrize(
    "element", ["the value", "the exponent", "the exponential", "either of two", "another exponential", "a square"]
)
def test_masks(of_max: bool, element: str) -> None:
    unfused = read(from_infinity(masked(of_max, element)))
    for kind in ("zeros", "a row of -inf", "one -inf", "-inf first", "-inf last"):
        for out in KEPT.values():
            keep = np.ones((ROWS, 37), bool)
            if out is not None:
                keep[out] = False
            x = DATA[kind](np.random.default_rng(0), (ROWS, 37))
            for tile, segments in TILINGS:
                assert_same_classes(unfused, [x, keep], f"{kind}, {out}", tile=tile, segments=segments)


BESIDE: dict[str, Element] = {
    "exp(w - m)": lambda x, w, m: te.exp(w - m),
    "exp(x + w - m)": lambda x, w, m: te.exp(x + w - m),
    "exp(x - 2m)": lambda x, w, m: te.exp(x - m * number(2)),
    "w·exp(x - m)": lambda x, w, m: w * te.exp(x - m),
    "(w - m)²": lambda x, w, m: (w - m) * (w - m),
    "w - m": lambda x, w, m: w - m,
    "x/m": lambda x, w, m: x / m,
    "w/m": lambda x, w, m: w / m,
    "where x = m": lambda x, w, m: tirx.Select(x >= m, w, number(0)),
    "where x < m": lambda x, w, m: tirx.Select(x < m, te.exp(x), number(0)),
    "where x = m, and exp(x - m)": lambda x, w, m: tirx.Select(x >= m, number(1), number(0)) + te.exp(x - m),
}


OF_EXTREMA: dict[str, Element] = {
    **{name: BESIDE[name] for name in ("exp(w - m)", "w - m", "w/m", "where x = m", "where x < m")},
    "where x = m alone": lambda x, w, m: tirx.Select(x >= m, w, number(-INF)),
}
"""Of elements that are no NaN, of which a maximum keeps what it meets last."""

CASES = [(te.sum, f"Σ {name}", BESIDE[name]) for name in BESIDE]
CASES += [(maximum, f"max {name}", OF_EXTREMA[name]) for name in OF_EXTREMA]


@pytest.mark.parametrize(("combine", "element"), [pytest.param(c, e, id=n) for c, n, e in CASES])
def test_elements_of_other_inputs_and_comparisons(combine: Callable[..., Expr], element: Element) -> None:
    x, w = array("x"), array("w")
    m = fold("m", lambda i, j: x[i, j], maximum)
    out = fold("out", lambda i, j: element(x[i, j], w[i, j], m[i]), combine)
    unfused, rng = read(from_infinity(program(x, w, m, out))), np.random.default_rng(0)
    for kind in ("a row of -inf", "one -inf", "-inf first", "-inf last"):
        arrays = [DATA[kind](rng, (ROWS, 37)), rng.standard_normal((ROWS, 37)).astype("float32")]
        for tile, segments in TILINGS:
            assert_same_classes(unfused, arrays, kind, tile=tile, segments=segments)


@pytest.mark.parametrize("infinite", slow_but(["m", "both"], ["m", "n", "both"]))
def test_maxima_of_the_same_with_either_start(infinite: str) -> None:
    x = array("x")
    m, n = (fold(name, lambda i, j: x[i, j], maximum) for name in ("m", "n"))
    sums = [fold(f"sum_{of.op.name}", lambda i, j, of=of: te.exp(x[i, j] - of[i])) for of in (m, n)]
    both = fold("both", lambda i, j: te.exp(x[i, j] + x[i, j] - m[i] - n[i]))
    unfused = read(from_infinity(program(x, m, n, *sums, both), *("mn" if infinite == "both" else infinite)))
    for kind in ("a row of -inf", "one -inf", "-inf first", "-inf last"):
        rows = DATA[kind](np.random.default_rng(0), (ROWS, 37))
        for tile, segments in TILINGS:
            assert_same_classes(unfused, [rows], kind, tile=tile, segments=segments)


@pytest.mark.parametrize("options", [{"tile": 5}, {"tile": 5, "segments": 3}, {"tile": 16, "lanes": 8}], ids=str)
def test_attention(options: dict[str, object]) -> None:
    """One query meets −inf at every key, another at the first tiles alone."""
    case = Attention()
    unfused, rng = read(from_infinity(case.program(case.row_max, case.out()))), np.random.default_rng(0)
    q, k, v = (rng.standard_normal([int(n) for n in t.shape]).astype("float32") for t in (case.q, case.k, case.v))
    q[..., 0] = 1
    k[
        0,
        :,
        :,
    ][:, 0] = -INF
    k[1, :11, 0] = -INF
    assert_same_classes(unfused, [q, k, v], str(options), **options)


@T.prim_func(s_tir=True)
def branching(x: T.Buffer((4, 37), "float32"), m: T.Buffer((4,), "float32"), s: T.Buffer((4,), "float32")) -> None:
    for i, j in T.grid(4, 37):
        with T.sblock("m"):
            v_i, v_j = T.axis.remap("SR", [i, j])
            with T.init():
                m[v_i] = T.float32("-inf")
            if v_j >= v_i * 12:
                m[v_i] = T.max(m[v_i], x[v_i, v_j])
    for i, j in T.grid(4, 37):
        with T.sblock("s"):
            v_i, v_j = T.axis.remap("SR", [i, j])
            with T.init():
                s[v_i] = T.float32(0)
            if v_j >= v_i * 12:
                s[v_i] = s[v_i] + T.exp(x[v_i, v_j] - m[v_i])


def test_updates_under_a_condition_leave_the_start() -> None:
    """The last row takes one position, and that one is −inf."""
    x = DATA["-inf last"](np.random.default_rng(0), (4, 37))
    compiled = tvm_cascade.compile(branching, force=True)
    assert compiled.report.fused
    found, expected = (after(f, [x, *np.zeros((2, 4), "float32")]) for f in (compiled, build(branching)["main"]))
    assert expected[1][3] == -INF and np.isnan(expected[2][3])
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(kinds(one), kinds(other))


@T.prim_func(s_tir=True)
def from_data(
    x: T.Buffer((4, 37), "float32"),
    b: T.Buffer((4,), "float32"),
    m: T.Buffer((4,), "float32"),
    s: T.Buffer((4,), "float32"),
) -> None:
    for i, j in T.grid(4, 37):
        with T.sblock("m"):
            v_i, v_j = T.axis.remap("SR", [i, j])
            with T.init():
                m[v_i] = b[v_i]
            m[v_i] = T.max(m[v_i], x[v_i, v_j])
    for i, j in T.grid(4, 37):
        with T.sblock("s"):
            v_i, v_j = T.axis.remap("SR", [i, j])
            with T.init():
                s[v_i] = T.float32(0)
            s[v_i] = s[v_i] + T.exp(x[v_i, v_j] - m[v_i])


@pytest.mark.parametrize("options", [{"tile": 5}, {"tile": 5, "segments": 3}], ids=str)
def test_a_start_from_data_may_be_infinite(options: dict[str, int]) -> None:
    """Rows of −inf from −inf and from 1, and rows with numbers from −inf and from 0.5."""
    x = DATA["-inf first"](np.random.default_rng(0), (4, 37))
    x[:2] = -INF
    given = [x, np.float32([-INF, 1, -INF, 0.5]), *np.zeros((2, 4), "float32")]
    compiled = tvm_cascade.compile(from_data, force=True, **options)
    assert compiled.report.fused
    found, expected = (after(f, given) for f in (compiled, build(from_data)["main"]))
    assert expected[2][0] == -INF and np.isnan(expected[3][0]) and np.isfinite(expected[3][1:]).all()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(kinds(one), kinds(other))


def test_maxima_of_their_own_reducer() -> None:
    largest = te.comm_reducer(lambda a, b: te.max(a, b), lambda dtype: tirx.const(-INF, dtype), name="largest")
    x = array("x")
    m = fold("m", lambda i, j: x[i, j], lambda *args, **given: largest(*args, **given))
    unfused = read(program(x, m, fold("out", lambda i, j: te.exp(x[i, j] - m[i]))))
    for kind in ("a row of -inf", "-inf first"):
        seed = zlib.crc32(kind.encode())
        assert_same_classes(unfused, [DATA[kind](np.random.default_rng(seed), (ROWS, 37))], kind, tile=5)


def test_extrema_at_the_dtype_s_own_numbers_keep_their_program() -> None:
    """Nothing of it is in a program that starts at the lowest number."""
    assert '"-inf"' not in read(softmax_stats()).fuse().script()
    assert '"-inf"' in read(from_infinity(softmax_stats())).fuse().script()


def test_a_maximum_alone_is_scheduled() -> None:
    """TVM factors lanes out of maxima that start at the lowest number alone."""
    x = array("x", 8, 512)
    func = from_infinity(program(x, fold("m", lambda i, j: x[i, j], maximum, 512, (8,))))
    values: Array = np.random.default_rng(0).standard_normal((8, 512)).astype("float32")
    values[0] = -INF
    found = tvm.runtime.tensor(np.zeros(8, "float32"))
    tvm_cascade.compile(func)(tvm.runtime.tensor(values), found)
    np.testing.assert_array_equal(found.numpy(), values.max(1))
