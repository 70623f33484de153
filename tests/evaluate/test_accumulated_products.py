"""Rounding mode computes matrix products as a loop does, so that the rule allows that, and rejects wrong answers."""

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir, te

from benchmarks.judge.power import rejects
from tvm_cascade.evaluate import einsum, oracle, tolerance

ROWS, DEPTH, LENGTH = 12, 48, 160


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def variance_of_products():
    """Rows of a·b, and of each row Σ (s − mean)²: what a product loses far from zero, the differences show."""
    a, b = te.placeholder((ROWS, DEPTH), name="a"), te.placeholder((DEPTH, LENGTH), name="b")
    d, j0, j1 = (te.reduce_axis((0, extent)) for extent in (DEPTH, LENGTH, LENGTH))
    s = te.compute((ROWS, LENGTH), lambda i, j: te.sum(a[i, d] * b[d, j], d), name="s")
    total = te.compute((ROWS,), lambda i: te.sum(s[i, j0], j0), name="total")

    def square(i):
        return (s[i, j1] - total[i] / float(LENGTH)) * (s[i, j1] - total[i] / float(LENGTH))

    func = te.create_prim_func([a, b, te.compute((ROWS,), lambda i: te.sum(square(i), j1), name="v")])
    blocks = []
    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, blocks.append))
    return func, {b.iter_vars[-1].var: range(LENGTH // 8) for b in blocks if b.name_hint in ("total", "v")}


@pytest.mark.parametrize("offset", [0, 32, 1024])
def test_the_compiled_program_passes_and_wrong_answers_do_not(offset, rng):
    func, left_out = variance_of_products()
    a, b = ((rng.standard_normal(shape) + offset).astype("f4") for shape in ((ROWS, DEPTH), (DEPTH, LENGTH)))
    out = tvm.runtime.tensor(np.full(ROWS, np.nan, "f4"))
    tvm.compile(func, "llvm")["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), out)
    exact, rounded = (oracle.evaluate(func, [a, b], rounding=rounding)["v"] for rounding in (False, True))
    compared = tolerance.assert_close(out.numpy(), exact, rounded, length=LENGTH, dtype="float32")
    assert compared.allowed < 1e-3
    dropped = oracle.evaluate(func, [a, b], left_out=left_out)["v"]
    assert rejects(exact, LENGTH, "float32", baseline=rounded, dropped=dropped) == []
    assert not tolerance.check(exact * 1.002, exact, rounded, length=LENGTH, dtype="float32").ok


def looped(factors, reduce_axes, shape, dtype):
    """One position after the other, each product and each partial sum rounded."""
    total = np.zeros([1 if axis in reduce_axes else extent for axis, extent in enumerate(shape)], dtype)
    for point in np.ndindex(*shape):
        place = tuple(0 if axis in reduce_axes else k for axis, k in enumerate(point))
        product = dtype(1)
        for factor in factors:
            product = product * dtype(np.broadcast_to(factor, shape)[point])
        total[place] = total[place] + product
    return total


@pytest.mark.parametrize(("tile", "run"), [(1, 1), (7, 1), (7, 21), (1 << 15, 1 << 12)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_product_is_accumulated_as_a_loop_does_it(tile, run, dtype, rng, monkeypatch):
    monkeypatch.setattr(einsum, "_TILE", tile)
    monkeypatch.setattr(einsum, "_RUN", run)
    shape, reduce_axes = (3, 4, 5, 6), [1, 3]
    factors = [1000 + rng.standard_normal(extents) for extents in ((3, 4, 1, 6), (1, 4, 5, 6), (1, 1, 1, 6))]
    total = einsum.accumulate(factors, reduce_axes, shape, np.dtype(dtype))
    assert total.dtype == dtype
    np.testing.assert_array_equal(total, looped([f.astype(dtype) for f in factors], reduce_axes, shape, dtype))


def test_a_product_that_no_spatial_axis_indexes_keeps_extents_of_one(rng):
    factors = [rng.standard_normal((1, 6)), rng.standard_normal((1, 6))]
    total = einsum.accumulate(factors, [1], (4, 6), np.dtype("f8"))
    assert total.shape == einsum.contract(factors, [1], (4, 6)).shape == (1, 1)
