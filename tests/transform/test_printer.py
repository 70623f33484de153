"""How expressions are written: numbers as their dtype can hold them."""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp
import tvm
from tvm import te, tirx

from tvm_cascade.symbolic.functions import LN2
from tvm_cascade.transform.printer import Printer

X = sp.Symbol("x", real=True)


def written(expression: sp.Expr, dtype: str) -> tirx.PrimFunc:
    """y[0] = the expression of x[0]."""
    x = te.placeholder((1,), dtype, "x")
    return te.create_prim_func([x, te.compute((1,), lambda i: Printer({X: x(i)}, dtype, {})(expression), "y")])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_fraction_of_large_integers_is_one_factor(dtype: str) -> None:
    text = written(X / LN2, dtype).script()
    assert "/" not in text
    assert "1.44" in text


def test_a_fraction_of_small_integers_divides() -> None:
    assert "/ T.float32(3.0)" in written(X / 3, "float32").script()


@pytest.mark.parametrize(("number", "sign"), [(10**6, 1), (-(10**6), -1)])
def test_a_number_beyond_the_range_is_infinite(number: int, sign: int) -> None:
    func = written(X * number, "float16")
    compiled = tvm.compile(func, target="llvm")
    result = tvm.runtime.empty((1,), "float16")
    compiled(tvm.runtime.tensor(np.ones(1, "float16")), result)
    assert result.numpy()[0] == sign * np.inf


def test_a_term_that_stands_bare_is_not_scaled_for_the_sake_of_a_constant() -> None:
    """x² − x + 1/1000000 as it is: 1000000·x² would round first."""
    text = written(X**2 - X + sp.Rational(1, 10**6), "float32").script()
    assert "1000000" not in text
    assert "T.float32(9.9999999747524271e-07)" in text


def test_a_common_factor_is_applied_to_the_difference_and_not_to_a_constant() -> None:
    """x²/10 − x/10 + 1 as (x² − x)·0.1 + 1: the products would round first."""
    text = written(X**2 / 10 - X / 10 + 1, "float32").script()
    assert text.count("T.float32(0.1") == 1
    assert "T.float32(10.0)" not in text


def test_the_exponent_of_a_square_of_a_difference_is_not_multiplied_out() -> None:
    """exp(x/((x − 1)² + 1)): x² − 2·x + 2 has lost the digits that (x − 1)² has near 1."""
    text = written(sp.exp(X / ((X - 1) ** 2 + 1)), "float32").script()
    assert "T.exp(" in text and "T.float32(2.0)" not in text


def test_a_mean_of_two_large_numbers_is_in_range() -> None:
    """x/2 + |x|/2 as it is: halves are exact, and x + |x| is infinite beyond half of the largest number."""
    func = written(X / 2 + sp.Abs(X) / 2, "float32")
    compiled, result = tvm.compile(func, target="llvm"), tvm.runtime.empty((1,), "float32")
    compiled(tvm.runtime.tensor(np.array([3e38], "float32")), result)
    assert result.numpy()[0] == np.float32(3e38)


def test_a_common_factor_that_the_dtype_does_not_hold_is_not_taken_out() -> None:
    """x/p + y/q for large p and q as it is, not as (q·x + p·y)/(p·q), where q·x is infinite and 1/(p·q) is 0."""
    p, q = sp.Integer(3) ** 100, sp.Integer(7) ** 60
    func = written(X / p * 2**158 + X**2 / q * 2**168, "float32")
    compiled = tvm.compile(func, target="llvm")
    result = tvm.runtime.empty((1,), "float32")
    compiled(tvm.runtime.tensor(np.full(1, 2.0, "float32")), result)
    exact = np.float32(float(sp.Integer(2**159) / p + sp.Integer(2**170) / q))
    assert abs(result.numpy()[0] - exact) <= 4 * np.spacing(exact)  # two constants, two products and a sum are rounded


@pytest.mark.parametrize("extremum", [sp.Abs(X), sp.Max(X, X**3)], ids=["size", "maximum"])
def test_a_value_less_its_own_extremum_is_exact_beside_what_is_small(extremum: sp.Expr) -> None:
    """3·x + 1e-7 − 3·|x| as 3·(x − |x|) + 1e-7: added to 3·x first, nothing of it is left, nor with x·3 in one FMA."""
    func = written(3 * X + sp.Float(1e-7) - 3 * extremum, "float32")
    compiled, result = tvm.compile(func, target="llvm"), tvm.runtime.empty((1,), "float32")
    compiled(tvm.runtime.tensor(np.array([1 / 3], "float32")), result)
    assert result.numpy()[0] == np.float32(1e-7)


def test_every_symbol_is_real_whatever_sympy_sees_of_a_quotient() -> None:
    quotient = X / (X - X**2)
    conjugated = written(sp.conjugate(quotient, evaluate=False), "float32")
    tvm.ir.assert_structural_equal(conjugated, written(quotient, "float32"))


def test_one_as_a_float_is_no_factor_to_take_out() -> None:
    """0.5·x − 0.5·|x| over 0.5 is 1.0·x − 1.0·|x| in SymPy, whose numbers are no integers."""
    text = written(sp.Float(0.5) * (X - sp.Abs(X)), "float32").script()
    assert text.count("T.float32(0.5)") == 1 and "T.float32(1.0)" not in text
