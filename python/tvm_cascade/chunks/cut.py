"""A chunk of the cascade axis: what the fold of a program reads there, as loads of the chunk's own inputs.

    x[i, j]  with j the axis, read so everywhere      →  x_chunk[i, j], of the chunk's extent
    any other use of j: a mask j <= i, table[j // 16]  →  the position on the whole axis, j + offset

Reductions that elements read at the axis, as the scores Q·Kᵀ, are computed for the chunk alone.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

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
    dtype_of,
    extent_of,
    loads_of,
    same_extent,
    simplify_index,
    substitute,
    uses,
)
from tvm_cascade.errors import SplitError


@dataclass(frozen=True)
class Chunk:
    """Where a chunk lies, and which of its inputs have no extent of their own along a row.

    Attributes
    ----------
    length : its positions along the loop that is cut.
    offset : of its first position; a number or a variable.
    shared : a row variable's name; inputs of the chunk are the same for all its values. Empty for none.
    pieces : parts of equal length that leave a state each, side by side: rows of one function.
    """

    length: Extent
    offset: ir.Expr
    shared: str = ""
    pieces: int = 1

    @property
    def piece_length(self) -> Extent:
        """Positions of a piece along the loop that is cut."""
        return self.length if self.pieces == 1 else self.length // self.pieces


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


@dataclass
class Cut:
    """A group with one chunk of its axis.

    Attributes
    ----------
    axis : the variable of the frame that is cut: the outermost axis loop of more than one iteration.
    along : the buffers that are cut.
    replaced : each buffer of the program and the one that stands for it in the chunk's function.
    locals : for each variable of the axis, one that counts from the chunk's first position.
    piece : the row variable that numbers the chunk's pieces; None where there is one.
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
    locals: dict[tirx.Var, tirx.Var] = field(default_factory=dict)
    piece: tirx.Var | None = None

    @property
    def pieces(self) -> tuple[tirx.Var, ...]:
        """The variable that numbers the pieces, where there are several: the first of every row."""
        return () if self.piece is None else (self.piece,)

    @property
    def producers(self) -> list[Stage]:
        """The reductions that elements are computed from, in the order of the program."""
        found = [reader.stage for reader in self.readers if reader.stage is not None]
        return sorted(found, key=self.program.position)

    @property
    def reads_positions(self) -> bool:
        """Whether anything but cut buffers is read by the position."""
        found = [(self._placed(r.expression, r.axis), r.axis) for r in self.readers]
        return any(axis is not None and uses(placed, [axis]) for placed, axis in found)

    def of_group(self) -> Group:
        """The group over the chunk: its atoms read the chunk's inputs."""
        atoms = {
            form: dataclasses.replace(atom, expression=self.rewritten(atom.expression, self.axis))
            for form, atom in self.group.atoms.atoms.items()
        }
        table: AtomTable = dataclasses.replace(self.group.atoms.copy(), atoms=atoms)
        extents = dict(self.group.frame.extents)
        extents[self.axis] = self.chunk.piece_length
        extents |= dict.fromkeys(self.pieces, self.chunk.pieces)
        frame = dataclasses.replace(self.group.frame, extents=extents)
        return dataclasses.replace(self.group, atoms=table, frame=frame)

    def rewritten(self, expression: ir.Expr, axis: tirx.Var | None) -> ir.Expr:
        """An expression over the chunk, where `axis` then counts from its first position.

        Conditions that hold in all of the chunk, or nowhere in it, are decided: a prefix that stands in a tensor of its
        own is all that the prefix reads.
        """
        if axis is None:
            return self._placed(expression, axis)
        first = self._first_of_piece(axis)
        placed = substitute(self._placed(expression, axis), {axis: axis + first + self._offset(axis)})
        placed = substitute(placed, {self._local(axis): axis})
        return simplified(placed, {axis: self.chunk.piece_length, **dict.fromkeys(self.pieces, self.chunk.pieces)})

    def _first_of_piece(self, axis: tirx.Var) -> ir.Expr:
        """The first position of a piece within the chunk."""
        dtype = dtype_of(axis)
        if self.piece is None:
            return tirx.const(0, dtype)
        return self.piece.astype(dtype) * as_index(self.chunk.piece_length, dtype)

    def _offset(self, axis: tirx.Var) -> ir.Expr:
        offset = self.chunk.offset
        return offset if dtype_of(offset) == dtype_of(axis) else offset.astype(dtype_of(axis))

    def _local(self, axis: tirx.Var) -> tirx.Var:
        """What stands for the position within the chunk while the position on the whole axis is still `axis`."""
        return self.locals.setdefault(axis, tirx.Var("local", axis.ty))

    def _placed(self, expression: ir.Expr, axis: tirx.Var | None) -> ir.Expr:
        """An expression with loads of the chunk's buffers, at positions within it."""

        def replace(load: ir.TensorLoad) -> ir.Expr:
            buffer, along = self.replaced.get(load.source), self.along.get(load.source)
            if buffer is None:
                return load
            indices = list(load.indices)
            if along is not None and axis is not None:
                own = self.program.writer(load.source) is not None
                indices[along.dimension] = self._local(axis) + (0 if own else self._first_of_piece(axis))
                indices = [index for d, index in enumerate(indices) if d != along.left_out]
                indices = [*(self.pieces if own else ()), *indices]
            return tirx.BufferLoad(buffer, indices)

        return tvm_ffi.structural_map(expression, (ir.TensorLoad, replace))


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
    if chunk.pieces > 1:
        made.piece = tirx.Var("piece", index_dtype)
    atoms = [atom for atom in group.atoms.atoms.values() if atom.symbol in symbols]
    row = next((v for v in group.frame.extents if v.name == chunk.shared), None)
    made.readers += [Reader(atom.expression, made.axis, row) for atom in atoms]
    inline = inliner_of(program)
    while (stage := _next_producer(made)) is not None:
        if stage.is_part:
            raise SplitError("elements of sums, maxima and other single reductions", stage.name, stage.buffer.name)
        along = _along(made, stage.buffer) if plain_indices(stage) else None
        if along is not None:
            made.along[stage.buffer] = along
        shared = _shared_dimension(made, stage.buffer)
        own = [None if d is None else stage.indices[d] for d in (along.dimension if along else None, shared)]
        made.readers.append(Reader(inline.of(stage), own[0], own[1], stage))
    _cut_buffers(made, cuts_inputs)
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


def _next_producer(made: Cut) -> Stage | None:
    """The last reduction that is read and not looked at yet: everything that reads it is known."""
    loads = [load for reader in made.readers for load in loads_of(reader.expression)]
    known = {None, *(reader.stage for reader in made.readers)}
    pending = [stage for load in loads if (stage := made.program.writer(load.source)) not in known]
    return max(filter(None, pending), key=made.program.position, default=None)


def _along(made: Cut, buffer: tirx.Var) -> Along | None:
    """The dimension that every load of a buffer reads at the axis itself; None where there is no such one."""
    extent = made.group.frame.extents[made.axis]
    dimensions = {d for d, e in enumerate(buffer.ty.shape) if same_extent(extent_of(e), extent)}
    for load, reader in _loads(made, buffer):
        read_at = [d for d, index in enumerate(load.indices) if reader.axis is not None and uses(index, [reader.axis])]
        plain = [d for d in read_at if isinstance(load.indices[d], ir.Var)]
        dimensions &= set(plain) if len(read_at) == 1 else set()
    return Along(dimensions.pop()) if len(dimensions) == 1 else None


def _shared_dimension(made: Cut, buffer: tirx.Var) -> int | None:
    """The dimension of a buffer that the row indexes along which the chunk is shared: one copy serves all its values.

    Raises
    ------
    SplitError
        Where the row is read in any other way.
    """
    found: set[int] = set()
    for load, reader in _loads(made, buffer):
        row = reader.row
        read_at = [d for d, index in enumerate(load.indices) if row is not None and uses(index, [row])]
        if any(not isinstance(load.indices[d], ir.Var) for d in read_at):
            where = f"shared along {made.chunk.shared}"
            raise SplitError(f"{buffer.name} read at {made.chunk.shared} itself", str(load), where)
        found.update(read_at)
    if len(found) > 1:
        raise SplitError("one dimension along the shared row", str(sorted(found)), buffer.name)
    return next(iter(found), None)


def _loads(made: Cut, buffer: tirx.Var) -> list[tuple[ir.TensorLoad, Reader]]:
    return [
        (load, reader) for reader in made.readers for load in loads_of(reader.expression) if load.source.same_as(buffer)
    ]


def _cut_buffers(made: Cut, cuts_inputs: bool) -> None:
    """Decides for every buffer that is read what stands for it in the chunk's function."""
    for stage in made.producers:
        made.replaced[stage.buffer] = _like(made, stage.buffer)
    for reader in list(made.readers):
        for load in loads_of(reader.expression):
            buffer = load.source
            if made.replaced.get(buffer) is not None:
                continue
            along = _along(made, buffer) if cuts_inputs else None
            if along is None:
                made.replaced[buffer] = buffer
                continue
            made.along[buffer] = dataclasses.replace(along, left_out=_shared_dimension(made, buffer))
            made.replaced[buffer] = _like(made, buffer)


def _like(made: Cut, buffer: tirx.Var) -> tirx.Var:
    """A buffer for the chunk's share of another."""
    along = made.along.get(buffer)
    shape = [as_index(extent_of(e), made.index_dtype) for e in buffer.ty.shape]
    if along is not None:
        own = made.program.writer(buffer) is not None
        length = made.chunk.piece_length if own else made.chunk.length
        shape[along.dimension] = as_index(length, made.index_dtype)
        shape = [e for d, e in enumerate(shape) if d != along.left_out]
        if own and made.piece is not None:
            shape.insert(0, as_index(made.chunk.pieces, made.index_dtype))
    return tirx.decl_buffer(shape, str(buffer.ty.dtype), name=buffer.name + made.suffix, layout=None)
