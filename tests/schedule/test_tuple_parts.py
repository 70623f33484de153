"""Tuples on the CPU: parts that are reductions by themselves run in vectors, parts that choose together stay."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import ir, te, tirx, topi

from tvm_cascade import compile_unfused
from tvm_cascade.analysis.statements import LoopNest, read_nests
from tvm_cascade.analysis.tir import DATA_PARALLEL, loads_of, reads_buffer
from tvm_cascade.schedule.row_lanes import tuples_apart

from .test_cpu import AVX2, assert_right

SHAPE = (3, 5, 37, 32)


def instance_norm() -> tirx.PrimFunc:
    x, scale, shift = (te.placeholder(s, "float32", n) for n, s in (("x", SHAPE), ("g", SHAPE[1:2]), ("b", SHAPE[1:2])))
    return te.create_prim_func([x, scale, shift, topi.nn.instance_norm(x, scale, shift, 1, [2, 3])])


def argmax() -> tirx.PrimFunc:
    x = te.placeholder((4, 32), "float32", "x")
    return te.create_prim_func([x, topi.argmax(x, 1)])


def test_independent_sums_are_a_nest_each_over_their_own_variables() -> None:
    before, after = read_nests(instance_norm()), read_nests(tuples_apart(instance_norm(), AVX2))
    assert len(after) == len(before) + 1
    assert all(len(nest.stores) == 1 for nest in after)
    assert len({nest.block.name_hint for nest in after}) == len(after)
    reductions = [nest for nest in after if any(iv.iter_type != DATA_PARALLEL for iv in nest.block.iter_vars)]
    first, second = ([loop.loop_var for loop in nest.loops] for nest in reductions)
    assert not any(a.same_as(b) for a in first for b in second)


def test_a_position_stays_with_the_extremum_that_it_is_of() -> None:
    func = argmax()
    assert tuples_apart(func, AVX2) is func


def welford() -> tirx.PrimFunc:
    """Count, mean and squared deviations, of which each reads those before it."""
    x, axis = te.placeholder((6, 64), "float32", "x"), te.reduce_axis((0, 64), "k")
    one, nothing = tirx.const(1.0, "float32"), tirx.const(0.0, "float32")

    def merge(a: list[ir.Expr], b: list[ir.Expr]) -> tuple[ir.Expr, ...]:
        n, apart = a[0] + b[0], b[1] - a[1]
        return n, a[1] + apart * b[0] / n, a[2] + b[2] + apart * apart * a[0] * b[0] / n

    fold = te.comm_reducer(merge, lambda *dtypes: [tirx.const(0, dtype) for dtype in dtypes], name="welford")
    return te.create_prim_func([x, *te.compute((6,), lambda i: fold((one, x[i, axis], nothing), axis=axis), name="w")])


def sums(shape: tuple[int | tirx.Var, int], axis: int) -> tirx.PrimFunc:
    """Sums of a matrix and of its squares along one of its axes."""
    x, k = te.placeholder(shape, "float32", "x"), te.reduce_axis((0, shape[axis]), "k")
    both = te.comm_reducer(
        lambda a, b: (a[0] + b[0], a[1] + b[1]), lambda *dtypes: [tirx.const(0, dtype) for dtype in dtypes], name="both"
    )
    at = (lambda i: x[i, k]) if axis else (lambda i: x[k, i])
    found = te.compute((shape[1 - axis],), lambda i: both((at(i), at(i) * at(i)), axis=k), name="sums")
    return te.create_prim_func([x, *found])


def test_parts_that_read_each_other_stay_together() -> None:
    func = welford()
    assert tuples_apart(func, AVX2) is func


@pytest.mark.parametrize("length", [15, 14], ids=["no lanes", "as many lanes as sums"])
def test_sums_that_would_not_run_in_more_lanes_than_there_are_sums_stay_together(length: int) -> None:
    func = sums((6, length), 1)
    assert tuples_apart(func, AVX2) is func


@pytest.mark.parametrize("length", [63, te.var("n")], ids=["not of whole vectors", "unknown"])
def test_sums_of_rows_that_no_vector_divides_are_a_nest_each(length: int | tirx.Var) -> None:
    assert len(read_nests(tuples_apart(sums((6, length), 1), AVX2))) == 2


@pytest.mark.parametrize("axis", [0, 1])
def test_the_sums_of_a_tuple_are_right_and_each_in_vectors(axis: int) -> None:
    run = compile_unfused(sums((64, 64), axis), {"kind": "llvm", "mcpu": "x86-64-v3"})
    given = np.random.default_rng(0).standard_normal((64, 64)).astype("float32")
    found = [tvm.runtime.tensor(np.full(64, np.nan, "float32")) for _ in range(2)]
    run(given, *found)
    exacts = (given.astype("f8").sum(axis), (given.astype("f8") ** 2).sum(axis))
    for out, exact in zip(found, exacts, strict=True):
        assert_right(out.numpy(), exact, 64)
    folds = [nest for nest in read_nests(run.mod["main"]) if _accumulates(nest)]
    in_vectors = [nest for nest in folds if any(loop.kind == tirx.ForKind.VECTORIZED for loop in nest.loops)]
    assert len(in_vectors) == 2


def _accumulates(nest: LoopNest) -> bool:
    """Whether a nest adds to what it stores, element of the data by element."""
    return any(reads_buffer(store.value, store.buffer) for store in nest.stores) and any(
        load.source.name == "x" for load in loads_of(nest.block.body)
    )
