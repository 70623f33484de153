"""Products and what is between them, all for one position after the other of axes that every nest runs over.

    s[b, i, j] = Σ_d q[b, i, d]·k[b, j, d];  p[b, i, j] = f(s[b, i, j]);  o[b, j, d] = Σ_i p[b, i, j]·q[b, i, d]
    →  parallel for b:  s[i, j] = Σ_d q[b, i, d]·k[b, j, d];  p[i, j] = f(s[i, j]);  o[b, j, d] = Σ_i p[i, j]·q[b, i, d]

What nests hand over then stays in a near cache, and there is as much of it as iterations run at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import tvm_ffi
from tvm import ir, s_tir, tirx

from tvm_cascade.analysis.program import Program, Stage, is_static
from tvm_cascade.analysis.reading import read_program
from tvm_cascade.analysis.statements import completed, replaced, with_root
from tvm_cascade.analysis.tir import as_index, dtype_of, in_buffers, loads_of, rebuilt, substitute, uses
from tvm_cascade.chunks.part import Rows, offset_of, over_a_part, rows_of
from tvm_cascade.devices.device import Cpu
from tvm_cascade.errors import SplitError
from tvm_cascade.transform.nest_cost import find_product, size_of
from tvm_cascade.tvm_faults.stack import in_the_workspace

_AXIS = "axis_{}"

_IDLE = 1.25
"""Turns that cores wait for the last iterations, over those that iterations take, at most."""


@dataclass(frozen=True)
class Iterations:
    """A function as a loop over another one.

    Attributes
    ----------
    whole : the function.
    one : that of an iteration: tensors have one position along an axis, and numbers say which that is of the whole.
    extents : of the axes.
    along : of a tensor, by its name, the dimensions that are an axis, with the axis' number.
    """

    whole: tirx.PrimFunc
    one: tirx.PrimFunc
    extents: tuple[int, ...] = ()
    along: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return math.prod(self.extents)

    def around(self, one: tirx.PrimFunc) -> tirx.PrimFunc:
        """The function, of that of an iteration under a schedule. Iterations run at once, and loops of one do not."""
        turn, position, inside = tirx.Var("iteration", "int64"), list[ir.Expr](), self.count
        for extent in self.extents:
            inside //= extent
            position.append(turn // inside % extent)
        names = {param.name: param for param in self.whole.params}
        names |= {offset_of(_AXIS.format(axis)): number for axis, number in enumerate(position)}
        own = {buffer: in_the_workspace(buffer) for buffer in one.body.block.alloc_buffers}
        buffers = own | {param: names[param.name] for param in one.params if tirx.is_buffer_var(param)}
        numbers = {v: names[v.name].astype(dtype_of(v)) for v in one.params if not tirx.is_buffer_var(v)}

        def at(buffer: tirx.Var, indices: Sequence[ir.Expr]) -> list[ir.Expr]:
            along = {} if buffer in own else self.along.get(buffer.name, {})
            return [position[along[d]].astype(dtype_of(e)) if d in along else e for d, e in enumerate(indices)]

        def in_turn(loop: tirx.For) -> tirx.For:
            return rebuilt(loop, kind=tirx.ForKind.SERIAL) if loop.kind == tirx.ForKind.PARALLEL else loop

        body = substitute(in_buffers(one.body.block.body, buffers, at), numbers)
        undetected = (s_tir.SBlock, lambda block: replaced(block, block.body, block.init))
        body = tvm_ffi.structural_map(body, [(tirx.For, in_turn), undetected])
        first, count = (as_index(number, "int64") for number in (0, self.count))
        loop = tirx.For(turn, first, count, tirx.ForKind.PARALLEL, body)
        return completed(with_root(self.whole, [loop], alloc_buffers=list(own.values()), reads=[], writes=[]))


def iterations_of(func: tirx.PrimFunc, cpu: Cpu) -> Iterations | None:
    """The iterations of a function whose temporaries a near cache does not hold at once; None where it has none.

    Parameters
    ----------
    func : of plain nests that are counted in 64 bits.
    """
    program = read_program(func)
    if not isinstance(program, Program) or program.opaque or not is_static(program):
        return None
    names = [param.name for param in program.params]
    if len({*names}) < len(names) or not any(map(_is_product, program.stages)) or _temporaries(func) <= cpu.l2_bytes:
        return None
    found, largest = Iterations(func, func), max(program.root.alloc_buffers, key=size_of)
    for dimension in range(len(largest.ty.shape)):
        if _temporaries(found.one) > cpu.l2_bytes:
            found = _further(found, largest.name, dimension) or found
    turns = -(-found.count // cpu.cores)
    return found if found.count > 1 and turns * cpu.cores <= _IDLE * found.count else None


def _temporaries(func: tirx.PrimFunc) -> int:
    return sum(map(size_of, func.body.block.alloc_buffers))


def _is_product(stage: Stage) -> bool:
    last = stage.indices[-1] if stage.indices else None
    return isinstance(last, ir.Var) and find_product(stage, stage.value, last) is not None


def _further(found: Iterations, name: str, dimension: int) -> Iterations | None:
    """The iterations with one axis more: a dimension of a temporary, where no nest combines positions along that."""
    program, number = read_program(found.one), len(found.extents)
    assert isinstance(program, Program)
    buffer = next(one for one in program.root.alloc_buffers if one.name == name)
    extent = int(buffer.ty.shape[dimension])
    try:
        rows = rows_of(program, [(buffer, dimension)])
        if extent == 1 or not all(_runs_along(stage, rows) for stage in program.stages):
            return None
        one = over_a_part(rows, 1, _AXIS.format(number))
    except SplitError:
        return None
    dimensions = {one.name: dict.fromkeys(own, number) for one, own in rows.dimensions.items()}
    along = {name: {**found.along.get(name, {}), **dimensions.get(name, {})} for name in (*found.along, *dimensions)}
    return Iterations(found.whole, one, (*found.extents, extent), along)


def _runs_along(stage: Stage, axis: Rows) -> bool:
    """Whether a stage is as many of its kind as an axis has positions: a product is not one with fewer rows."""
    own = [var for var in stage.spatial if var in axis.variables]
    apart = len(own) == 1 and axis.variables.isdisjoint(stage.reduce) and axis.dimension(stage.buffer) is not None
    return apart and all(uses(load, own) for load in loads_of(stage.value) if uses(load, stage.reduce))
