"""Functions whose argument reads an earlier result: each is known to the algebra by its own law."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tvm import te, tirx
from tvm.ir import Expr

import tvm_cascade
from tvm_cascade.algebra.verdict import Verdict

from ..analysis.programs import LENGTH, array, fold, maximum, program

Law = Callable[[Expr, Expr], Expr]

SUMS: dict[str, Law] = {
    "exp10": lambda x, top: tirx.exp10(x - top),
    "log10": lambda x, top: te.log10(te.exp(x - top)),
    "sin": lambda x, top: te.sin(x - top),
}
EXTREMA: dict[str, Law] = {
    "atan": lambda x, top: te.atan(x - top),
}
OF_CUDA: dict[str, Law] = {
    "cosh": lambda x, top: te.cosh((x - top) / LENGTH),
    "sinh": lambda x, top: te.sinh((x - top) / LENGTH),
}
"""TVM has these for CUDA, and none for LLVM."""


def after_the_largest(law: Law, reducer: Callable[..., Expr] = te.sum) -> tirx.PrimFunc:
    x = array("x")
    top = fold("top", lambda i, j: x[i, j], maximum)
    return program(x, fold("out", lambda i, j: law(x[i, j], top[i]), reducer))


@pytest.mark.parametrize("name", SUMS)
def test_sums(name: str) -> None:
    found = tvm_cascade.numerics(after_the_largest(SUMS[name]), inputs=("normal", "large_offset", "late_spike"))
    assert found.fused
    assert found.ok, str(found)


@pytest.mark.parametrize("name", EXTREMA)
def test_extrema(name: str) -> None:
    found = tvm_cascade.numerics(after_the_largest(EXTREMA[name], maximum), inputs=("normal", "large_offset"))
    assert found.fused
    assert found.ok, str(found)


@pytest.mark.parametrize("name", OF_CUDA)
def test_functions_that_llvm_has_not(name: str) -> None:
    (group,) = tvm_cascade.explain(after_the_largest(OF_CUDA[name]), force=True).groups
    assert group.verdict is Verdict.FUSED
