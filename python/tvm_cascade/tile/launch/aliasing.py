"""Kernels whose pointers the CUDA compiler must not be told to be without aliases (`__restrict__`).

nvcc 13.0 turns a choice between loads of two arrays into a load from a chosen address, and then takes that load for one
of memory that nobody writes, although the kernel writes one of the arrays: it is moved before the stores, and those are
dropped. The least such kernel, with every pointer `__restrict__`:

    p[i] = 0;  p[i] = k[i] > 0 ? p[i] : q[i];     →     p[i] = k[i] > 0 ? (p[i] as it was before) : q[i];
"""

from __future__ import annotations

from typing import TypeAlias

import tvm
import tvm_ffi
from tvm import ir, tirx

from tvm_cascade.analysis.expression import call_name

_NO_ALIAS = "tirx.noalias"
_CHOICE = "if_then_else"

_Branches: TypeAlias = tuple[ir.Expr | tirx.Stmt | None, ...]


@tvm.transform.module_pass(opt_level=0, name="tvm_cascade.TrueAliasing")
def true_aliasing(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Device functions, without `noalias` where they choose between arrays that they write and others."""
    mod = mod.clone()
    for name, func in mod.functions.items():
        if isinstance(func, tirx.PrimFunc) and chooses_from_written(func):
            mod[name] = func.with_attr(_NO_ALIAS, False)
    return mod


def chooses_from_written(kernel: tirx.PrimFunc) -> bool:
    """Whether one branch of a choice reads a parameter that the kernel stores to, and the other one any parameter."""
    given: dict[ir.Var, ir.Var] = {param: param for param in kernel.params}
    stored: list[ir.Var] = []
    choices: list[_Branches] = []
    tvm_ffi.structural_walk(
        kernel.body,
        [
            (tirx.DeclBuffer, lambda declared: given.update({declared.buffer: declared.data})),
            (tirx.BufferStore, lambda store: stored.append(store.buffer)),
            (tirx.IfThenElse, lambda choice: choices.append((_stores(choice.then_case), _stores(choice.else_case)))),
            (tirx.Select, lambda choice: choices.append((choice.true_value, choice.false_value))),
            (ir.Call, lambda call: choices.extend([tuple(call.args[1:])] if call_name(call) == _CHOICE else [])),
        ],
    )
    written = {given[buffer] for buffer in stored if buffer in given}
    reads = ([{given[b] for b in _sources(branch) if b in given} for branch in branches] for branches in choices)
    return any(all(branches) and bool(set().union(*branches) & written) for branches in reads)


def _stores(branch: tirx.Stmt | None) -> tirx.Stmt | None:
    """A branch of nothing but stores, which may become a choice of values; None of another one."""
    parts = branch.seq if isinstance(branch, tirx.SeqStmt) else [branch]
    return branch if all(isinstance(part, (tirx.BufferStore, tirx.Bind)) for part in parts) else None


def _sources(code: ir.Expr | tirx.Stmt | None) -> list[ir.Var]:
    """The buffers that an expression or statement reads."""
    read: list[ir.Var] = []
    if code is not None:
        tvm_ffi.structural_walk(code, (ir.TensorLoad, lambda load: read.append(load.source)))
    return read
