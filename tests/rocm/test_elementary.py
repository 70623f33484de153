"""Elementary functions on AMD GPUs: right where they are computed, and an error where they are not."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from tvm import ir, te, tirx

from tvm_cascade.errors import InputError
from tvm_cascade.schedule.amdgpu_math import lower_amdgpu_math
from tvm_cascade.schedule.gpu_serial import launch_serial

from .emulator.run import Array, compiler, execute
from .programs import target_of

X = np.linspace(-4, 4, 62)  # without 0
FUNCTIONS: dict[str, tuple[Callable[[ir.Expr], ir.Expr], Callable[[float], float]]] = {
    "tanh": (tirx.tanh, math.tanh),
    "erf": (tirx.erf, math.erf),
    "sigmoid": (tirx.sigmoid, lambda x: 1 / (1 + math.exp(-x))),
    "exp": (tirx.exp, math.exp),
    "cube": (lambda x: tirx.power(x, tirx.const(3.0, x.ty.dtype)), lambda x: x**3),
    "inverse_square": (lambda x: tirx.power(x, tirx.const(-2.0, x.ty.dtype)), lambda x: x**-2),
}
EPSILONS = 10
"""Relative error, in distances of 1 to the next number."""


def program(dtype: str, functions: dict[str, Callable[[ir.Expr], ir.Expr]]) -> tirx.PrimFunc:
    """Each function of the same elements, as an output of its name."""
    x = te.placeholder((len(X),), dtype, name="x")

    def applied(function: Callable[[ir.Expr], ir.Expr]) -> Callable[[ir.Expr], ir.Expr]:
        return lambda i: function(x(i))

    made = [te.compute((len(X),), applied(function), name=name) for name, function in functions.items()]
    return te.create_prim_func([x, *made]).with_attr("global_symbol", "main")


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_functions_are_right(dtype: str) -> None:
    func = launch_serial(program(dtype, {name: function for name, (function, _) in FUNCTIONS.items()}))
    x: Array = X.astype(dtype)
    found = execute(lower_amdgpu_math(func, "main")[0], target_of(), [x])
    for name, (_, exact) in FUNCTIONS.items():
        expected = np.array([exact(float(value)) for value in x])
        error = np.abs(found[name].astype("float64") / expected - 1)
        assert np.max(error) < EPSILONS * np.finfo(dtype).eps, name


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
    [(tirx.exp, "exp", "float64"), (tirx.sin, "sin", "float32"), (_power_of_itself, "pow", "float32")],
)
def test_function_that_needs_a_library(function: Callable[[ir.Expr], ir.Expr], name: str, dtype: str) -> None:
    """LLVM would end the process at some of them."""
    with pytest.raises(InputError, match=f"`{name}` of {dtype}(.|\n)*function `main`"):
        lower_amdgpu_math(program(dtype, {"y": function}), "main")
