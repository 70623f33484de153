"""Nests that may not run in parallel, on a GPU: one thread runs each serially.

nest   ->   for blockIdx.x in 1: for threadIdx.x in 1: nest

TVM's Schedule refuses to bind a loop around a block that it cannot classify, so this is a rewrite of the function.
"""

from __future__ import annotations

from tvm import ir, s_tir, tirx

from tvm_cascade.analysis.statements import statements_of, with_root
from tvm_cascade.analysis.tir import within


def launch_serial(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with each nest that no thread is bound in as a kernel of one.

    It is the very one that came in where there is no such nest, or anything but nests in its root block.
    """
    if not isinstance(func.body, s_tir.SBlockRealize):
        return func
    nests = statements_of(func)
    if not all(isinstance(nest, (tirx.For, s_tir.SBlockRealize)) for nest in nests):
        return func
    launched = [nest if _is_bound(nest) else _launched(nest) for nest in nests]
    if all(new is old for new, old in zip(launched, nests, strict=True)):
        return func
    return with_root(func, launched)


def _is_bound(nest: tirx.Stmt) -> bool:
    launches = any(note.attr_key == "thread_extent" for note in within(nest, tirx.AttrStmt))  # as TVM's sorting says it
    return launches or any(loop.thread_binding is not None for loop in within(nest, tirx.For))


def _launched(nest: tirx.Stmt) -> tirx.Stmt:
    zero, one = tirx.const(0, "int32"), tirx.const(1, "int32")
    for thread in ("threadIdx.x", "blockIdx.x"):
        bound = tirx.IterVar(ir.Range(zero, one), tirx.Var(thread, "int32"), tirx.IterVar.ThreadIndex, thread)
        nest = tirx.For(tirx.Var("one", "int32"), zero, one, tirx.ForKind.THREAD_BINDING, nest, bound)
    return nest
