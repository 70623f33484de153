"""One table names all elements of a cascade: what two expressions are called differs exactly where they do."""

import numpy as np
import sympy as sp
from tvm import te, tirx

from tvm_cascade.analysis.expression import AtomTable


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
