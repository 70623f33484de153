"""Builds the functions of a split: nests, the parameters that they use, and what they allocate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx

from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.tir import loads_of, variables_of
from tvm_cascade.errors import RewriteError


def buffers_read(statements: Sequence[tirx.Stmt]) -> list[tirx.Var]:
    """The buffers that nests load, each once."""
    found: list[tirx.Var] = []
    for source in (load.source for statement in statements for load in loads_of(statement)):
        if not among(source, found):
            found.append(source)
    return found


def build(
    program: Program,
    name: str,
    statements: Sequence[tirx.Stmt],
    inputs: Sequence[tirx.Var],
    outputs: Sequence[tirx.Var],
    allocated: Iterable[tirx.Var],
) -> tirx.PrimFunc:
    """A function over nests.

    Parameters
    ----------
    inputs, outputs : its buffers, in order, with numbers of the program's own among the inputs. Variables that nothing
        else defines are passed as numbers after the inputs.

    Raises
    ------
    RewriteError
        When the result is not well formed: a defect of this package.
    """
    params = [*inputs, *outputs]
    inside = [b for b in allocated if not among(b, params)]
    body = statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))
    notes = dict(program.root.annotations)
    root = s_tir.SBlock([], [], [], program.root.name_hint, body, alloc_buffers=inside, annotations=notes)
    numbers = _undefined(body, [*params, *inside])
    kept = {key: value for key, value in dict(program.func.attrs or {}).items() if key != "global_symbol"}
    attrs = tvm.ir.make_node("ir.DictAttrs", **{**kept, "global_symbol": name})
    signature = [*inputs, *numbers, *outputs]
    func = tirx.PrimFunc(signature, s_tir.SBlockRealize([], True, root), attrs=attrs)
    func = tvm.get_global_func("script.Complete")(func, [], True)
    if not s_tir.analysis.verify_well_formed(func, assert_mode=False):
        raise RewriteError("a well-formed function", f"one that is not:\n{func.script()}", name)
    return func


def _undefined(body: tirx.Stmt, buffers: Sequence[tirx.Var]) -> list[tirx.Var]:
    """Numbers that the nests, or extents of what they allocate, read and no parameter's shape defines."""
    shapes = [extent for buffer in buffers if tirx.is_buffer_var(buffer) for extent in buffer.ty.shape]
    plain = [e for b in buffers if tirx.is_buffer_var(b) for e in b.ty.shape if isinstance(e, ir.Var)]
    defined = [*buffers, *plain, *_bound(body)]
    read = [v for e in (*shapes, body) for v in variables_of(e)]
    found: list[tirx.Var] = []
    for var in read:
        if not among(var, [*defined, *found]):
            found.append(var)
    return found


def _bound(body: tirx.Stmt) -> list[tirx.Var]:
    found: list[tirx.Var] = []
    tvm_ffi.structural_walk(
        body,
        [
            (tirx.For, lambda loop: found.append(loop.loop_var)),
            (s_tir.SBlock, lambda block: found.extend(iv.var for iv in block.iter_vars)),
            (tirx.Bind, lambda bound: found.append(bound.var)),
        ],
    )
    return found
