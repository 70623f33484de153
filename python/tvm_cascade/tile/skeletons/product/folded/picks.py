"""Elements of a row that outputs pick by an index, as sums: what is never stored cannot be read at a place of its own.

    out[i] = logits[i, target[i]]   →   picked[i] = Σ_j (logits[i, j] where j = target[i]);   out[i] = picked[i]

The sum has one element that is not zero, and is exact. What a fold of the row tells where to look for is read from the
row afterwards, where that is on chip.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx

from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.reading import read_program
from tvm_cascade.analysis.statements import DETECT_ACCESS, replaced, statements_of, with_block
from tvm_cascade.analysis.tir import DATA_PARALLEL, REDUCTION, dtype_of, loads_of, substitute
from tvm_cascade.transform.printer import cast


def with_picks_as_sums(program: Program) -> Program:
    """The program with sums in place of what maps pick from rows of temporaries; the same where there is nothing."""
    nests, made = list(statements_of(program.root)), list[tirx.Var]()
    for stage in program.stages:
        for load in _picks(program, stage):
            buffer, nest = _sum(load, f"picked_{len(made)}")
            made.append(buffer)
            at = next(k for k, other in enumerate(nests) if other.same_as(stage.nest))
            own = tirx.BufferLoad(buffer, list(load.indices[:-1]))
            body = tvm_ffi.structural_map(stage.block.body, (ir.TensorLoad, lambda x, p=load, o=own: _or(x, p, o)))
            changed = with_block(stage.nest, stage.block, replaced(stage.block, body, stage.block.init))
            nests[at : at + 1] = [nest, changed]
    if not made:
        return program
    found = read_program(_function(program, nests, made))
    return found if isinstance(found, Program) else program


def _picks(program: Program, stage: Stage) -> list[ir.TensorLoad]:
    """The one load of a map that picks an element of a row of a temporary by an index."""
    if stage.reducer is not None or not isinstance(stage.block.body, tirx.BufferStore):
        return []
    return [load for load in loads_of(stage.value) if _is_pick(program, stage, load)][:1]


def _is_pick(program: Program, stage: Stage, load: ir.TensorLoad) -> bool:
    writer = program.writer(load.source)
    if writer is None or program.is_param(load.source) or len(load.indices) < 2:
        return False
    *rows, column = load.indices
    plain = [isinstance(index, ir.Var) and any(index.same_as(v) for v in stage.spatial) for index in rows]
    return all(plain) and bool(loads_of(column)) and not _is_reduced(program, column)


def _is_reduced(program: Program, value: ir.Expr) -> bool:
    """Whether a reduction computes what a value reads."""
    writers = [program.writer(load.source) for load in loads_of(value)]
    return any(w is not None and (w.reducer is not None or _is_reduced(program, w.value)) for w in writers)


def _sum(load: ir.TensorLoad, name: str) -> tuple[tirx.Var, tirx.Stmt]:
    """(picked, the nest that sums it) of a load over the variables of its stage."""
    tensor, dtype = load.source, dtype_of(load.source)
    *shape, length = tensor.ty.shape
    buffer = tirx.decl_buffer(tuple(shape), dtype, name=name, layout=None)
    names = [*(f"i{d}" for d in range(len(shape))), "j"]
    variables, loops = ([tirx.Var(prefix + n, dtype_of(tensor.ty.shape[d])) for d, n in enumerate(names)]
                        for prefix in ("v", ""))  # fmt: skip
    rows, column = variables[:-1], variables[-1]
    place = substitute(load.indices[-1], dict(zip(load.indices[:-1], rows, strict=True)))
    zero, own = tirx.const(0, dtype), tirx.BufferLoad(buffer, rows)
    element = tirx.Select(tirx.EQ(cast(place, dtype_of(column)), column), tirx.BufferLoad(tensor, variables), zero)
    kinds = [*([DATA_PARALLEL] * len(rows)), REDUCTION]
    extents = [*shape, length]
    iters = [
        tirx.IterVar(ir.Range(tirx.const(0, dtype_of(extent)), extent), var, kind)
        for extent, var, kind in zip(extents, variables, kinds, strict=True)
    ]
    notes = {DETECT_ACCESS: tirx.IntImm("int32", 3)}
    block = s_tir.SBlock(
        iters, [], [], name, tirx.BufferStore(buffer, own + element, rows), tirx.BufferStore(buffer, zero, rows),
        annotations=notes,
    )  # fmt: skip
    nest: tirx.Stmt = s_tir.SBlockRealize(list(loops), True, block)
    for loop, extent in reversed(list(zip(loops, extents, strict=True))):
        nest = tirx.For(loop, tirx.const(0, dtype_of(extent)), extent, tirx.ForKind.SERIAL, nest)
    return buffer, nest


def _or(load: ir.TensorLoad, picked: ir.TensorLoad, own: ir.Expr) -> ir.Expr:
    return own if tvm_ffi.structural_equal(load, picked) else load


def _function(program: Program, nests: Sequence[tirx.Stmt], made: Sequence[tirx.Var]) -> tirx.PrimFunc:
    """The function of some nests, with further temporaries."""
    root, func = program.root, program.func
    body = nests[0] if len(nests) == 1 else tirx.SeqStmt(list(nests))
    block = s_tir.SBlock([], [], [], root.name_hint, body, None, [*root.alloc_buffers, *made])
    whole = tirx.PrimFunc(list(func.params), s_tir.SBlockRealize([], True, block), func.ret_type, func.attrs)
    return tvm.get_global_func("script.Complete")(whole, [], True)
