"""Fallbacks: of results with columns, of inner reductions as elements, of narrow dtypes, and of tuples."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from tvm import te, tirx

from benchmarks.check.catalogue import CATALOGUE
from benchmarks.check.definition import Definition
from corpus import workloads
from tvm_cascade import compile, compile_unfused
from tvm_cascade.driver.compiled import Compiled
from tvm_cascade.evaluate import oracle, tolerance
from tvm_cascade.evaluate.tolerance import kinds
from tvm_cascade.transform.nest import GUARD

from .running import Arrays, Unfused, numpy_dtype, poison, read
from .test_guards import roles

ROWS, LENGTH, COLUMNS, INNER = 3, 11, 4, 5
TILINGS = [(4, 1), (3, 2)]
SPECIAL = {"+inf": np.inf, "-inf": -np.inf, "NaN": np.nan, "1e30": 1e30, "zero": 0.0}
PLACES = {"in a place": (0, 3), "first": (0, 0), "in a row": (0, slice(None)), "last": (0, -1)}


def columns_over_a_sum(stored: str = "float32") -> tirx.PrimFunc:
    """x, v -> Σ x·v[·, c]/Σ x: the divisor may have any size."""
    x, v = (te.placeholder(s, stored, name=n) for n, s in {"x": (ROWS, LENGTH), "v": (LENGTH, COLUMNS)}.items())
    j, k = te.reduce_axis((0, LENGTH), "j"), te.reduce_axis((0, LENGTH), "k")
    s = te.compute((ROWS,), lambda i: te.sum(x[i, j], axis=j), name="s")
    out = te.compute((ROWS, COLUMNS), lambda i, c: te.sum(x[i, k] * v[k, c] / s[i], axis=k), name="out")
    return te.create_prim_func([x, v, out])


def norm_before_a_product() -> tirx.PrimFunc:
    """x, v -> Σ x/√(Σ x²) · v[·, c]: x·v is summed before it is divided, and leaves the range where x/√… does not."""
    x, v = (te.placeholder(s, name=n) for n, s in {"x": (ROWS, LENGTH), "v": (LENGTH, COLUMNS)}.items())
    j, k = te.reduce_axis((0, LENGTH), "j"), te.reduce_axis((0, LENGTH), "k")
    q = te.compute((ROWS,), lambda i: te.sum(x[i, j] * x[i, j], axis=j), name="q")
    out = te.compute((ROWS, COLUMNS), lambda i, c: te.sum(x[i, k] / te.sqrt(q[i]) * v[k, c], axis=k), name="out")
    return te.create_prim_func([x, v, out])


def geometric_mean() -> tirx.PrimFunc:
    """u, w -> Σ u/Σ u · log w: NaN where all u are zero, where Σ u·log w times ∞ may be infinite."""
    return CATALOGUE["weighted geometric mean"].build()


def scores_over_their_sum(stored: str = "float32") -> tirx.PrimFunc:
    """q, k, v -> Σ (q·k)·v[·, c]/Σ q·k: attention without exponentials."""
    shapes = {"q": (ROWS, INNER), "k": (LENGTH, INNER), "v": (LENGTH, COLUMNS)}
    q, k, v = (te.placeholder(shape, stored, name=name) for name, shape in shapes.items())
    d, j, m = (te.reduce_axis((0, n), name) for name, n in {"d": INNER, "j": LENGTH, "m": LENGTH}.items())
    p = te.compute((ROWS, LENGTH), lambda i, j: te.sum(q[i, d] * k[j, d], axis=d), name="p")
    s = te.compute((ROWS,), lambda i: te.sum(p[i, j], axis=j), name="s")
    out = te.compute((ROWS, COLUMNS), lambda i, c: te.sum(p[i, m] * v[m, c] / s[i], axis=m), name="out")
    return te.create_prim_func([q, k, v, out])


PROGRAMS: dict[str, Callable[[], tirx.PrimFunc]] = {
    "columns": columns_over_a_sum,
    "columns in half": lambda: columns_over_a_sum("float16"),
    "a norm before a product": norm_before_a_product,
    "a geometric mean": geometric_mean,
    "scores": scores_over_their_sum,
}
NARROW: dict[str, Callable[[], tirx.PrimFunc]] = {
    "columns in bfloat16": lambda: columns_over_a_sum("bfloat16"),
    "scores in bfloat16": lambda: scores_over_their_sum("bfloat16"),
}
"""In dtypes that TVM's own lowering does not keep in temporaries: `compile` does."""


@cache
def subject(name: str) -> Unfused:
    return read(PROGRAMS[name]())


def drawn(func: tirx.PrimFunc) -> Arrays:
    rng = np.random.default_rng(0)
    params = oracle.signature(func).inputs
    return [
        rng.standard_normal([int(n) for n in p.ty.shape]).astype(numpy_dtype(str(p.ty.dtype))) for p in params
    ]  # fmt: skip


def special(func: tirx.PrimFunc, value: float, place: object) -> Arrays:
    """Normal numbers, with a value in places of the first input."""
    first, *others = drawn(func)
    first[place] = value
    return [first, *others]


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_element_has_the_class_that_it_has_unfused(name: str) -> None:
    one, wrong = subject(name), []
    for kind, value in SPECIAL.items():
        for where, place in PLACES.items():
            given = special(one.func, value, place)
            expected = kinds(one.results(given)["out"].astype("float32"))
            for tile, segments in TILINGS:
                found = one.fused_results(given, tile=tile, segments=segments)["out"]
                if (kinds(found.astype("float32")) != expected).any():
                    wrong.append((kind, where, tile, found, one.results(given)["out"]))
    assert not wrong


@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_that_pass_are_the_fused_ones_bit_for_bit(name: str) -> None:
    one = subject(name)
    given = special(one.func, np.inf, (0, 3))
    off, on = (one.fused_results(given, guards=guards, tile=4)["out"] for guards in ("off", "auto"))
    np.testing.assert_array_equal(on[1:], off[1:])


@pytest.mark.parametrize("name", PROGRAMS | NARROW)
@pytest.mark.parametrize("kind", SPECIAL)
def test_compiled_programs_keep_fallbacks(name: str, kind: str) -> None:
    func, plain, fused = compiled(name)
    for place in PLACES.values():
        given = special(func, SPECIAL[kind], place)
        expected, found = (ran(form, func, given).astype("float32") for form in (plain, fused))
        np.testing.assert_array_equal(kinds(found), kinds(expected))


@cache
def compiled(name: str) -> tuple[tirx.PrimFunc, Compiled, Compiled]:
    func = (PROGRAMS | NARROW)[name]()
    return func, compile_unfused(func), compile(func, force=True)


def ran(form: Compiled, func: tirx.PrimFunc, given: Arrays) -> np.ndarray:
    out = poison(oracle.signature(func).outputs[0])
    form(*given, out)
    return out


def test_scores_of_attention_have_a_fallback_though_it_needs_none() -> None:
    attention = read(workloads.get("attention").cpu.build())
    assert GUARD not in roles(attention.fuse())
    given = drawn(attention.func)
    always = attention.fused_results(given, guards="always")
    for name, found in attention.fused_results(given, guards="off").items():
        np.testing.assert_array_equal(always[name], found)


@cache
def best_three(asked: str) -> Unfused:
    text = "top = max x; mass = sum exp(x - top); best = top3 exp(x - top)/mass -> "
    return read(Definition("best", text + asked).build())


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("asked", ["best, best_at", "best_at"])
def test_parts_of_tuples_are_reduced_again_together(asked: str, value: float) -> None:
    one = best_three(asked)
    given = special(one.func, value, (0, 3))
    expected = one.results(given)
    for tile, segments in TILINGS:
        found = one.fused_results(given, tile=tile, segments=segments)
        for result, values in expected.items():
            tolerance.assert_close(found[result], values.astype("float64"), length=one.length, dtype="float32")


def test_what_is_selected_by_a_quotient_has_the_program_s_order() -> None:
    """Keys that may be NaN, beside ranks that no position has yet."""
    one = read(
        Definition("best", "total = sum x; best = top2 y/total; out = sum y/total -> out, best, best_at").build()
    )
    given = x, y = drawn(one.func)
    x[0, 2], y[1, 3], x[2], y[2, 4], y[3, -1] = np.inf, np.nan, 0.0, 0.0, np.nan
    expected = one.results(given)
    for tile, segments in TILINGS:
        found = one.fused_results(given, tile=tile, segments=segments)
        for result, values in expected.items():
            np.testing.assert_array_equal(kinds(found[result]), kinds(values))
            if values.dtype.kind == "i":
                np.testing.assert_array_equal(found[result], values)
