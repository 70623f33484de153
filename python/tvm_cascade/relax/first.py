"""The first kernel of a function apart from its other calls, as it alone meets what the caller launched before.

    norm(x); product(…); norm(y); …      →      norm_first(x); product(…); norm(y); …

It lets the next kernel start once it has waited: all that the caller wrote is there then. Kernels behind it may let the
next one start at once, which may read what no kernel of the function writes.
"""

from __future__ import annotations

from collections import Counter

import tvm
from tvm import ir, relax

from tvm_cascade.relax.graph import CALL_TIR


def first_callees(mod: tvm.IRModule) -> dict[str, str] | None:
    """The PrimFunc that each Relax function calls first, by the function's name; None where branches leave it open."""
    found: dict[str, str] = {}
    for var, func in mod.functions_items():
        values = _values(func)
        if any(isinstance(value, relax.If) for value in values):
            return None
        if calls := [value for value in values if _is_call(value)]:
            found[var.name_hint] = calls[0].args[0].name_hint
    return found


def called_again(mod: tvm.IRModule) -> set[str]:
    """The PrimFuncs that are called more than once."""
    calls = (value for _, func in mod.functions_items() for value in _values(func) if _is_call(value))
    return {name for name, count in Counter(call.args[0].name_hint for call in calls).items() if count > 1}


def with_first_call(mod: tvm.IRModule, name: str, callee: tvm.tirx.PrimFunc) -> tvm.IRModule:
    """The module in which a Relax function's first call is of a function of its own.

    Parameters
    ----------
    name : of the Relax function.
    callee : what is called instead, with the same parameters.
    """
    func, made = mod[name], mod.clone()
    first = next(value for value in _values(func) if _is_call(value))
    own = relax.BlockBuilder(made)
    var = own.add_func(callee.without_attr("global_symbol"), f"{first.args[0].name_hint}_first")
    made = own.finalize()
    call = relax.Call(first.op, [var, *first.args[1:]], first.attrs, first.ty_args)
    blocks = [_with_call(block, first, call) for block in func.body.blocks]
    body = relax.SeqExpr(blocks, func.body.body)
    made.update_func(
        made.get_global_var(name), relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)
    )
    return made


def _with_call(block: relax.BindingBlock, old: relax.Call, new: relax.Call) -> relax.BindingBlock:
    if not any(binding.value.same_as(old) for binding in block.bindings):
        return block
    bindings = [relax.VarBinding(b.var, new) if b.value.same_as(old) else b for b in block.bindings]
    return type(block)(bindings)


def _values(func: ir.BaseFunc) -> list[relax.Expr]:
    """What a Relax function binds, in order; nothing of another function."""
    if not isinstance(func, relax.Function) or not isinstance(func.body, relax.SeqExpr):
        return []
    return [binding.value for block in func.body.blocks for binding in block.bindings]


def _is_call(value: relax.Expr) -> bool:
    return isinstance(value, relax.Call) and value.op == CALL_TIR
