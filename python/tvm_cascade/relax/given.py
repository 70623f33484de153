"""Tensors that no kernel of a function writes, such as weights: a kernel may read them while the one before it ends.

A kernel that is launched dependently starts once the first kernel of the function has waited for those of its caller
(`relax.first`): what they wrote is there. That first kernel is left out, since what its caller launched just before may
write any argument.
"""

from __future__ import annotations

import tvm
from tvm import ir, relax

from tvm_cascade.relax.graph import CALL_TIR, is_tensor, variables_in

_RESHAPE = ir.Op.get("relax.reshape")


def given_operands(mod: tvm.IRModule) -> dict[str, tuple[int, ...]]:
    """The PrimFuncs of a module with operands that are given in all calls, by the operands' places among parameters."""
    found: dict[str, set[int]] = {}
    for _, func in mod.functions_items():
        if isinstance(func, relax.Function):
            for name, places in _calls(func):
                found[name] = found[name] & places if name in found else places
    return {name: tuple(sorted(places)) for name, places in found.items() if places}


def _calls(func: relax.Function) -> list[tuple[str, set[int]]]:
    """The calls of PrimFuncs, each with its given operands; none are given where blocks may run in another order."""
    calls: list[tuple[str, set[int]]] = []
    if not isinstance(func.body, relax.SeqExpr):
        return calls
    given, straight = set(func.params), True
    for binding in (binding for block in func.body.blocks for binding in block.bindings):
        value = binding.value
        straight &= not isinstance(value, relax.If)
        if not isinstance(value, relax.Call):
            continue
        if value.op == _RESHAPE and value.args[0] in given:
            given.add(binding.var)
        elif value.op == CALL_TIR:
            arguments = value.args[1].fields if isinstance(value.args[1], relax.Tuple) else []
            tensors = [(k, one) for k, one in enumerate(arguments) if is_tensor(one)]
            places = {k for k, one in tensors if not variables_in(one) or one in given}
            calls.append((value.args[0].name_hint, places if calls and straight else set()))
        elif isinstance(value.op, ir.Op) and "inplace" in value.op.name:
            given.clear()  # a view of what is written may have another name
    return calls
