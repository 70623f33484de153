"""Elements of a row that outputs pick by an index, as sums: what is never stored cannot be read at a place of its own.

    out[i] = logits[i, target[i]]   →   picked[i] = Σ_j (logits[i, j] where j = target[i]);   out[i] = picked[i]

The sum has one element that is not zero, and is exact. What a fold of the row tells where to look for is read from the
row afterwards, where that is on chip.
"""

from __future__ import annotations

import dataclasses

import tvm_ffi
from tvm import ir, s_tir, tirx

from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.analysis.extent import extent_of
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.tir import dtype_of, loads_of, substitute
from tvm_cascade.transform.printer import cast


def with_picks_as_sums(program: Program) -> Program:
    """The program with sums in place of what maps pick from rows of temporaries; the same where there is nothing."""
    stages: list[Stage] = []
    for number, stage in enumerate(program.stages):
        if (load := _pick(program, stage)) is not None:
            stages.append(_sum(load, f"picked_{len(stages) - number}"))
            own = tirx.BufferLoad(stages[-1].buffer, list(load.indices[:-1]))
            value = tvm_ffi.structural_map(stage.value, (ir.TensorLoad, lambda x, p=load, o=own: _or(x, p, o)))
            stage = dataclasses.replace(stage, value=value)
        stages.append(stage)
    return dataclasses.replace(program, stages=tuple(stages)) if len(stages) > len(program.stages) else program


def _pick(program: Program, stage: Stage) -> ir.TensorLoad | None:
    """What a map picks of a row of a temporary by an index, first."""
    loads = loads_of(stage.value) if stage.reducer is None else []
    return next((load for load in loads if _is_pick(program, stage, load)), None)


def _is_pick(program: Program, stage: Stage, load: ir.TensorLoad) -> bool:
    if program.writer(load.source) is None or program.is_param(load.source) or len(load.indices) < 2:
        return False
    *rows, column = load.indices
    plain = all(among(index, stage.spatial) for index in rows)
    return plain and bool(loads_of(column)) and not _reduced(program, column)


def _reduced(program: Program, value: ir.Expr) -> bool:
    """Whether a reduction computes what a value reads."""
    writers = [program.writer(load.source) for load in loads_of(value)]
    return any(w is not None and (w.reducer is not None or _reduced(program, w.value)) for w in writers)


def _sum(load: ir.TensorLoad, name: str) -> Stage:
    """The sum that a load over the variables of its stage is."""
    tensor, dtype, shape = load.source, dtype_of(load.source), load.source.ty.shape
    buffer = tirx.decl_buffer(tuple(shape[:-1]), dtype, name=name, layout=None)
    *rows, column = variables = [tirx.Var(f"vi{d}", dtype_of(extent)) for d, extent in enumerate(shape)]
    place = substitute(load.indices[-1], dict(zip(load.indices[:-1], rows, strict=True)))
    zero, here = tirx.const(0, dtype), tirx.EQ(cast(place, dtype_of(column)), column)
    element = tirx.Select(here, tirx.BufferLoad(tensor, variables), zero)
    block = s_tir.SBlock([], [], [], name, tirx.Evaluate(0))
    extents = dict(zip(variables, map(extent_of, shape), strict=True))
    return Stage(name, buffer, block, block, tuple(rows), (column,), extents, tuple(rows), element, SUM, zero)


def _or(load: ir.TensorLoad, picked: ir.TensorLoad, own: ir.Expr) -> ir.Expr:
    return own if tvm_ffi.structural_equal(load, picked) else load
