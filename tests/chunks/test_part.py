"""Functions over a part of their rows, and elements of what is cut as sums: the numbers of the whole function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from tvm_cascade.analysis.tir import loads_of, within
from tvm_cascade.chunks.part import Rows, offset_of, over_a_part, rows_of
from tvm_cascade.chunks.picks import with_picks
from tvm_cascade.errors import SplitError
from tvm_cascade.evaluate import oracle, tolerance
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_function import fuse_function, read_function

from ..transform.running import build
from .running import called

ROWS, LENGTH = 6, 10


def rows(func: tirx.PrimFunc, name: str, dimension: int) -> Rows:
    """The axis that a dimension of a parameter is."""
    program = read_function(func)
    return rows_of(program, [(next(param for param in program.params if param.name == name), dimension)])


def causal() -> tirx.PrimFunc:
    """Attention with a mask and a bias by position, an index of rows, and rows that are gathered by an input."""
    q, k = te.placeholder((ROWS, 4), name="q"), te.placeholder((LENGTH, 4), name="k")
    scale = te.placeholder((ROWS,), name="scale")
    d, j, p = te.reduce_axis((0, 4), "d"), te.reduce_axis((0, LENGTH), "j"), te.reduce_axis((0, LENGTH), "p")
    s = te.compute((ROWS, LENGTH), lambda i, j: te.sum(q[i, d] * k[j, d], axis=d), name="s")
    z = te.compute(
        s.shape,
        lambda i, j: tirx.if_then_else(j <= i + 4, s[i, j] * scale[i] + 0.1 * (i - j), te.min_value("float32")),
        name="z",
    )
    m = te.compute((ROWS,), lambda i: te.max(z[i, j], axis=j), name="m")
    t = te.compute((ROWS,), lambda i: te.sum(te.exp(z[i, p] - m[i]), axis=p), name="t")
    return te.create_prim_func([q, k, scale, m, t])


def given(func: tirx.PrimFunc) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    found = {}
    for param in oracle.signature(func).inputs:
        shape, dtype = [int(extent) for extent in param.ty.shape], str(param.ty.dtype)
        found[param.name] = rng.integers(0, LENGTH, shape, dtype) if dtype == "int32" else rng.random(shape, dtype)
    return found


@pytest.mark.parametrize(("start", "length"), [(0, 6), (0, 2), (2, 3), (5, 1)])
@pytest.mark.parametrize("is_fused", [False, True])
def test_a_part_of_the_rows_gives_those_rows(start: int, length: int, is_fused: bool) -> None:
    func, inputs = causal(), given(causal())
    part = over_a_part(rows(func, "q", 0), length, "i")
    assert [param.name for param in part.params] == ["q", "k", "scale", offset_of("i"), "m", "t"]
    own = [one[start : start + length] if one.shape[0] == ROWS else one for one in inputs.values()]
    exact, usual = (oracle.evaluate(part, [*own, start], rounding=rounding) for rounding in (False, True))
    written = fuse_function(part, FuseOptions(force=True)).func if is_fused else part
    left = {name: np.full(length, np.nan, "float32") for name in ("m", "t")}
    arrays = {**dict(zip(inputs, own, strict=True)), offset_of("i"): start, **left}
    found = dict(zip(left, called(written, build(written), arrays, list(left)), strict=True))
    for key, whole in oracle.evaluate(func, list(inputs.values())).items():
        np.testing.assert_array_equal(exact[key], whole[start : start + length])
        assert not np.array_equal(whole, np.roll(whole, 1))
        tolerance.assert_close(found[key], exact[key], usual[key], length=LENGTH, dtype="float32")


def test_a_part_has_an_offset_where_it_reads_its_position_alone() -> None:
    x, j = te.placeholder((ROWS, LENGTH), name="x"), te.reduce_axis((0, LENGTH), "j")
    m = te.compute((ROWS,), lambda i: te.max(x[i, j], axis=j), name="m")
    part = over_a_part(rows(te.create_prim_func([x, m]), "m", 0), 2, "i")
    assert [(param.name, [int(n) for n in param.ty.shape]) for param in part.params] == [("x", [2, LENGTH]), ("m", [2])]


def test_rows_that_are_summed_are_told_and_others_are_refused() -> None:
    x, j = te.placeholder((ROWS, LENGTH), name="x"), te.reduce_axis((0, ROWS), "j")
    total = te.compute((LENGTH,), lambda c: te.sum(x[j, c], axis=j), name="total")
    twice = te.compute((LENGTH,), lambda c: 2 * total[c], name="twice")
    assert [buffer.name for buffer in rows(te.create_prim_func([x, total]), "x", 0).summed] == ["total"]
    with pytest.raises(SplitError, match="independent rows, or results that are sums"):
        _ = rows(te.create_prim_func([x, twice]), "x", 0).summed
    largest = te.compute((LENGTH,), lambda c: te.max(x[j, c], axis=j), name="largest")
    with pytest.raises(SplitError, match="found largest"):
        _ = rows(te.create_prim_func([x, largest]), "x", 0).summed


def test_rows_that_are_read_beside_themselves_are_refused() -> None:
    x = te.placeholder((ROWS,), name="x")
    before = te.compute((ROWS,), lambda i: x[i] - x[te.max(i - 1, 0)], name="before")
    with pytest.raises(SplitError, match="tensors read at i itself"):
        over_a_part(rows(te.create_prim_func([x, before]), "before", 0), 2, "i")
    square = te.compute((ROWS, ROWS), lambda i, j: x[i] * x[j], name="square")
    with pytest.raises(SplitError, match="one dimension of a tensor along an axis"):
        over_a_part(rows(te.create_prim_func([x, square]), "x", 0), 2, "i")


@pytest.mark.parametrize("source", ["x", "products"])
def test_an_element_at_an_index_that_is_data_is_a_sum(source: str) -> None:
    """Of an input that is cut, and of what is computed from one."""
    x, at = te.placeholder((ROWS, LENGTH), name="x"), te.placeholder((ROWS,), "int32", name="at")
    j, d = te.reduce_axis((0, LENGTH), "j"), te.reduce_axis((0, 2), "d")
    products = te.compute((ROWS, LENGTH), lambda i, c: te.sum(x[i, c] * (d + 1.0), axis=d), name="products")
    read = {"x": x, "products": products}[source]
    m = te.compute((ROWS,), lambda i: te.max(read[i, j], axis=j), name="m")
    below = te.compute((ROWS,), lambda i: m[i] - read[i, at[i]], name="below")
    func = te.create_prim_func([x, at, below])
    axis = rows(func, "x", 1)
    picked = with_picks(axis, [param for param in axis.program.params if param.name == "x"])
    assert picked is not None
    loops = {one.var for one in within(picked.body, tirx.IterVar)}
    assert all(load.indices[1] in loops for load in loads_of(picked.body) if load.source.name == source)
    inputs = list(given(func).values())
    inputs[0][0, 0], inputs[1][:2] = np.inf, (0, LENGTH - 1)  # what is not picked may be anything
    np.testing.assert_array_equal(oracle.evaluate(picked, inputs)["below"], oracle.evaluate(func, inputs)["below"])
    assert with_picks(rows(causal(), "k", 0), []) is None
