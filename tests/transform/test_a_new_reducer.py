"""A reducer is one record: a row added by a module of its own goes from TE to results, and nothing else is changed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import sympy as sp
from tvm import te, tirx

from tvm_cascade.accuracy.losses import FoldOnData
from tvm_cascade.algebra.cascade import Cascade, Reduction
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.reducer import MAX, REDUCERS, SUM, Reducer
from tvm_cascade.algebra.verdict import Refusal
from tvm_cascade.errors import FoldError
from tvm_cascade.obligations.derive import derive
from tvm_cascade.tuning.explanation import explain

from ..analysis.programs import LENGTH, ROWS, array, disjunction, fold, program, total
from ..tile.test_row_kernels import WARP
from ..tile.test_row_kernels import assert_right as assert_row_right
from .running import read

ROW = r'''
"""Whether an odd number of truth values hold."""

import sympy as sp

from tvm_cascade.algebra.reducer import REDUCERS, Reducer


def odd(a, b):
    return a + b - 2 * a * b


REDUCERS["xor"] = Reducer(
    "xor",
    "⊻",
    r"\bigoplus",
    combine=odd,
    identity=sp.Integer(0),
    on_numbers=odd,
    repeated=lambda a, n: (1 - (1 - 2 * a) ** n) / 2,
    numpy="logical_xor",
    tir=("BitwiseXor",),
    logical=True,
)
'''


@pytest.fixture
def xor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reducer]:
    """The reducer, while a module that adds it is loaded."""
    path = tmp_path / "parity.py"
    path.write_text(ROW, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("parity", path)
    assert spec is not None and spec.loader is not None
    monkeypatch.setitem(REDUCERS, "xor", SUM)  # so that the row is gone afterwards
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    yield REDUCERS["xor"]


def summed_by_parity(rows: int = ROWS, length: int = LENGTH) -> tirx.PrimFunc:
    """x, b -> whether an odd number of b hold, whether any does, and Σ x where it is odd, Σ x² elsewhere."""
    x, b = array("x", rows, length), array("b", rows, length, dtype="bool")
    parity = te.comm_reducer(lambda p, q: tirx.bitwise_xor(p, q), lambda dtype: tirx.const(False, dtype), name="parity")
    odd = fold("odd", lambda i, j: b[i, j], parity, length, (rows,))
    some = fold("some", lambda i, j: b[i, j], disjunction, length, (rows,))

    def element(i: tirx.Var, j: tirx.Var) -> tirx.Expr:
        return tirx.if_then_else(odd[i], x[i, j], tirx.if_then_else(some[i], x[i, j] * x[i, j], -x[i, j]))

    return program(x, b, odd, some, fold("summed", element, total, length, (rows,)))


@pytest.mark.parametrize("segments", [1, 3])
def test_it_is_fused_with_others_and_right(xor: Reducer, segments: int) -> None:
    unfused = read(summed_by_parity())
    (group,) = unfused.groups
    assert [member.stage.reducer.name for member in group.members if member.stage.reducer] == ["xor", "or", "sum"]
    rng = np.random.default_rng(0)
    x, b = rng.standard_normal((4, 37)).astype("float32"), rng.random((4, 37)) < 0.5
    b[0] = False
    unfused.check([x, b], tile=5, segments=segments)
    odd = unfused.fused_results([x, b], tile=5, segments=segments)["odd"]
    np.testing.assert_array_equal(odd, np.logical_xor.reduce(b, axis=1))
    assert set(odd) == {False, True}


def test_a_program_with_it_is_not_read_without_the_row() -> None:
    assert "reducer" in {group.reason.code for group in explain(summed_by_parity()).groups}


def parity_and_softmax(xor: Reducer) -> tuple[Fold, list[sp.Symbol]]:
    b, x = sp.Symbol("b", nonnegative=True), sp.Symbol("x", real=True)
    m, t, p = sp.symbols("m t p", real=True)
    found = derive(Cascade([Reduction(m, MAX, x), Reduction(t, SUM, sp.exp(x - m)), Reduction(p, xor, b)], [x, b]))
    assert isinstance(found, Fold)
    return found, [x, b, p]


def test_its_fold_passes_every_check_and_says_how_it_is_merged(xor: Reducer) -> None:
    found, (_, _, p) = parity_and_softmax(xor)
    assert found.components[-1].reducer == xor and f"merge                {p}_0 = " in str(found)


def test_its_fold_runs_on_arrays(xor: Reducer) -> None:
    found, (x, b, p) = parity_and_softmax(xor)
    rng = np.random.default_rng(1)
    bits = (rng.random(20) < 0.5).astype("float32")
    data = FoldOnData(found, np.float32, {x: rng.standard_normal(20), b: bits}, 20)
    assert data.finish(data.run(6))[p] == bits.sum() % 2


def test_a_row_that_is_no_monoid_fails_the_checks(xor: Reducer) -> None:
    def apart(a: sp.Expr, b: sp.Expr) -> sp.Expr:
        return a - b

    broken = Reducer(**{**vars(xor), "combine": apart, "on_numbers": apart})
    d, x = sp.symbols("d x", real=True)
    with pytest.raises(FoldError, match="merge commutative"):
        derive(Cascade([Reduction(d, broken, x)], [x]))


def test_elements_that_read_earlier_results_need_a_law(xor: Reducer) -> None:
    x, m, p = sp.symbols("x m p", real=True)
    outcome = derive(Cascade([Reduction(m, MAX, x), Reduction(p, xor, x * m)], [x]))
    assert isinstance(outcome, Refusal) and outcome.reason.code == "reducer_dependence"


def test_a_kernel_for_a_gpu_folds_with_it(xor: Reducer) -> None:
    rng = np.random.default_rng(2)
    inputs = [rng.standard_normal((2, 136)).astype("float32"), rng.random((2, 136)) < 0.5]
    assert_row_right(summed_by_parity(2, 136), WARP, inputs=inputs)
