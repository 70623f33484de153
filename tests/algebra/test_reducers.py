"""The columns of a reducer's row say the same: of expressions, numbers, arrays and nodes of TensorIR."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import sympy as sp
from tvm import te

from tvm_cascade.algebra.derive import LAWS
from tvm_cascade.algebra.reducer import REDUCERS, Reducer
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.reading import read_program
from tvm_cascade.analysis.reducers import combiner_of, identity_of
from tvm_cascade.evaluate.oracle import evaluate

ROWS = pytest.mark.parametrize("reducer", REDUCERS.values(), ids=str)


def samples(reducer: Reducer) -> list[int]:
    """Numbers that it is for, small integers, on which every column is exact."""
    return [0, 1, 1, 0, 1] if reducer.logical else [2, -3, 1, 2, -1]


@ROWS
def test_on_expressions_and_numbers(reducer: Reducer) -> None:
    values = samples(reducer)
    for a in values:
        assert reducer.on_numbers(a, reducer.identity) == a == reducer.combine(reducer.identity, sp.Integer(a))
        for b in values:
            assert reducer.combine(sp.Integer(a), sp.Integer(b)) == reducer.on_numbers(a, b) == reducer.on_numbers(b, a)
    assert reducer.over(map(sp.Integer, values)) == functools.reduce(reducer.on_numbers, values)


@ROWS
@pytest.mark.parametrize("count", [1, 2, 5])
def test_of_equal_elements(reducer: Reducer, count: int) -> None:
    for value in samples(reducer):
        assert reducer.repeated(value, count) == functools.reduce(reducer.on_numbers, [value] * count)


@ROWS
def test_on_arrays(reducer: Reducer) -> None:
    values = np.array(samples(reducer), "float64")
    total = functools.reduce(reducer.on_numbers, values)
    assert getattr(np, reducer.numpy).reduce(values) == total
    assert getattr(np, reducer.numpy)(values[0], values[1]) == reducer.on_numbers(values[0], values[1])


@ROWS
def test_in_tensorir(reducer: Reducer) -> None:
    """What it writes is read as the same reducer again, and means the same to the oracle."""
    values = np.array([samples(reducer)], "bool" if reducer.logical else "float32")
    dtype = str(values.dtype)
    x, axis = te.placeholder(values.shape, dtype, "x"), te.reduce_axis((0, values.shape[1]))
    over = te.comm_reducer(
        lambda a, b: combiner_of(reducer)(a, b), lambda kind: identity_of(reducer, kind), name=reducer.name
    )
    func = te.create_prim_func([x, te.compute((1,), lambda i: over(x[i, axis], axis=axis), "out")])
    program = read_program(func)
    assert isinstance(program, Program) and program.stages[0].reducer == reducer
    assert evaluate(func, [values])["out"][0] == functools.reduce(reducer.on_numbers, samples(reducer))


@ROWS
def test_its_law_is_one(reducer: Reducer) -> None:
    assert reducer.law in LAWS
