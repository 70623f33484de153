"""One table names all elements of a cascade: what two expressions are called differs exactly where they do."""

import numpy as np
import pytest
import sympy as sp
from tvm import te, tirx

from tvm_cascade.analysis.expression import AtomTable
from tvm_cascade.symbolic.masks import is_truth


def _loads(count: int) -> tuple[tirx.Var, list]:
    """Elements of one tensor at different distances from the position, and the position."""
    x = tirx.decl_buffer((64,), "float32", name="x")
    position = tirx.Var("l", "int32")
    return position, [x[position + k] for k in range(count)]


def test_a_copy_gives_no_name_twice():
    position, (first, second) = _loads(2)
    table = AtomTable((position,))
    known = table.form(first)
    copied = table.copy()
    assert copied.form(first) == known
    assert copied.form(second) not in (known, *table.sources)
    assert len(set(copied.sources)) == len(copied.sources) == 2


def test_a_copy_leaves_its_table_alone():
    position, (first, second) = _loads(2)
    table = AtomTable((position,))
    table.of(first)
    table.copy().of(second)
    assert len(table.atoms) == len(table.sources) == 1


def test_a_logarithm_takes_a_constant_as_its_dtype_has_it():
    table = AtomTable((tirx.Var("l", "int32"),))
    log = table.form(te.log(tirx.const(1.001, "float32")))
    assert log.is_Rational and abs(log - sp.log(sp.Rational(float(np.float32(1.001))))).evalf() < 1e-30
    assert table.form(te.exp(tirx.const(0.1, "float32"))) == sp.exp(sp.Rational(1, 10))


@pytest.mark.parametrize(
    ("chosen", "other", "dtype", "known"),
    [
        (1, 0, "float32", {"truth", "nonnegative"}),
        (0, 1, "int8", {"truth", "nonnegative"}),
        (2, 0.5, "float32", {"nonnegative", "positive"}),
        (2, 0, "int32", {"nonnegative"}),
        (1, -1, "float32", set()),
        (1, float("nan"), "float32", set()),
        (0, float("-inf"), "float32", set()),
    ],
)
def test_a_selection_has_the_sign_of_both_branches(chosen, other, dtype, known):
    condition = tirx.decl_buffer((64,), "bool", name="keep")[tirx.Var("l", "int32")]
    leaf = AtomTable(()).form(tirx.Select(condition, tirx.const(chosen, dtype), tirx.const(other, dtype)))
    assert {fact for fact in ("nonnegative", "positive") if getattr(leaf, f"is_{fact}")} == known - {"truth"}
    assert is_truth(leaf) == ("truth" in known)


def test_a_selection_of_a_square_or_an_exponential_is_a_weight():
    position, (x,) = _loads(1)
    keep = tirx.decl_buffer((64,), "bool", name="keep")[position]
    for value, positive in ((x * x, False), (te.exp(x), True), (te.sqrt(x * x) + 1.0, True)):
        leaf = AtomTable((position,)).form(tirx.if_then_else(keep, value, te.exp(x)))
        assert leaf.is_nonnegative and bool(leaf.is_positive) == positive
    assert AtomTable((position,)).form(tirx.if_then_else(keep, x, te.exp(x))).is_nonnegative is None
