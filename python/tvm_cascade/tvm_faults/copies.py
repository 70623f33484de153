"""A deep copy of a module, for a Schedule to write into.

The fault: `ScheduleState::Replace` looks whether loops and blocks are shared before it writes into them, and not at the
sequence between them. After a primitive that changes a node alone, such as `annotate`, the next one may write into the
function that the caller holds, and into copies of the schedule.
"""

from __future__ import annotations

import tvm
from tvm import tirx
from tvm_ffi.serialization import from_json_graph_str, to_json_graph_str


def private_copy(source: tvm.IRModule | tirx.PrimFunc) -> tvm.IRModule:
    """The module, or the function as a module's `main`, in nodes of its own.

    It goes through the FFI's JSON. `tvm.ir.load_json` would first bring the text up from older versions, in Python, at
    three times the cost.
    """
    mod = source if isinstance(source, tvm.IRModule) else tvm.IRModule({"main": source})
    return from_json_graph_str(to_json_graph_str(mod))
