"""Programs without a gradient, and calls that ask for what there is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tvm
from tvm import te, tirx

from tvm_cascade import gradient
from tvm_cascade.errors import GradientError, InputError, OptionError

from ..analysis.programs import array, each, fold, maximum, number, product, program, total, tupled

x = array("x", 3, 6)


def _at_the_maximum() -> tirx.PrimFunc:
    most = fold("most", lambda i, j: x[i, j], maximum, 6, (3,))
    return program(x, fold("met", lambda i, j: te.if_then_else(x[i, j] == most[i], x[i, j], number(0)), total, 6, (3,)))


def _rows_of_a_table() -> tirx.PrimFunc:
    rows = te.placeholder((4,), "int32", name="rows")
    return program(x, rows, each("out", lambda i, j: x[rows[i], j], 4, 6))


def _of_tuples() -> tirx.PrimFunc:
    parts = tupled(
        "pair",
        lambda a, b: (a[0] + b[0], te.max(a[1], b[1])),
        lambda *_: (number(0), te.min_value("float32")),
        lambda i, j: (x[i, j], x[i, j]),
        6,
        (3,),
    )
    return program(x, *parts)


REFUSED: dict[str, tuple[str, Callable[[], tirx.PrimFunc]]] = {
    "a cast to an integer": ("not_smooth", lambda: program(x, each("out", _through("int32"), 3, 6))),
    "a cast to float8": ("not_smooth", lambda: program(x, each("out", _through("float8_e4m3fn"), 3, 6))),
    "a rounding": ("not_smooth", lambda: program(x, each("out", lambda i, j: te.floor(x[i, j]) * x[i, j], 3, 6))),
    "a function that is not known": ("not_smooth", lambda: program(x, each("out", lambda i, j: te.erf(x[i, j]), 3, 6))),
    "a condition on a result": ("not_smooth", _at_the_maximum),
    "a product": ("no_adjoint", lambda: program(x, fold("out", lambda i, j: x[i, j], product, 6, (3,)))),
    "a reducer of tuples": ("no_adjoint", _of_tuples),
    "rows of a table": ("not_invertible", _rows_of_a_table),
}


def _through(dtype: str) -> Callable[..., tvm.ir.Expr]:
    return lambda i, j: x[i, j].astype(dtype).astype("float32") + x[i, j]


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_have_a_code(name: str) -> None:
    code, build = REFUSED[name]
    with pytest.raises(GradientError, match=rf"\[{code}\]"):
        gradient(build())


def test_what_has_no_gradient_may_be_left_out() -> None:
    """Of a rounded input, by another one; and of an output that is no result of what is refused."""
    y = array("y", 3, 6)
    rounded = each("rounded", lambda i, j: te.floor(x[i, j]) * y[i, j], 3, 6)
    squares = each("squares", lambda i, j: x[i, j] * x[i, j], 3, 6)
    func = program(x, y, rounded, squares)
    assert [p.name for p in gradient(func, wrt="y").backward.params] == ["x", "d_rounded", "d_squares", "d_y"]
    assert [p.name for p in gradient(func, of="squares", wrt="x").backward.params] == ["x", "d_squares", "d_x"]


@pytest.mark.parametrize(
    "options", [{"of": "x"}, {"wrt": ["x", "z"]}, {"wrt": []}, {"saved": ["x"]}, {"saved": ["nothing"]}]
)
def test_names_that_there_are_not(options: dict[str, object]) -> None:
    func = program(x, fold("out", lambda i, j: x[i, j] * x[i, j], total, 6, (3,)))
    with pytest.raises(OptionError, match=rf"gradient\({next(iter(options))}=…\)"):
        gradient(func, **options)


def test_integers_have_no_gradient() -> None:
    words = array("words", 3, 6, dtype="int32")
    with pytest.raises(OptionError, match="it has no floats there"):
        gradient(program(words, fold("out", lambda i, j: words[i, j], total, 6, (3,))))


def test_what_is_no_function_or_cannot_be_read() -> None:
    func = program(x, fold("out", lambda i, j: x[i, j], total, 6, (3,)))
    with pytest.raises(InputError, match=r"a tirx\.PrimFunc"):
        gradient(tvm.IRModule({"main": func}))
    schedule = tvm.s_tir.Schedule(func)
    schedule.parallel(schedule.get_loops(schedule.get_sblock("out"))[0])
    with pytest.raises(GradientError, match=r"\[scheduled\]"):
        gradient(schedule.mod["main"])
