"""A chunk of the cascade axis: what the fold of a program reads there, as loads of the chunk's own inputs.

    x[i, j]  with j the axis, read so everywhere      →  x_chunk[i, j], of the chunk's extent
    any other use of j: a mask j <= i, table[j // 16]  →  the position on the whole axis, j + offset

Reductions that elements read at the axis, as the scores Q·Kᵀ, are computed for the chunk alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import sympy as sp
import tvm_ffi
from tvm import ir, tirx

from tvm_cascade.analysis.expression import AtomTable
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.inline import inliner_of, plain_indices, simplify_conditions
from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.tir import (
    Extent,
    as_index,
    extent_of,
    loads_of,
    same_extent,
    simplify_index,
    uses,
)
from tvm_cascade.chunks.part import at_a_part
from tvm_cascade.errors import SplitError

Place = TypeVar("Place")


@dataclass(frozen=True)
class Chunk:
    """Where a chunk lies, and which of its inputs have no extent of their own along a row.

    Attributes
    ----------
    length : its positions along the loop that is cut; those of one of its pieces.
    offset : of its first position; a number or a variable, or what it is in the pieces' numbers.
    shared : a row variable's name; inputs of the chunk are the same for all its values. Empty for none.
    pieces : row variables that number parts which leave a state each, side by side, with how many there are. Inputs of
        a chunk in pieces are whole.
    """

    length: Extent
    offset: ir.Expr
    shared: str = ""
    pieces: Mapping[tirx.Var, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Reader:
    """An expression that the fold is computed from.

    Attributes
    ----------
    axis, row : the variables in it that stand for the axis, and for the row that shares the chunk; None for none.
    stage : the reduction whose element it is; None for an atom.
    """

    expression: ir.Expr
    axis: tirx.Var | None
    row: tirx.Var | None
    stage: Stage | None = None


@dataclass(frozen=True)
class Along:
    """An input, or a producer's result, that is cut: which dimension is the axis, and which is left out."""

    dimension: int
    left_out: int | None = None

    def of(self, places: Sequence[Place]) -> list[Place]:
        """A shape, or indices, without the dimension that is left out."""
        return [place for d, place in enumerate(places) if d != self.left_out]


@dataclass
class Cut:
    """A group with one chunk of its axis.

    Attributes
    ----------
    axis : the variable of the frame that is cut: the outermost axis loop of more than one iteration.
    along : the buffers that are cut.
    replaced : the buffers of the program in whose place others stand in the chunk's function, and these.
    """

    program: Program
    group: Group
    chunk: Chunk
    axis: tirx.Var
    index_dtype: str
    suffix: str = ""
    readers: list[Reader] = field(default_factory=list)
    along: dict[tirx.Var, Along] = field(default_factory=dict)
    replaced: dict[tirx.Var, tirx.Var] = field(default_factory=dict)

    @property
    def producers(self) -> list[Reader]:
        """The reductions that elements are computed from, in the order of the program."""
        found = [(self.program.position(reader.stage), reader) for reader in self.readers if reader.stage is not None]
        return [reader for _, reader in sorted(found, key=lambda pair: pair[0])]

    @property
    def reads_positions(self) -> bool:
        """Whether anything but cut buffers is read by the position."""
        first = tirx.Var("first", self.index_dtype)
        return any(uses(self._placed(one.expression, one.axis, first), [first]) for one in self.readers)

    def of_group(self) -> Group:
        """The group over the chunk: its atoms read the chunk's inputs."""
        atoms = {
            form: dataclasses.replace(atom, expression=self.rewritten(atom.expression, self.axis))
            for form, atom in self.group.atoms.atoms.items()
        }
        table: AtomTable = dataclasses.replace(self.group.atoms.copy(), atoms=atoms)
        extents = {**self.group.frame.extents, self.axis: self.chunk.length, **self.chunk.pieces}
        frame = dataclasses.replace(self.group.frame, extents=extents)
        return dataclasses.replace(self.group, atoms=table, frame=frame)

    def rewritten(self, expression: ir.Expr, axis: tirx.Var | None) -> ir.Expr:
        """An expression over the chunk, where `axis` then counts from its first position.

        Conditions that hold in all of the chunk, or nowhere in it, are decided: a prefix that stands in a tensor of its
        own is all that the prefix reads.
        """
        placed = self._placed(expression, axis, self.chunk.offset)
        return placed if axis is None else simplified(placed, {axis: self.chunk.length, **self.chunk.pieces})

    def pieces_of(self, buffer: tirx.Var) -> tuple[tirx.Var, ...]:
        """The variables of pieces that index what stands for a buffer, as they do for a result along the axis."""
        return tuple(self.chunk.pieces) if buffer in self.along and self.program.writer(buffer) is not None else ()

    def _placed(self, expression: ir.Expr, axis: tirx.Var | None, first: ir.Expr) -> ir.Expr:
        """An expression with loads of the chunk's buffers, at positions within it."""

        def dimension(buffer: tirx.Var) -> int | None:
            return self.along[buffer].dimension if buffer in self.along else None

        def places(buffer: tirx.Var, indices: Sequence[ir.Expr]) -> list[ir.Expr]:
            own = self.along[buffer].of(indices) if buffer in self.along else indices
            return [*self.pieces_of(buffer), *own]

        return at_a_part(expression, [] if axis is None else [axis], self.replaced, dimension, first, places)


def cut(
    program: Program,
    group: Group,
    symbols: set[sp.Symbol],
    chunk: Chunk,
    index_dtype: str,
    suffix: str = "",
    cuts_inputs: bool = True,
) -> Cut:
    """The chunk of a group.

    Parameters
    ----------
    symbols : of atoms that the state is computed from.
    suffix : of the names of buffers that are cut.
    cuts_inputs : inputs that are read at the axis have the chunk's length; else they are whole, and read further on.

    Raises
    ------
    SplitError
        When an element reads a reduction of tuples before the cascade, or inputs are not alike along a shared row.
    """
    made = Cut(program, group, chunk, axis_that_is_cut(group), index_dtype, suffix)
    atoms = [atom for atom in group.atoms.atoms.values() if atom.symbol in symbols]
    row = next((v for v in group.frame.extents if v.name == chunk.shared), None)
    made.readers += [Reader(atom.expression, made.axis, row) for atom in atoms]
    inline = inliner_of(program)
    while (stage := _next_producer(made)) is not None:
        if stage.is_part:
            raise SplitError("elements of sums, maxima and other single reductions", stage.name, stage.buffer.name)
        along = _dimension_along(made, stage.buffer) if plain_indices(stage) else None
        if along is not None:
            made.along[stage.buffer] = Along(along)
        own = [None if d is None else stage.indices[d] for d in (along, _shared_dimension(made, stage.buffer))]
        made.readers.append(Reader(inline.of(stage), own[0], own[1], stage))
    results = [reader.stage.buffer for reader in made.producers if reader.stage is not None]
    for buffer in _read(made) if cuts_inputs else ():
        along = None if buffer in results else _dimension_along(made, buffer)
        if along is not None:
            made.along[buffer] = Along(along, _shared_dimension(made, buffer))
    made.replaced = {buffer: _like(made, buffer) for buffer in (*results, *made.along)}
    return made


def simplified(expression: ir.Expr, extents: dict[tirx.Var, Extent]) -> ir.Expr:
    """An expression with conditions that the extents decide taken out, and simplified indices of its loads."""

    def plain(load: ir.TensorLoad) -> ir.Expr:
        return tirx.BufferLoad(load.source, [simplify_index(index, extents) for index in load.indices])

    return tvm_ffi.structural_map(simplify_conditions(expression, extents), (ir.TensorLoad, plain))


def axis_that_is_cut(group: Group) -> tirx.Var:
    """The outermost axis loop of more than one iteration, so that a chunk's positions are contiguous."""
    axis, extents = group.frame.axis, group.frame.extents
    return next((v for v in axis if extents[v] != 1), axis[0])


def _read(made: Cut) -> list[tirx.Var]:
    """The buffers that are read, each once."""
    return list(dict.fromkeys(load.source for one in made.readers for load in loads_of(one.expression)))


def _next_producer(made: Cut) -> Stage | None:
    """The last reduction that is read and not looked at yet: everything that reads it is known."""
    known = {None, *(reader.stage for reader in made.readers)}
    pending = {*map(made.program.writer, _read(made))} - known
    return max(filter(None, pending), key=made.program.position, default=None)


def _dimension_along(made: Cut, buffer: tirx.Var) -> int | None:
    """The dimension that every load of a buffer reads at the axis itself; None where there is no such one."""
    extent = made.group.frame.extents[made.axis]
    dimensions = {d for d, e in enumerate(buffer.ty.shape) if same_extent(extent_of(e), extent)}
    for load, at in _loads(made, buffer, "axis"):
        dimensions &= set(at) if len(at) == 1 and isinstance(load.indices[at[0]], ir.Var) else set()
    return dimensions.pop() if len(dimensions) == 1 else None


def _shared_dimension(made: Cut, buffer: tirx.Var) -> int | None:
    """The dimension of a buffer that the row indexes along which the chunk is shared: one copy serves all its values.

    Raises
    ------
    SplitError
        Where the row is read in any other way.
    """
    found: set[int] = set()
    for load, at in _loads(made, buffer, "row"):
        if not all(isinstance(load.indices[d], ir.Var) for d in at):
            where = f"shared along {made.chunk.shared}"
            raise SplitError(f"{buffer.name} read at {made.chunk.shared} itself", str(load), where)
        found.update(at)
    if len(found) > 1:
        raise SplitError("one dimension along the shared row", str(sorted(found)), buffer.name)
    return next(iter(found), None)


def _loads(made: Cut, buffer: tirx.Var, way: str) -> Iterator[tuple[ir.TensorLoad, list[int]]]:
    """Every load of a buffer, with the dimensions of which the indices use its reader's variable of the axis or row."""
    for reader in made.readers:
        var = getattr(reader, way)
        for load in loads_of(reader.expression):
            if load.source.same_as(buffer):
                used = [] if var is None else [d for d, index in enumerate(load.indices) if uses(index, [var])]
                yield load, used


def _like(made: Cut, buffer: tirx.Var) -> tirx.Var:
    """A buffer for the chunk's share of another."""
    along, shape = made.along.get(buffer), [extent_of(e) for e in buffer.ty.shape]
    if along is not None:
        shape[along.dimension] = made.chunk.length
        shape = [*(made.chunk.pieces[piece] for piece in made.pieces_of(buffer)), *along.of(shape)]
    whole = [as_index(extent, made.index_dtype) for extent in shape]
    return tirx.decl_buffer(whole, str(buffer.ty.dtype), name=buffer.name + made.suffix, layout=None)
