"""Float64 literals in CUDA text by their bits, since TVM prints fifteen decimals, 1e-32 as 0."""

from __future__ import annotations

import struct

import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

_FROM_BITS = "__longlong_as_double"


def _is_exact(value: float) -> bool:
    """Whether TVM's text has the value, or has no digits for it at all: infinities and NaN have names there."""
    return value - value != 0.0 or float(f"{value:.15f}") == value


def _written(constant: prim.FloatImm) -> ir.Expr:
    value = float(constant)
    if str(constant.ty.dtype) != "float64" or _is_exact(value):
        return constant
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return tirx.call_pure_extern("float64", _FROM_BITS, tirx.const(bits, "int64"))


@tvm.transform.module_pass(opt_level=0, name="tvm_cascade.ExactLiterals")
def exact_literals(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Device functions with every float64 as it is: c -> __longlong_as_double(bits of c), where text would round it."""
    changed = {
        g: f.with_body(tvm_ffi.structural_map(f.body, (prim.FloatImm, _written)))
        for g, f in mod.functions.items()
        if isinstance(f, tirx.PrimFunc)
    }
    mod = mod.clone()
    mod.update(tvm.IRModule(changed))
    return mod
