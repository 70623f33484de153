"""Elementary functions on AMD GPUs, without ROCm's device libraries.

    exp(x), log2(x), sqrt(x), …                ->   as they are: LLVM has instructions for them
    tanh(x), sigmoid(x), erf(x) in float32     ->   polynomials, as for vectors of a CPU (`vector_math`)
    the same in float16                        ->   in float32, rounded
    exp(x), log(x), tanh(x), … in float64      ->   polynomials (`double_math`)
    pow(x, 3)                                  ->   x * x * x

TVM's own tanh and erf there lose the digits of small arguments. Its other functions call libraries that are not there,
or end the process: LLVM has no float64 exponential for these GPUs.
"""

from __future__ import annotations

import tvm_ffi
from tvm import ir, tirx

from tvm_cascade.analysis.expression import call_name, whole_exponent
from tvm_cascade.errors import InputError
from tvm_cascade.schedule.double_math import FLOAT64_FORMULAS
from tvm_cascade.schedule.vector_math import Bindings, power_as_product, vectorise_math

__all__ = ["lower_amdgpu_math"]

_EVERYWHERE = frozenset(
    ["floor", "ceil", "trunc", "round", "nearbyint", "fabs", "abs", "sqrt", "rsqrt", "isnan", "isinf", "isfinite"]
)
_NARROW = _EVERYWHERE | {"exp", "exp2", "log", "log2", "log10"}
INSTRUCTIONS = {"float16": _NARROW, "bfloat16": _NARROW, "float32": _NARROW, "float64": _EVERYWHERE}
"""By dtype, the functions that LLVM selects instructions for."""

FORMULAS = frozenset({"tanh", "sigmoid", "erf"})
"""Functions that are computed by polynomials in float32."""

_FORMULA_DTYPES = ("float16", "bfloat16", "float32")

_EXPONENTIAL = frozenset({"exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "pow", "sigmoid", "erf"})
_CIRCULAR = frozenset({"sin", "cos", "tan", "asin", "acos", "atan", "atan2"})
_HYPERBOLIC = frozenset({"sinh", "cosh", "tanh", "asinh", "acosh", "atanh"})
_ELEMENTARY = _EXPONENTIAL | _CIRCULAR | _HYPERBOLIC | {"fmod", "hypot", "nextafter", "copysign", "ldexp"}
"""Functions that TVM calls a library for where it knows no instruction."""


def lower_amdgpu_math(func: tirx.PrimFunc, name: str) -> tuple[tirx.PrimFunc, tuple[str, ...]]:
    """The function with nothing in it that needs a library of elementary functions; and what polynomials replace.

    Parameters
    ----------
    func : before or after scheduling; it is not modified.
    name : its own, for the error.

    Raises
    ------
    InputError
        When a function has neither instructions nor a formula in its dtype.
    """
    calls: list[ir.Call] = []
    tvm_ffi.structural_walk(func.body, (ir.Call, calls.append))
    for call in calls:
        if call_name(call) in _ELEMENTARY and not _is_computed(call):
            expected = "functions that an AMD GPU computes without ROCm's device libraries"
            hint = f"compute it by {', '.join(sorted(_NARROW - _EVERYWHERE))} of float32, or compile for the CPU"
            raise InputError(expected, f"`{call_name(call)}` of {call.ty.dtype}", f"function `{name}`", hint)
    body = tvm_ffi.structural_map(func.body, (ir.Call, _lowered))
    return vectorise_math(func.with_body(body), FORMULAS)


def _is_computed(call: ir.Call) -> bool:
    function, dtype = call_name(call), str(call.ty.dtype)
    if function == "pow":
        return whole_exponent(call) is not None
    formulas = FLOAT64_FORMULAS if dtype == "float64" else FORMULAS if dtype in _FORMULA_DTYPES else ()
    return function in INSTRUCTIONS.get(dtype, ()) or function in formulas


def _lowered(call: ir.Call) -> ir.Expr:
    function, dtype = call_name(call), str(call.ty.dtype) if isinstance(call.ty, ir.PrimType) else ""
    if function == "pow":
        return power_as_product(call)
    if function in FLOAT64_FORMULAS and dtype == "float64":
        bind = Bindings()
        return bind.around(FLOAT64_FORMULAS[function](call.args[0], bind))
    if function in FORMULAS and dtype == "float16":
        return ir.Call(call.op, [call.args[0].astype("float32")], ret_ty=ir.PrimType("float32")).astype(dtype)
    return call
