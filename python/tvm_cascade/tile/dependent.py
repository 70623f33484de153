"""Programmatic dependent launch: a kernel is launched while the one before it ends, and waits for what that one wrote.

    griddepcontrol.wait        before anything else: all that earlier kernels of the stream wrote is there

Every kernel of a chain waits before it reads or writes, so that the end of one implies the end of all before it. The
first of a plan waits for nothing and is launched as usual: it may overwrite what the call before it still reads. Blocks
let the next kernel come by ending. To let it come when they start (griddepcontrol.launch_dependents) saves 0.2 µs more
where blocks are few, but costs each block 0.9 µs: 3 kernels of 128 blocks take 5.4 instead of 5.8 µs (8.4 when launched
as usual), those of 8192 blocks 29 instead of 20 µs (measured on an H200).
"""

from __future__ import annotations

import tvm
from tvm import ir, tirx

WAITS = "tvm_cascade.waits"
"""Function attribute: its kernels are launched while those before them still run, and wait for them."""

_LAUNCH_PARAMS = "tirx.kernel_launch_params"
_DEPENDENT = "tirx.use_programtic_dependent_launch"
"""TVM's name of the launch attribute; the runtime takes it from among a kernel's launch parameters."""


def is_dependent(func: tirx.PrimFunc) -> bool:
    """Whether the kernels of a function are launched dependently."""
    return func.attrs is not None and bool(func.attrs.get(WAITS, False))


def with_dependence(lowered: tvm.IRModule) -> tvm.IRModule:
    """A dependent function's host and device code, with the waits and the launch attributes of its kernels."""
    functions = {
        name: _dependent(one) if _LAUNCH_PARAMS in one.attrs else one for name, one in lowered.functions.items()
    }
    return tvm.IRModule(functions, attrs=lowered.attrs)


def _dependent(kernel: tirx.PrimFunc) -> tirx.PrimFunc:
    wait = ir.Call(ir.Op.get("tirx.ptx.griddepcontrol"), ["wait", ""], ret_ty="void")
    waiting = kernel.with_body(tirx.SeqStmt([tirx.Evaluate(wait), kernel.body]))
    return waiting.with_attr(_LAUNCH_PARAMS, [_DEPENDENT, *kernel.attrs[_LAUNCH_PARAMS]])
