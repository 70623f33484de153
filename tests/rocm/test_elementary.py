"""Elementary functions on AMD GPUs: right where they are computed, and an error where they are not."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import mpmath
import numpy as np
import pytest
from tvm import ir, te, tirx

from tvm_cascade.errors import InputError
from tvm_cascade.schedule.amdgpu_math import lower_amdgpu_math
from tvm_cascade.schedule.gpu import launch_serial

from .emulator.run import Array, compiler, execute
from .programs import target_of

X = np.array([*np.linspace(-4, 4, 60), 0.01, 1 / 3])  # without 0
FUNCTIONS: dict[str, tuple[Callable[[ir.Expr], ir.Expr], Callable[[mpmath.mpf], mpmath.mpf]]] = {
    "exp": (tirx.exp, mpmath.exp),
    "exp2": (tirx.exp2, lambda x: mpmath.mpf(2) ** x),
    "log": (lambda x: tirx.log(tirx.abs(x)), lambda x: mpmath.log(abs(x))),
    "log2": (lambda x: tirx.log2(tirx.abs(x)), lambda x: mpmath.log(abs(x), 2)),
    "log10": (lambda x: tirx.log10(tirx.abs(x)), lambda x: mpmath.log10(abs(x))),
    "tanh": (tirx.tanh, mpmath.tanh),
    "sigmoid": (tirx.sigmoid, lambda x: 1 / (1 + mpmath.exp(-x))),
    "erf": (tirx.erf, mpmath.erf),
    "cube": (lambda x: tirx.power(x, tirx.const(3.0, x.ty.dtype)), lambda x: x**3),
    "inverse_square": (lambda x: tirx.power(x, tirx.const(-2.0, x.ty.dtype)), lambda x: x**-2),
}
EPSILONS = 10
"""Relative error, in distances of 1 to the next number of the dtype."""


def program(dtype: str, functions: dict[str, Callable[[ir.Expr], ir.Expr]], length: int = len(X)) -> tirx.PrimFunc:
    """Each function of the same elements, as an output of its name."""
    x = te.placeholder((length,), dtype, name="x")

    def applied(function: Callable[[ir.Expr], ir.Expr]) -> Callable[[ir.Expr], ir.Expr]:
        return lambda i: function(x(i))

    made = [te.compute((length,), applied(function), name=name) for name, function in functions.items()]
    return te.create_prim_func([x, *made]).with_attr("global_symbol", "main")


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_functions_are_right(dtype: str) -> None:
    functions = {name: function for name, (function, _) in FUNCTIONS.items() if (name, dtype) != ("erf", "float64")}
    x: Array = X.astype(dtype)
    found = execute(lower_amdgpu_math(launch_serial(program(dtype, functions)), "main")[0], target_of(), [x])
    for name, values in found.items():
        for argument, value in zip(x, values, strict=True):
            exact = FUNCTIONS[name][1](mpmath.mpf(float(argument)))
            unit = np.finfo(dtype).eps * max(float(abs(exact)), float(np.finfo(dtype).tiny))
            assert abs(mpmath.mpf(float(value)) - exact) < EPSILONS * unit, (name, argument, value)


SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-310, 5e-324, 709.7, 709.9, -745.0, -750.0, 1e300])


CLASSED = ("exp", "exp2", "log", "log2", "tanh")


@cache
def of_special_values() -> dict[str, Array]:
    func = launch_serial(program("float64", {name: getattr(tirx, name) for name in CLASSED}, len(SPECIAL)))
    return execute(lower_amdgpu_math(func, "main")[0], target_of(), [SPECIAL])


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", CLASSED)
def test_special_values_of_float64(name: str) -> None:
    """Against NumPy: infinities, NaN, 0, denormal arguments and results."""
    found = of_special_values()[name]
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(SPECIAL)
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    finite = np.isfinite(expected)
    assert np.array_equal(found[np.isinf(expected)], expected[np.isinf(expected)])
    assert np.max(np.abs(found[finite] - expected[finite]) / np.spacing(np.abs(expected[finite]))) <= EPSILONS


def test_what_is_replaced_is_told() -> None:
    functions = {name: FUNCTIONS[name][0] for name in ("tanh", "exp")}
    assert lower_amdgpu_math(program("float32", functions), "main")[1] == ("tanh",)


def test_function_of_instructions_alone_is_left_alone() -> None:
    func = program("float32", {"root": tirx.sqrt})
    assert lower_amdgpu_math(func, "main")[0].script() == func.script()


def _power_of_itself(x: ir.Expr) -> ir.Expr:
    return tirx.pow(x, x)


@pytest.mark.parametrize(
    ("function", "name", "dtype"),
    [(tirx.erf, "erf", "float64"), (tirx.sin, "sin", "float32"), (_power_of_itself, "pow", "float32")],
)
def test_function_that_needs_a_library(function: Callable[[ir.Expr], ir.Expr], name: str, dtype: str) -> None:
    """LLVM would end the process at some of them."""
    with pytest.raises(InputError, match=f"`{name}` of {dtype}(.|\n)*function `main`"):
        lower_amdgpu_math(program(dtype, {"y": function}), "main")
