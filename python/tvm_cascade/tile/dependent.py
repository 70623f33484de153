"""Programmatic dependent launch: a kernel starts while the one before it ends, and waits for what that one wrote.

Instructions of kernels that have a predecessor, or a successor, in the same plan:

    griddepcontrol.wait                  before anything else: all that earlier kernels of the stream wrote is there
    griddepcontrol.launch_dependents     after it: the next kernel may come as soon as all blocks of this one run

Every kernel of a chain waits before it reads or writes, so that the end of one implies the end of all before it. The
first of a plan waits for nothing and is launched as usual: it may overwrite what the call before it still reads.
"""

from __future__ import annotations

import tvm
from tvm import ir, tirx

WAITS = "tvm_cascade.waits"
"""Function attribute: its kernels are launched while those before them still run, and wait for them."""

SIGNALS = "tvm_cascade.signals"
"""Function attribute: the kernels after its own may be launched while these still run."""

_LAUNCH_PARAMS = "tirx.kernel_launch_params"
_DEPENDENT = "tirx.use_programtic_dependent_launch"
"""TVM's name of the launch attribute; the runtime takes it from among a kernel's launch parameters."""


def is_dependent(func: tirx.PrimFunc) -> bool:
    """Whether the kernels of a function are launched dependently, or others on them."""
    return func.attrs is not None and any(bool(func.attrs.get(key, False)) for key in (WAITS, SIGNALS))


def with_dependence(func: tirx.PrimFunc, lowered: tvm.IRModule) -> tvm.IRModule:
    """A function's host and device code, with the waits and the launch attributes of its kernels.

    Parameters
    ----------
    func : the function before it was lowered, whose attributes say what its kernels depend on.
    lowered : what became of it alone.
    """
    waits, signals = (bool(func.attrs.get(key, False)) for key in (WAITS, SIGNALS))
    functions = {
        name: _dependent(one, waits, signals) if _LAUNCH_PARAMS in one.attrs else one
        for name, one in lowered.functions.items()
    }
    return tvm.IRModule(functions, attrs=lowered.attrs)


def _dependent(kernel: tirx.PrimFunc, waits: bool, signals: bool) -> tirx.PrimFunc:
    actions = [action for action, needed in (("wait", waits), ("launch_dependents", signals)) if needed]
    changed = kernel.with_body(tirx.SeqStmt([*map(_control, actions), kernel.body]))
    if not waits:
        return changed
    return changed.with_attr(_LAUNCH_PARAMS, [_DEPENDENT, *changed.attrs[_LAUNCH_PARAMS]])


def _control(action: str) -> tirx.Stmt:
    operation = ir.Op.get("tirx.ptx.griddepcontrol")
    return tirx.Evaluate(ir.Call(operation, [action, ""], ret_ty="void"))
