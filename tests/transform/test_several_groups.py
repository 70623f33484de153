"""Functions with more in them than one cascade: several groups, deep chains, members that cannot be fused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

import tvm_cascade
from tvm_cascade.algebra.verdict import Verdict
from tvm_cascade.evaluate import oracle

from ..analysis.programs import LENGTH, ROWS, array, each, fold, maximum, number, program, softmax_stages, total
from ..tiers import slow_but
from .running import assert_close, build, run

Build = Callable[[], tirx.PrimFunc]


def independent_groups() -> tirx.PrimFunc:
    x, y = array("x"), array("y")
    _, norm = softmax_stages(x)
    return program(x, y, norm, _variance(y))


def _variance(x: te.Tensor) -> te.Tensor:
    s = fold("s", lambda i, j: x[i, j])

    def centred(i: Any, j: Any) -> Any:
        return x[i, j] - s[i] / number(LENGTH)

    return fold("moment", lambda i, j: centred(i, j) * centred(i, j))


def groups_that_share_an_input() -> tirx.PrimFunc:
    x = array("x")
    _, norm = softmax_stages(x)
    return program(x, norm, _variance(x))


def a_group_over_the_results_of_another() -> tirx.PrimFunc:
    """The second cascade runs along the first one's rows."""
    x, y = array("x"), array("y", LENGTH, ROWS)
    row_max, row_sum = softmax_stages(x)
    lse = te.compute((ROWS,), lambda i: te.log(row_sum[i]) + row_max[i], name="lse")
    top = fold("top", lambda k, i: y[k, i] * lse[i], maximum, ROWS, (LENGTH,))
    return program(x, y, fold("out", lambda k, i: te.exp(y[k, i] * lse[i] - top[k]), total, ROWS, (LENGTH,)))


def rows_and_columns() -> tirx.PrimFunc:
    x = array("x")
    _, row_sum = softmax_stages(x)
    top = fold("top", lambda j, i: x[i, j], maximum, ROWS, (LENGTH,))
    column_sum = fold("column_sum", lambda j, i: te.exp(x[i, j] - top[j]), total, ROWS, (LENGTH,))
    return program(x, each("out", lambda i, j: x[i, j] - row_sum[i] - column_sum[j]))


def depth_five() -> tirx.PrimFunc:
    """Moments under a softmax, each an output."""
    x = array("x")
    row_max, row_sum = softmax_stages(x)

    def p(i: Any, j: Any) -> Any:
        return te.exp(x[i, j] - row_max[i]) / row_sum[i]

    mean = fold("mean", lambda i, j: p(i, j) * x[i, j])
    spread = fold("spread", lambda i, j: p(i, j) * (x[i, j] - mean[i]) * (x[i, j] - mean[i]))
    last = fold("last", lambda i, j: p(i, j) * (x[i, j] - mean[i]) * tirx.rsqrt(spread[i] + number(1.0)) * x[i, j])
    return program(x, row_sum, mean, spread, last)


def maps_between() -> tirx.PrimFunc:
    """A layer norm of a softmax, then a weighted sum: every map along the axis feeds another reduction along it."""
    x, w = array("x"), array("w", LENGTH)
    row_max, row_sum = softmax_stages(x)
    p = each("p", lambda i, j: te.exp(x[i, j] - row_max[i]) / row_sum[i])
    s = fold("s", lambda i, j: p[i, j])
    q = fold("q", lambda i, j: (p[i, j] - s[i] / number(LENGTH)) * (p[i, j] - s[i] / number(LENGTH)))
    normed = each("normed", lambda i, j: (p[i, j] - s[i] / number(LENGTH)) * tirx.rsqrt(q[i] + number(1e-5)))
    return program(x, w, fold("out", lambda i, j: normed[i, j] * w[j]))


def earlier_results_are_outputs() -> tirx.PrimFunc:
    x, v = array("x"), array("v", LENGTH, 5)
    row_max, row_sum = softmax_stages(x)
    lse = te.compute((ROWS,), lambda i: row_max[i] + te.log(row_sum[i]), name="lse")
    out = fold("out", lambda i, d, j: te.exp(x[i, j] - row_max[i]) / row_sum[i] * v[j, d], rows=(ROWS, 5))
    return program(x, v, out, lse, row_max)


def inside_four_loops() -> tirx.PrimFunc:
    rows = (3, 2, 4, 2)
    x = array("x", *rows, LENGTH)
    top = fold("top", lambda a, b, c, d, j: x[a, b, c, d, j], maximum, LENGTH, rows)
    return program(x, fold("out", lambda a, b, c, d, j: te.exp(x[a, b, c, d, j] - top[a, b, c, d]), rows=rows))


def the_last_cannot_be_fused() -> tirx.PrimFunc:
    x = array("x")
    _, row_sum = softmax_stages(x)
    return program(x, fold("out", lambda i, j: tirx.sigmoid(x[i, j] - row_sum[i])))


def one_in_the_middle_cannot_be_fused() -> tirx.PrimFunc:
    """What reads it fuses with it where it can; the others fuse without it."""
    x = array("x")
    row_max, row_sum = softmax_stages(x)
    odd = fold("odd", lambda i, j: tirx.sigmoid(x[i, j] - row_max[i]))
    out = fold("out", lambda i, j: te.exp(x[i, j] - row_max[i]) / row_sum[i] * x[i, j])
    return program(x, odd, out, fold("scaled", lambda i, j: x[i, j] * odd[i]))


def a_result_of_results_is_read_outside() -> tirx.PrimFunc:
    """`again` is row_max as it stands, and what cannot be fused reads it."""
    x = array("x")
    row_max = fold("row_max", lambda i, j: x[i, j], maximum)
    again = fold("again", lambda i, j: te.max(x[i, j], row_max[i]), maximum)
    return program(x, fold("odd", lambda i, j: tirx.sigmoid(x[i, j] - again[i])))


def each_needs_the_other() -> tirx.PrimFunc:
    """Two cascades that each read the other's first result: as two loops neither could come first."""
    x, y = array("x"), array("y", ROWS, LENGTH + 2)
    s = fold("s", lambda i, j: x[i, j])
    t = fold("t", lambda i, j: y[i, j], length=LENGTH + 2)
    first = fold("first", lambda i, j: y[i, j] * t[i] * s[i], length=LENGTH + 2)
    return program(x, y, first, fold("second", lambda i, j: x[i, j] * s[i] * t[i]))


GROUPS: dict[str, tuple[Build, list[tuple[str, ...]]]] = {
    "independent": (independent_groups, [("row_max", "row_sum"), ("s", "moment")]),
    "shared_input": (groups_that_share_an_input, [("row_max", "row_sum"), ("s", "moment")]),
    "results_of_another": (a_group_over_the_results_of_another, [("row_max", "row_sum"), ("top", "out")]),
    "rows_and_columns": (rows_and_columns, [("row_max", "row_sum"), ("top", "column_sum")]),
    "depth_five": (depth_five, [("row_max", "row_sum", "mean", "spread", "last")]),
    "maps_between": (maps_between, [("row_max", "row_sum", "s", "q", "out")]),
    "earlier_results": (earlier_results_are_outputs, [("row_max", "row_sum", "out")]),
    "four_loops": (inside_four_loops, [("top", "out")]),
    "last_odd": (the_last_cannot_be_fused, [("row_max", "row_sum")]),
    "result_of_results": (a_result_of_results_is_read_outside, [("row_max", "again")]),
    "crossed": (each_needs_the_other, [("t", "first")]),
    "middle_odd": (one_in_the_middle_cannot_be_fused, [("row_max", "row_sum", "out"), ("odd", "scaled")]),
}


@pytest.mark.parametrize("schedule", slow_but([True], [True, False]), ids=["scheduled", "plain"])
@pytest.mark.parametrize("name", GROUPS)
def test_what_can_be_fused_is_and_the_rest_stays_right(name: str, schedule: bool) -> None:
    build_program, expected = GROUPS[name]
    func = build_program()
    compiled = tvm_cascade.compile(func, force=True, tile=16, schedule=schedule)
    fused = [group.buffers for group in compiled.report.groups if group.verdict is Verdict.FUSED]
    assert fused == expected
    rng = np.random.default_rng(0)
    shapes = [[int(extent) for extent in buffer.ty.shape] for buffer in oracle.signature(func).inputs]
    inputs = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    assert_close(run(compiled.runtime_module, func, inputs), func, inputs, run(build(func), func, inputs), LENGTH)
