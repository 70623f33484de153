"""The outputs of a kernel: the caller's tensors, as maps of a group's results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import sympy as sp
import tvm_ffi
from tvm import ir, sym, tirx
from tvm.ir import prim

from tvm_cascade.analysis.extract import Group, Member
from tvm_cascade.analysis.inline import inliner_of, plain_indices
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.tir import (
    Extent,
    as_index,
    dtype_of,
    extent_of,
    loads_of,
    more_than_one,
    same,
    same_extent,
    simplify_index,
    substitute,
    uses,
    variables_of,
    zero_of,
)
from tvm_cascade.tile.operand import Unfit, read_once
from tvm_cascade.tile.product.lines import inverted
from tvm_cascade.transform.printer import cast


@dataclass(frozen=True)
class Output:
    """A tensor that the kernel writes.

    Attributes
    ----------
    indices : where an element goes, in the frame's variables.
    value : what is stored, over the frame's variables, loads of results, and inputs.
    loops, extents : variables of its own, that it runs along beside the frame's: the ranks of a top-k.
    part : conditions over the frame's variables, for which points there is an element; for each point without them.
    every, columns : it has an element for every so many values of a variable, and its loads of results are of places up
        to the next: o[i, c // 2] = y[i, c]·y[i, c + 1] at even c.
    """

    buffer: tirx.Var
    indices: tuple[ir.Expr, ...]
    value: ir.Expr
    loops: tuple[tirx.Var, ...] = ()
    extents: tuple[Extent, ...] = ()
    part: tuple[ir.Expr, ...] = ()
    every: int = 1
    columns: tirx.Var | None = None

    def runs_along(self, *variables: tirx.Var) -> bool:
        return any(uses(index, variables) for index in self.indices)

    @property
    def shifted(self) -> tuple[tuple[ir.Expr, ...], tuple[int, ...]]:
        """The indices without constants that are added to variables, and these constants: v - 256 is v, and -256."""
        found = [_apart(index) for index in self.indices]
        return tuple(index for index, _ in found), tuple(added for _, added in found)


def _apart(index: ir.Expr) -> tuple[ir.Expr, int]:
    variables = [v for v in variables_of(index) if isinstance(v, tirx.Var)]
    if len(variables) == 1 and not isinstance(index, ir.Var):
        added = sym.Analyzer().simplify(index - variables[0])
        if isinstance(added, prim.IntImm):
            return variables[0], int(added)
    return index, 0


@read_once
def read_outputs(
    program: Program, group: Group, along_axis: bool = False, parts: bool = False, together: int = 1
) -> tuple[tuple[Output, ...], list[sp.Symbol]]:
    """Every tensor that the function writes, and the results that they are computed from.

    Unfit where one of them is not a map of the group's results and of inputs.

    Parameters
    ----------
    along_axis : outputs may have an element for every position of the cascade axis, and loops of their own.
    parts : outputs may have elements for a part of the results alone.
    together : neighbouring columns that a thread has, of which outputs may have an element together.
    """
    if program.opaque:
        raise Unfit("the function has a nest that cannot be read")
    written = [stage for stage in program.stages if program.is_param(stage.buffer)]
    outputs = [_read_output(program, group, stage, along_axis, together) for stage in written]
    if partial := [output.buffer.name for output in outputs if output.part and not parts]:
        raise Unfit(f"{partial[0]} has elements for a part of the results alone")
    read = [member_at(group, load) for output in outputs for load in loads_of(output.value)]
    results = list(dict.fromkeys(member.result for member in read if member is not None))
    _check_inputs(program, group)
    return tuple(outputs), results


def member_at(group: Group, load: ir.TensorLoad) -> Member | None:
    """The member whose result a load reads; of constant slices, the one with the same indices."""
    found = [m for m in group.members if m.stage.buffer.same_as(load.source)]
    alike = [m for m in found if reads_plainly(m, load)]
    return next((m for m in (*alike, *found) if m in alike or not m.is_slice), None)


def reads_plainly(member: Member, load: ir.TensorLoad) -> bool:
    """Whether a load over the frame reads a member's result at the frame's own indices, unit dimensions aside."""
    extents = member.stage.buffer.ty.shape
    return all(
        same(index, dim) or not more_than_one(extent)
        for index, dim, extent in zip(load.indices, member.dims, map(extent_of, extents), strict=True)
    )


def columns_beyond(member: Member, load: ir.TensorLoad) -> int | None:
    """How far beside the frame's own point a load over the frame reads a result; None where that is no constant."""
    analyzer, found = sym.Analyzer(), 0
    for index, dim, extent in zip(load.indices, member.dims, load.source.ty.shape, strict=True):
        apart = analyzer.simplify(index - cast(dim, dtype_of(index)))
        if more_than_one(extent_of(extent)) and not isinstance(apart, prim.IntImm):
            return None
        found = found or (int(apart) if isinstance(apart, prim.IntImm) else 0)
    return found


@dataclass(frozen=True)
class _Strided:
    """A variable of a stage that reads results at step·v + 0, 1, … up to the next: v = dim // step at those points."""

    var: tirx.Var
    dim: tirx.Var
    step: int

    @property
    def place(self) -> ir.Expr:
        return cast(tirx.floordiv(self.dim, self.step), dtype_of(self.var))

    def beside(self, group: Group, load: ir.TensorLoad) -> ir.TensorLoad:
        """A load over the frame at v = dim // step, as one beside the point at dim."""
        member = member_at(group, load)
        if member is None:
            return load
        start = self.dim * self.step
        rest = [sym.Analyzer().simplify(substitute(index, {self.dim: start}) - start) for index in load.indices]
        at = zip(load.indices, member.dims, rest, strict=True)
        return tirx.BufferLoad(load.source, [d + r if self.dim.same_as(d) else index for index, d, r in at])


def _strided(group: Group, stage: Stage, value: ir.Expr, together: int) -> _Strided | None:
    """The variable by which a stage reads results with a step, by a column that has as many neighbours together."""
    read = [(load, member) for load in loads_of(value) if (member := member_at(group, load)) is not None]
    for index, dim in ((i, d) for load, member in read for i, d in zip(load.indices, member.dims, strict=True)):
        for var in () if isinstance(index, ir.Var) or not isinstance(dim, ir.Var) else variables_of(index):
            whole, own = group.frame.extents[dim], stage.extents.get(var)
            if not isinstance(whole, int) or not isinstance(own, int) or own == 0:
                continue
            step = whole // own
            rest = sym.Analyzer().simplify(index - var * step)
            if 1 < step <= together and whole == step * own and isinstance(rest, prim.IntImm) and 0 <= rest < step:
                return _Strided(var, dim, step)
    return None


def _read_output(program: Program, group: Group, stage: Stage, along_axis: bool, together: int) -> Output:
    name = stage.buffer.name
    if not plain_indices(stage):
        raise Unfit(f"{name} is not written at its own plain indices")
    member = next((m for m in group.members if m.stage is stage), None)
    if member is not None:
        return Output(stage.buffer, member.dims, tirx.BufferLoad(stage.buffer, list(member.dims)))
    if stage.reducer is not None:
        raise Unfit(f"{name} is a reduction outside the cascade")
    inline = inliner_of(program)
    value = inline.of(stage)
    strided = _strided(group, stage, value, together)
    places = {} if strided is None else {strided.var: strided.place}
    for load in loads_of(value):
        member = member_at(group, load)
        if member is None and not (program.is_param(load.source) and program.writer(load.source) is None):
            raise Unfit(f"{name} reads {load.source.name}, which is computed outside the cascade")
        for index, dim in zip(load.indices, member.dims if member else (), strict=bool(member)):
            if isinstance(index, ir.Var) and not any(index.same_as(key) for key in places):
                places[index] = dim
        plain = all(isinstance(index, (ir.Var, prim.IntImm)) for index in load.indices)
        if member is not None and not plain and strided is None:
            places |= inverted(load.indices, member.dims, stage.extents) or {}
    if along_axis and not any(member_at(group, load) for load in loads_of(value)):
        places |= _as_elements(group, stage, value)
    missing = [v for v in stage.spatial if not any(v.same_as(key) for key in places)]
    loops: list[tirx.Var] = []
    if along_axis and _is_axis(group, stage, missing):
        places.update(zip(missing, group.frame.axis, strict=True))
    elif along_axis:
        loops = missing
    else:
        others = [v for v in missing if more_than_one(stage.extents[v])]
        if others:
            raise Unfit(f"{name} runs along {others[0].name}, which no result of the cascade has")
        places |= {v: tirx.const(0, dtype_of(v)) for v in missing}
    _check_whole(places, stage, group)
    part = _part(places, stage, group)
    own = {var: stage.extents[var] for var in loops}
    known = {**group.frame.extents, **own}
    indices = tuple(simplify_index(substitute(index, places), known) for index in stage.indices)
    stored = inline(substitute(value, places), known)
    if strided is not None:
        stored = tvm_ffi.structural_map(stored, (ir.TensorLoad, partial(strided.beside, group)))
    every, columns = (1, None) if strided is None else (strided.step, strided.dim)
    for load in loads_of(stored):
        member = member_at(group, load)
        if member is not None and columns_beyond(member, load) not in range(every):
            raise Unfit(f"{name} reads {load}, which another row computes")
    return Output(stage.buffer, indices, stored, tuple(own), tuple(own.values()), part, every, columns)


def _check_whole(places: Mapping[tirx.Var, ir.Expr], stage: Stage, group: Group) -> None:
    """Checks that the points of the frame reach all elements of a stage; Unfit where some may have none."""
    analyzer, extents = sym.Analyzer(), group.frame.extents
    for own, place in places.items():
        ends = [
            substitute(place, {v: as_index(extents[v], dtype_of(v)) - 1 if last else zero_of(v) for v in extents})
            for last in (False, True)
        ]
        last = as_index(stage.extents[own], dtype_of(place)) - 1
        if not (analyzer.can_prove(ends[0] <= 0) and analyzer.can_prove(ends[1] >= last)):
            raise Unfit(f"{stage.buffer.name} has elements along {own.name} where no result of the cascade is")


def _part(places: Mapping[tirx.Var, ir.Expr], stage: Stage, group: Group) -> tuple[ir.Expr, ...]:
    """The points of the frame where a stage's own variables, at given places, are inside of their extents.

    Unfit where that depends on an extent that is not known.
    """
    analyzer = sym.Analyzer()
    for var, extent in group.frame.extents.items():
        analyzer.bind(var, ir.Range(tirx.const(0, dtype_of(var)), as_index(extent, dtype_of(var))))
    found = list[ir.Expr]()
    for own, place in places.items():
        dtype = dtype_of(place)
        bounds = (place >= tirx.const(0, dtype), place < as_index(stage.extents[own], dtype))
        open_ones = [condition for condition in bounds if not analyzer.can_prove(condition)]
        if open_ones and not isinstance(stage.extents[own], int):
            raise Unfit(f"{stage.buffer.name} may have elements for a part of the results alone")
        found += open_ones
    return tuple(found)


def _as_elements(group: Group, stage: Stage, value: ir.Expr) -> dict[tirx.Var, ir.Expr]:
    """The frame's variables in place of a stage's own, where it reads inputs at the places where the fold does."""
    places: dict[tirx.Var, ir.Expr] = {}
    elements = [load for atom in group.atoms.atoms.values() for load in loads_of(atom.expression)]
    both = [(own, other) for own in loads_of(value) for other in elements if own.source.same_as(other.source)]
    for index, dim in ((i, d) for own, other in both for i, d in zip(own.indices, other.indices, strict=True)):
        plain = among(index, stage.spatial) and among(dim, list(group.frame.extents))
        free = not any(index.same_as(key) or dim.same_as(place) for key, place in places.items())
        if plain and free and same_extent(stage.extents[index], group.frame.extents[dim]):
            places[index] = dim
    return places


def _is_axis(group: Group, stage: Stage, variables: list[tirx.Var]) -> bool:
    """Whether a stage runs over the whole cascade axis by some of its variables, loop by loop."""
    axis = group.frame.axis
    return len(variables) == len(axis) and all(
        same_extent(stage.extents[v], group.frame.extents[a]) for v, a in zip(variables, axis, strict=True)
    )


def _check_inputs(program: Program, group: Group) -> None:
    for atom in group.atoms.atoms.values():
        for load in loads_of(atom.expression):
            stage = program.writer(load.source)
            if stage is not None and stage.reducer is None:
                raise Unfit(f"{load.source.name} is written at indices that cannot be followed")
