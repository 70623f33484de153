"""Fast mathematics, kernel by kernel: where the compiler may take the hardware's approximations of functions.

It also takes subnormal float32 numbers for zero, so that it is a property of each kernel and of no module.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import ir, tirx

from tvm_cascade.analysis.expression import call_name

FAST_MATH = "tvm_cascade.fast_math"
"""Function attribute: its kernels may be compiled with approximations. Of every other function they are exact."""

_UNBOUNDED = frozenset({"sin", "cos", "tan", "pow"})
"""Functions whose approximations have no bound of their relative error over all arguments (CUDA C++ Programming Guide,
"Intrinsic Functions": __sinf and __cosf are bounded on [-π, π] only, __powf by its product of a logarithm)."""

_LOGARITHMS = frozenset({"log", "log2", "log10", "log1p"})
"""Functions whose approximations have a bound of their absolute error where they are near 0 (same source: 2^-21.4 on
[0.5, 2]). That suits sums, but no logarithm of a logarithm: Gumbel noise −log(−log u) is largest for u near 1."""


def with_fast_math(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function, marked, if approximations of all that it calls suit results of half precision."""
    return func if needs_exact(func.body) else func.with_attr(FAST_MATH, True)


def needs_exact(code: ir.Expr | tirx.Stmt) -> bool:
    """Whether some function in an expression or statement is not to be approximated."""
    called: list[ir.Call] = []
    tvm_ffi.structural_walk(code, (ir.Call, called.append))
    return any(call_name(call) in _UNBOUNDED or _is_log_of_log(call) for call in called)


def _is_log_of_log(call: ir.Call) -> bool:
    """Whether it is a logarithm of what another one is a part of."""
    inner: list[ir.Call] = []
    if call_name(call) in _LOGARITHMS:
        for argument in call.args:
            tvm_ffi.structural_walk(argument, (ir.Call, inner.append))
    return any(call_name(one) in _LOGARITHMS for one in inner)


def is_fast(func: tirx.PrimFunc) -> bool:
    return func.attrs is not None and bool(func.attrs.get(FAST_MATH, False))


def marked_fast(lowered: tvm.IRModule) -> tvm.IRModule:
    """The host and device code of a marked function, all of it marked."""
    functions = {name: one.with_attr(FAST_MATH, True) for name, one in lowered.functions.items()}
    return tvm.IRModule(functions, attrs=lowered.attrs)
