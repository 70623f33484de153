"""The functions of a user's argument: a module, or one PrimFunc."""

from __future__ import annotations

import tvm
from tvm import ir, tirx

from tvm_cascade.errors import InputError


def functions_of(mod_or_func: object, where: str) -> dict[str, ir.BaseFunc]:
    """The functions of a module, or the one function, by name.

    Raises
    ------
    InputError
        When it is neither a module nor a PrimFunc; the message names `where`.
    """
    if isinstance(mod_or_func, tirx.PrimFunc):
        symbol = mod_or_func.attrs.get("global_symbol") if mod_or_func.attrs is not None else None
        return {str(symbol or "main"): mod_or_func}
    if not isinstance(mod_or_func, tvm.IRModule):
        hint = "make a PrimFunc with te.create_prim_func, @T.prim_func(s_tir=True) or relax.transform.LegalizeOps"
        raise InputError("an IRModule or a tirx.PrimFunc", type(mod_or_func).__name__, where, hint)
    return {variable.name_hint: function for variable, function in mod_or_func.functions_items()}
