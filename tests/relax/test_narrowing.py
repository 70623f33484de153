"""What nobody reads is not computed: narrower temporaries, the same results."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import te, tirx

from benchmarks.judge.power import rejects
from tvm_cascade.evaluate import tolerance
from tvm_cascade.relax.narrowing import narrowed
from tvm_cascade.schedule.nests import plan_alone

ROWS, LENGTH, COLUMNS = 9, 12, 6


def program(*picked: int, span: int | None = None) -> tirx.PrimFunc:
    """x·w of all rows, its row sums, and the product over them in the rows that are picked, or in the first ones."""
    x = te.placeholder((ROWS, LENGTH), "float32", name="x")
    w = te.placeholder((COLUMNS, LENGTH), "float32", name="w")
    k, j = te.reduce_axis((0, LENGTH), "k"), te.reduce_axis((0, COLUMNS), "j")
    product = te.compute((ROWS, COLUMNS), lambda i, c: te.sum(x[i, k] * w[c, k], axis=k), name="product")
    total = te.compute((ROWS,), lambda i: te.sum(product[i, j], axis=j), name="total")
    shares = te.compute((ROWS, COLUMNS), lambda i, c: product[i, c] / total[i], name="shares")
    if span is not None:
        out = te.compute((span, COLUMNS), lambda i, c: shares[i, c] + 1.0, name="out")
    else:
        out = te.compute(
            (COLUMNS,), lambda c: sum((shares[row, c] for row in picked[1:]), shares[picked[0], c]), name="out"
        )
    return te.create_prim_func([x, w, out]).with_attr("global_symbol", "main")


def rows_of(func: tirx.PrimFunc) -> dict[str, int]:
    """The outermost extent of each nest."""
    return {plan.name: int(plan.extents[plan.own[0]]) for plan in plan_alone(func)}


def shares(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    product = x.astype("float64") @ w.astype("float64").T
    return product / product.sum(1, keepdims=True)


def check(func: tirx.PrimFunc, expected: np.ndarray, x: np.ndarray, w: np.ndarray) -> None:
    out = tvm.runtime.tensor(np.full(expected.shape, np.nan, "float32"))
    tvm.compile(func, target="llvm")["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(w), out)
    tolerance.assert_close(out.numpy(), expected, length=LENGTH * COLUMNS, dtype="float32")
    assert rejects(expected, LENGTH * COLUMNS, "float32") == []


def inputs() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    return tuple(draw.uniform(0.5, 1.5, (n, LENGTH)).astype("float32") for n in (ROWS, COLUMNS))


def test_one_row_that_is_read_is_all_that_is_computed() -> None:
    x, w = inputs()
    func = narrowed(program(7))
    assert rows_of(func) == {"product": 1, "total": 1, "shares": 1, "out": COLUMNS}
    check(func, shares(x, w)[7], x, w)


def test_rows_between_the_first_and_the_last_one_read_are_computed() -> None:
    x, w = inputs()
    func = narrowed(program(3, 5))
    assert rows_of(func) == {"product": 3, "total": 3, "shares": 3, "out": COLUMNS}
    check(func, shares(x, w)[3] + shares(x, w)[5], x, w)


def test_the_first_rows() -> None:
    x, w = inputs()
    func = narrowed(program(span=4))
    assert rows_of(func) == {"product": 4, "total": 4, "shares": 4, "out": 4}
    check(func, shares(x, w)[:4] + 1, x, w)


def test_what_is_read_as_a_whole_stays_as_it_is() -> None:
    func = program(span=ROWS)
    assert narrowed(func).same_as(func)


def test_results_are_given_as_a_whole() -> None:
    x = te.placeholder((ROWS, COLUMNS), "float32", name="x")
    y = te.compute((ROWS, COLUMNS), lambda i, c: x[i, c] * 2.0, name="y")
    z = te.compute((COLUMNS,), lambda c: y[2, c] + 1.0, name="z")
    func = te.create_prim_func([x, y, z])
    assert narrowed(func).same_as(func)


def test_rows_that_data_choose_are_all_computed() -> None:
    x = te.placeholder((ROWS, COLUMNS), "float32", name="x")
    at = te.placeholder((2,), "int32", name="at")
    y = te.compute((ROWS, COLUMNS), lambda i, c: x[i, c] * 2.0, name="y")
    z = te.compute((2, COLUMNS), lambda i, c: y[at[i], c] + 1.0, name="z")
    func = te.create_prim_func([x, at, z])
    assert narrowed(func).same_as(func)
