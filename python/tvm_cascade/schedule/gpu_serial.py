"""Nests of which nothing is known, on a GPU: one thread runs each, as it stands.

nest   ->   for blockIdx.x in 1: for threadIdx.x in 1: nest

TVM's Schedule refuses to bind a loop around a block that it cannot classify, so this is a rewrite of the function.
"""

from __future__ import annotations

import tvm_ffi
from tvm import ir, s_tir, tirx

from tvm_cascade.transform.nest import OPAQUE, ROLE

__all__ = ["launch_opaque"]


def launch_opaque(func: tirx.PrimFunc, every: bool = False) -> tirx.PrimFunc:
    """The function with each opaque nest as a kernel of one thread; the very one that came in where there is none.

    Parameters
    ----------
    every : the other nests as well, for a function that TVM's Schedule takes nothing of.
    """
    root = func.body.block
    nests = list(root.body.seq) if isinstance(root.body, tirx.SeqStmt) else [root.body]
    if not every and not any(_is_opaque(nest) for nest in nests):
        return func
    launched = [_launched(nest) if every or _is_opaque(nest) else nest for nest in nests]
    body = launched[0] if len(launched) == 1 else tirx.SeqStmt(launched)
    fields = (root.iter_vars, root.reads, root.writes, root.name_hint, body, root.init)
    whole = s_tir.SBlock(*fields, root.alloc_buffers, root.match_buffers, root.annotations)
    return func.with_body(s_tir.SBlockRealize([], True, whole))


def _is_opaque(nest: tirx.Stmt) -> bool:
    blocks: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(nest, (s_tir.SBlock, blocks.append))
    return any(str(block.annotations.get(ROLE, "")) == OPAQUE for block in blocks)


def _launched(nest: tirx.Stmt) -> tirx.Stmt:
    zero, one = tirx.const(0, "int32"), tirx.const(1, "int32")
    for thread in ("threadIdx.x", "blockIdx.x"):
        bound = tirx.IterVar(ir.Range(zero, one), tirx.Var(thread, "int32"), tirx.IterVar.ThreadIndex, thread)
        nest = tirx.For(tirx.Var("one", "int32"), zero, one, tirx.ForKind.THREAD_BINDING, nest, bound)
    return nest
