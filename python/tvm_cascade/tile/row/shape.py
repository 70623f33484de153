"""Reads the row shape: a fold along an axis in memory, without a matrix product.

    T[row] = ⊕ over l of lift(x[row, l], …)       every component has one value a row
    out[row], out[row, l]                         outputs are maps of results, a row or a position each

Neighbours in memory are positions of the axis, x[row, l], or rows, x[l, row]: then rows are columns of memory.
Nothing here goes by name: the shape is read off the index maps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.algebra.fold import Component, Fold
from tvm_cascade.analysis.expression import Atom
from tvm_cascade.analysis.extract import Group, Member
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.tir import Extent, dtype_of, extent_of, loads_of, more_than_one, product, uses, variables_of
from tvm_cascade.tile.memory import VECTOR_BYTES, itemsize
from tvm_cascade.tile.operand import Unfit, read_once
from tvm_cascade.tile.output import Output, member_at, read_outputs, reads_plainly
from tvm_cascade.tile.product.lines import Line, line_of, runs
from tvm_cascade.tile.row.linear import Access, read_lanes, streams_of
from tvm_cascade.transform.elements import Dims
from tvm_cascade.transform.planning import Guarding, asked_for, guarding

FLOATS = ("float16", "bfloat16", "float32", "float64")

NOT_GUARDED = Guarding(frozenset(), ())

MOST_READ = 2
"""Times that elements may be read where threads share a row: overlapping windows are a thread's each."""


@dataclass(frozen=True)
class Row:
    """A group that has the row shape; its fold is restricted to what the outputs read.

    Attributes
    ----------
    rows : variables that rows are indexed by, in order; the lanes last.
    lanes : the variables of rows that neighbours in memory run along; none where they run along the axis.
    folded, written : accesses of inputs that vary with the position, one for each array of structures; of the fold,
        and of the outputs.
    guarded : results that are decided upon by value, where the kernel has guards.
    """

    program: Program
    group: Group
    dims: Dims
    rows: tuple[tirx.Var, ...]
    axis: Line
    lanes: Line
    outputs: tuple[Output, ...]
    folded: tuple[Access, ...]
    written: tuple[Access, ...]
    guarded: Guarding = NOT_GUARDED

    @property
    def fold(self) -> Fold:
        return self.group.fold

    @property
    def folded_again(self) -> list[Member]:
        return [member for member in self.group.members if member.result in self.guarded.results]

    @property
    def length(self) -> Extent:
        return self.axis.extent

    @property
    def count(self) -> Extent:
        return product(self.group.frame.extents[v] for v in self.rows)

    @property
    def along(self) -> Line:
        return self.lanes if self.is_strided else self.axis

    @property
    def is_strided(self) -> bool:
        return bool(self.lanes.parts)

    @property
    def is_narrow(self) -> bool:
        floats = [s.dtype for s in self.folded if s.dtype in FLOATS]
        return bool(floats) and all(dtype in ("float16", "bfloat16") for dtype in floats)

    @property
    def own_bytes(self) -> int:
        return max(1, sum(s.stride * itemsize(s.dtype) for s in self.folded if not s.is_shared))

    @property
    def widest_load(self) -> int:
        """Elements of a widest load of the narrowest input."""
        return VECTOR_BYTES // min((itemsize(s.dtype) for s in (*self.folded, *self.written)), default=4)

    @property
    def widest_vector(self) -> int:
        """Elements of a vector: a widest load of the narrowest input, where all accesses are so aligned."""
        streams = [s for s in (*self.folded, *self.written) if s.stride == 1]
        neighbours = self.along.extent
        if not isinstance(neighbours, int) or not self.folded:
            return 1
        vector = self.widest_load
        while vector > 1 and (neighbours % vector or any(s.alignment % vector for s in streams)):
            vector //= 2
        return vector

    @cached_property
    def position_outputs(self) -> tuple[Output, ...]:
        return tuple(o for o in self.outputs if self.has_positions(o))

    def has_positions(self, output: Output) -> bool:
        return output.runs_along(*self.axis.parts)


@read_once
def read_row(program: Program, group: Group, guards: str = "off") -> Row:
    """The row shape of a group; see `Skeleton.read`.

    Parameters
    ----------
    guards : see `FuseOptions`; of kernels that have none, "off".
    """
    outputs, results = read_outputs(program, group, along_axis=True)
    guarded = NOT_GUARDED
    if guards != "off":
        read_row(program, group)  # what does not fit is not guarded either
        guarded = guarding(asked_for(program, [group]).plans[0], results, guards, classes=True)
        if guarded.unguarded:
            raise Unfit(guarded.unguarded)
        results = list(guarded.asked)
    group = dataclasses.replace(group, fold=group.fold.restricted_to(results))
    frame = group.frame
    axis = line_of(frame.axis, frame.extents)
    dims = Dims(group)
    rows = _rows(group, dims, outputs)
    for output in outputs:
        lost = rows_alike(output, rows, group)
        if lost and output.runs_along(*axis.parts):
            raise Unfit(f"{output.buffer.name} has no axis {lost[0].name}")
        if lost and not any(member_at(group, load) for load in loads_of(output.value)) and len(output.loops) > 1:
            raise Unfit(f"{output.buffer.name} reads no result, and one row of many would store all of it")
    atoms = used_atoms(group)
    elements = [load for a in atoms for load in loads_of(a.expression)]
    again = [member.element for member in group.members if member.result in guarded.results]
    _check_loads(
        program, group, elements, [load for e in (*again, *(o.value for o in outputs)) for load in loads_of(e)]
    )
    extents = {v: frame.extents[v] for v in rows}
    _check_reuse(elements, {v: n for v, n in extents.items() if more_than_one(n)}, axis)
    whole = [o for o in outputs if o.runs_along(*axis.parts)]
    inputs = [load for o in whole for load in loads_of(o.value) if member_at(group, load) is None]
    lanes = read_lanes([*elements, *inputs], axis, extents)
    rows = (*(v for v in rows if not any(v.same_as(lane) for lane in lanes.parts)), *lanes.parts)
    folded, written = (streams_of(loads, axis, lanes, frame.extents) for loads in (elements, inputs))
    row = Row(program, group, dims, rows, axis, lanes, outputs, folded, written, guarded)
    if row.length == 0:
        raise Unfit("the axis is empty")
    return row


def rows_alike(output: Output, rows: tuple[tirx.Var, ...], group: Group) -> list[tirx.Var]:
    """The variables of rows that an output does not run along: its value is the same in all such rows."""
    return [v for v in rows if not output.runs_along(v) and more_than_one(group.frame.extents[v])]


def _rows(group: Group, dims: Dims, outputs: tuple[Output, ...]) -> tuple[tirx.Var, ...]:
    """Every variable but the axis' that something is indexed by; one of extent 1 need not index a component."""
    indexed = [v for c in group.fold.components for v in dims.of(c.symbol)]
    indexed += [v for o in outputs for e in (*o.indices, o.value) for v in variables_of(e)]
    indexed += [v for a in used_atoms(group) for v in variables_of(a.expression)]
    known = [v for v in indexed if any(v.same_as(e) for e in group.frame.extents)]
    found: list[tirx.Var] = []
    for var in (*dims.order, *known):
        axis = any(var.same_as(a) for a in group.frame.axis)
        if not axis and any(var.same_as(k) for k in known) and not any(var.same_as(f) for f in found):
            found.append(var)
    return tuple(found)


def used_atoms(group: Group) -> list[Atom]:
    read: set[sp.Symbol] = set().union(*(e.free_symbols for e in group.fold.finish.values()))
    for step in group.fold.steps:
        forms = (step.lift, step.shift) if isinstance(step, Component) else (step.value,)
        read = read.union(*(form.free_symbols for form in forms))
    return [atom for atom in group.atoms.atoms.values() if atom.symbol in read]


def _check_loads(program: Program, group: Group, elements: list[ir.TensorLoad], stored: list[ir.TensorLoad]) -> None:
    """Elements read inputs, and what is stored reads them and results at their own places."""
    for load in elements:
        if program.writer(load.source) is not None:
            raise Unfit(f"{load.source.name} is computed by an inner reduction")
    for load in stored:
        member = member_at(group, load)
        if member is not None and not reads_plainly(member, load):
            raise Unfit(f"{load} reads a result at another place than its own")
    for load in (*elements, *stored):
        if not dtype_of(load.source).startswith(("int", "uint", "bool")) and dtype_of(load.source) not in FLOATS:
            raise Unfit(f"{load.source.name} is {dtype_of(load.source)}")


def _check_reuse(elements: list[ir.TensorLoad], rows: Mapping[tirx.Var, Extent], axis: Line) -> None:
    """Some input should have an element for every row and position, and rows no elements in common.

    Unfit where elements would be read again and again: no input has as many, or rows are windows that overlap.
    """
    read = [load for load in elements if runs(load, *axis.parts)]
    own = [load for load in read if all(runs(load, v) for v in rows)]
    if read and not own:
        names = ", ".join(dict.fromkeys(load.source.name for load in read))
        raise Unfit(f"none of {names} runs along all of {', '.join(v.name for v in rows)}: each is read for many rows")
    reads, sizes = product([*rows.values(), *axis.extents]), [_in_windows(load, rows, axis) for load in own]
    if sizes and isinstance(reads, int) and all(one is not None and one * MOST_READ < reads for one in sizes):
        names = ", ".join(dict.fromkeys(load.source.name for load in own))
        raise Unfit(f"rows overlap: elements of {names} are read for many of them")


def _in_windows(load: ir.TensorLoad, rows: Mapping[tirx.Var, Extent], axis: Line) -> int | None:
    """How many elements there are where rows read windows of a dimension; None where not, or where data say which."""
    found = product(extent_of(extent) for extent in load.source.ty.shape)
    windows = any(uses(index, list(rows)) and uses(index, axis.parts) for index in load.indices)
    picked = any(loads_of(index) for index in load.indices)
    return found if isinstance(found, int) and windows and not picked else None
