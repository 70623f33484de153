"""Reductions that share a pass: those of one tensor beside each other, and those of a product, which they compute."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from tvm import te, tirx

import tvm_cascade
from tvm_cascade.algebra.verdict import Verdict
from tvm_cascade.analysis.passes import passes_of

from ..analysis.programs import LENGTH, ROWS, array, each, fold, maximum, minimum, number, program
from ..tiers import slow_but
from .running import Unfused, read
from .tuple_programs import index_then_key, nothing_yet, tupled

FEATURES = 6


def statistics() -> tirx.PrimFunc:
    """x -> the least, the largest, the sum and the mean square of its rows."""
    x = array("x")
    square = fold("square", lambda i, j: x[i, j] * x[i, j])
    return program(
        x,
        fold("low", lambda i, j: x[i, j], minimum),
        fold("high", lambda i, j: x[i, j], maximum),
        fold("s", lambda i, j: x[i, j]),
        te.compute((ROWS,), lambda i: square[i] / number(LENGTH), name="mean_square"),
    )


def moments() -> tirx.PrimFunc:
    """x -> E[x²] − E[x]²."""
    x = array("x")
    s, q = fold("s", lambda i, j: x[i, j]), fold("q", lambda i, j: x[i, j] * x[i, j])
    n = number(LENGTH)
    return program(x, te.compute((ROWS,), lambda i: q[i] / n - (s[i] / n) * (s[i] / n), name="out"))


def counts() -> tirx.PrimFunc:
    """x -> sums in another dtype than x's, and where the largest is."""
    x = array("x", dtype="float16")
    s = fold("s", lambda i, j: x[i, j].astype("float32"))
    kept = fold("kept", lambda i, j: tirx.Select(x[i, j] > number(0, "float16"), number(1), number(0)))
    best = tupled("best", index_then_key, nothing_yet, lambda i, j: (j, x[i, j].astype("float32")))
    return program(x, s, kept, *best)


def columns() -> tirx.PrimFunc:
    """x -> the range of its columns, which lie apart."""
    x = array("x", LENGTH, 5)
    low, high = (fold(f"c{k}", lambda c, j: x[j, c], how, rows=(5,)) for k, how in enumerate((minimum, maximum)))
    return program(x, te.compute((5,), lambda c: high[c] - low[c], name="out"))


SHARED: dict[str, tuple[Callable[[], tirx.PrimFunc], int]] = {
    "statistics": (statistics, 4),
    "moments": (moments, 2),
    "counts": (counts, 3),
    "columns": (columns, 2),
}


def scores(squares: bool) -> tuple[list[te.Tensor], te.Tensor]:
    x, c, d = array("x", ROWS, FEATURES), array("c", LENGTH, FEATURES), te.reduce_axis((0, FEATURES), "d")
    if squares:
        return [x, c], each("between", lambda i, j: te.sum((x[i, d] - c[j, d]) * (x[i, d] - c[j, d]), axis=d))
    norm = array("norm", LENGTH)
    dot = each("dot", lambda i, j: te.sum(x[i, d] * c[j, d], axis=d))
    return [x, c, norm], each("between", lambda i, j: norm[j] - number(2) * dot[i, j])


def nearest(squares: bool) -> tirx.PrimFunc:
    """x, centres -> the largest of negated distances, and of which centre."""
    inputs, between = scores(squares)
    return program(*inputs, *tupled("best", index_then_key, nothing_yet, lambda i, j: (j, number(0) - between[i, j])))


def best_of_products() -> tirx.PrimFunc:
    inputs, between = scores(squares=False)
    return program(*inputs, *tvm_cascade.te.topk(between, 3))


def sums_of_products() -> tirx.PrimFunc:
    inputs, between = scores(squares=True)
    return program(
        *inputs, fold("mean", lambda i, j: te.exp(-between[i, j])), fold("least", lambda i, j: between[i, j], minimum)
    )


INSIDE: dict[str, Callable[[], tirx.PrimFunc]] = {
    "the nearest by squares": lambda: nearest(squares=True),
    "the nearest by products": lambda: nearest(squares=False),
    "the best few": best_of_products,
    "sums of products": sums_of_products,
}


@cache
def unfused(name: str) -> Unfused:
    return read(SHARED[name][0]() if name in SHARED else INSIDE[name]())


def given(func: tirx.PrimFunc) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    names = {"x", "c", "norm"}
    return [
        rng.normal(0.5, 1.5, [int(n) for n in param.ty.shape]).astype(str(param.ty.dtype))
        for param in func.params
        if param.name in names
    ]


@pytest.mark.parametrize("tile", slow_but([1, LENGTH], [1, 8, LENGTH]))
@pytest.mark.parametrize("name", [*SHARED, *INSIDE])
def test_one_pass_gives_what_several_give(name: str, tile: int) -> None:
    program = unfused(name)
    program.check(given(program.func), tile=tile)
    program.check(given(program.func), tile=tile, segments=3)


@pytest.mark.parametrize("name", SHARED)
def test_all_reductions_of_a_tensor_are_in_the_pass(name: str) -> None:
    (group,), (_, count) = unfused(name).groups, SHARED[name]
    whole = {member.stage.block.name_hint for member in group.members}
    assert len(whole) == count and len(passes_of(unfused(name).program, group).inside) == count


@pytest.mark.parametrize("name", INSIDE)
def test_a_product_whose_rows_are_folded_is_computed_tile_by_tile(name: str) -> None:
    usual, fused = unfused(name).program.func.script(), unfused(name).fuse(tile=8).script()
    product, *maps = [name for name in ("dot", "between") if f"{name} = T.sblock_alloc_buffer((4, 37)" in usual]
    assert not any(f"{matrix}[" in fused for matrix in (product, *maps)) and f"{product}_tile[" in fused


def test_infinities_and_nan_stay_where_they_are() -> None:
    x = given(unfused("statistics").func)[0]
    x[0, 3], x[1, 5], x[2, 7] = np.inf, -np.inf, np.nan
    fused, usual = unfused("statistics").fused_results([x], tile=8), unfused("statistics").results([x])
    for name, values in usual.items():
        np.testing.assert_array_equal(np.isnan(fused[name]), np.isnan(values), name)
        np.testing.assert_array_equal(
            np.where(np.isfinite(values), 0, fused[name]), np.where(np.isfinite(values), 0, values)
        )


@pytest.mark.parametrize(("rows", "length", "verdict"), [(256, 64, Verdict.DECLINED), (64, 65536, Verdict.FUSED)])
def test_a_shared_pass_is_priced(rows: int, length: int, verdict: Verdict) -> None:
    """Short rows that a cache holds are read as fast twice (measured: 256 of 64 take 3.2 us in both forms)."""
    x = array("x", rows, length)
    low, high = (fold(f"r{k}", lambda i, j: x[i, j], how, length, (rows,)) for k, how in enumerate((minimum, maximum)))
    (group,) = tvm_cascade.explain(program(x, low, high), target={"kind": "llvm", "num-cores": 1}).groups
    assert group.us_before is not None and group.us_after is not None and group.buffers == ("r0", "r1")
    assert group.verdict is verdict and (group.us_after > group.us_before) == (verdict is Verdict.DECLINED)
    assert (f"{group.us_before:.1f} us unfused, {group.us_after:.1f} us fused" in group.reason.detail) == (
        verdict is Verdict.DECLINED
    )
