"""What of a function is sharded, and the functions that ranks run: all follow from the function and its fold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from tvm import ir, tirx

from tvm_cascade.analysis.program import Program, is_static
from tvm_cascade.analysis.tir import extent_of
from tvm_cascade.chunks.assemble import combine_function, cut_into, merge_function, partial_functions
from tvm_cascade.chunks.cut import Chunk, Cut
from tvm_cascade.chunks.part import Rows, over_a_part, rows_of
from tvm_cascade.chunks.picks import with_picks
from tvm_cascade.chunks.sources import Stacked
from tvm_cascade.chunks.state import SingleFold, StatePart, single_fold, state_of
from tvm_cascade.driver.arguments import Parameter, parameters_of
from tvm_cascade.errors import OptionError, SplitError
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.assemble import index_dtype
from tvm_cascade.transform.fuse_function import read_function


@dataclass(frozen=True)
class Along:
    """An axis of a function's tensors.

    Attributes
    ----------
    name, length : of the axis.
    dimensions : of each tensor, the one that is the axis.
    """

    name: str
    length: int
    dimensions: Mapping[str, int]


class Chunked:
    """A function with one fold, in chunks of its axis of which each leaves a state."""

    def __init__(self, func: tirx.PrimFunc, options: FuseOptions) -> None:
        self.fold = single_fold(func, options, options.guards)
        if not is_static(self.fold.program):
            hint = "tvm_cascade.split takes any length"
            raise SplitError("extents that are numbers", "a symbolic one", "shard", hint)
        self._state = state_of(self.fold.group, [param.name for param in self.fold.program.params])
        self._dtype = index_dtype(self.fold.program)
        self._made: dict[tuple[str, int], tirx.PrimFunc] = {}

    @cached_property
    def state(self) -> tuple[StatePart, ...]:
        """The buffers of a state."""
        return tuple(one.part for one in self._state.leaving)

    @property
    def is_guarded(self) -> bool:
        """Whether `merge` tells, in outputs after the function's own, which of its results may not be used."""
        return bool(self.fold.guarding.results)

    @property
    def bytes(self) -> int:
        """Of a state."""
        return sum(part.size for part in self.state)

    @cached_property
    def along(self) -> dict[str, int]:
        """The inputs of which a chunk has its own, each with its dimension along the axis."""
        cut = self._cut(1).along
        return {buffer.name: one.dimension for buffer, one in cut.items() if self.fold.program.is_param(buffer)}

    def partial(self, length: int) -> tirx.PrimFunc:
        """From the inputs of a chunk of a length, and its first position `offset`, to its state."""
        return self._once("partial", length, lambda: partial_functions(self.fold, self._state, [self._cut(length)])[0])

    def combine(self, chunks: int) -> tirx.PrimFunc:
        """From the states of some chunks to one."""
        return self._once("combine", chunks, lambda: combine_function(self.fold, self._stacked(chunks)))

    def merge(self, chunks: int) -> tirx.PrimFunc:
        """From the states of all chunks to results."""
        return self._once("merge", chunks, lambda: merge_function(self.fold, self._stacked(chunks)))

    def _once(self, name: str, number: int, make: Callable[[], tirx.PrimFunc]) -> tirx.PrimFunc:
        if (name, number) not in self._made:
            self._made[name, number] = make()
        return self._made[name, number]

    def _cut(self, length: int) -> Cut:
        return cut_into(self.fold, self._state, [Chunk(length, tirx.Var("offset", self._dtype))])[0]

    def _stacked(self, chunks: int) -> Stacked:
        return Stacked(self._state, chunks, self._dtype)


class Sharding:
    """A function whose fold runs over a sharded axis, and whose rows may be sharded too.

    Parameters
    ----------
    func : the global function, which is not scheduled.
    axis, rows : names of loops: that of the fold, and one of its rows; empty for the only axis, and for no rows.
    """

    def __init__(self, func: tirx.PrimFunc, axis: str, rows: str, options: FuseOptions) -> None:
        self.func, self.options, self.chunked = func, options, in_chunks(func, options)
        self.parameters = parameters_of(func)
        self.axis = _axis_of(self.chunked, axis)
        self.rows = rows_named(self.chunked.fold, rows) if rows else None
        self._parts: dict[tuple[tirx.PrimFunc, str, int], tirx.PrimFunc] = {}
        self._known: dict[tuple[tirx.PrimFunc, str], Rows] = {}
        self._cut: dict[tuple[tirx.PrimFunc, str], Mapping[str, int]] = {}

    @cached_property
    def inputs(self) -> tuple[Parameter, ...]:
        return tuple(one for one in self.parameters if not one.written)

    @cached_property
    def outputs(self) -> tuple[Parameter, ...]:
        return tuple(one for one in self.parameters if one.written)

    def cut_along(self, one: Parameter) -> Along | None:
        """The axis along which ranks have a share of a tensor: the rows, where it has both."""
        found = [along for along in (self.rows, self.axis) if along is not None and one.name in along.dimensions]
        return found[0] if found else None

    def dimension(self, name: str, along: Along) -> int:
        """The dimension of a tensor along an axis."""
        return along.dimensions[name]

    def over(self, func: tirx.PrimFunc, along: Along, length: int) -> tirx.PrimFunc:
        """A function of some of the parameters over a part of an axis, from its number `<axis>_offset` on."""
        key = (func, along.name, length)
        if key not in self._parts:
            self._parts[key] = over_a_part(self.rows_in(func, along), length, along.name)
        return self._parts[key]

    def dimensions(self, func: tirx.PrimFunc, along: Along) -> Mapping[str, int]:
        """The dimension along an axis of each tensor that a function takes, of states too."""
        key = (func, along.name)
        if key not in self._cut:
            self._cut[key] = _dimensions(self.rows_in(func, along))
        return self._cut[key]

    def rows_in(self, func: tirx.PrimFunc, along: Along) -> Rows:
        """All that runs along an axis in a function of some of the parameters."""
        key = (func, along.name)
        if key not in self._known:
            program = _read(func)
            seeds = [(one, along.dimensions[one.name]) for one in program.params if one.name in along.dimensions]
            self._known[key] = rows_of(program, seeds)
        return self._known[key]


def _read(func: tirx.PrimFunc) -> Program:
    program = read_function(func)
    if not isinstance(program, Program):
        raise SplitError("a function that can be read", str(program), "shard")
    return program


def in_chunks(func: tirx.PrimFunc, options: FuseOptions) -> Chunked:
    """The function in chunks; elements of what is cut, at indices that are data, are sums over the axis."""
    found = Chunked(func, options)
    program = found.fold.program
    along = {param: found.along[param.name] for param in program.params if param.name in found.along}
    picked = with_picks(rows_of(program, along.items()), along)
    return found if picked is None else Chunked(picked, options)


def _axis_of(chunked: Chunked, name: str) -> Along:
    fold = chunked.fold
    names = [var.name for var in fold.group.frame.axis]
    if name and name not in names:
        raise OptionError(f"the axis of the fold, {' or '.join(names)}", repr(name), "shard(axis=…)")
    if not chunked.along:
        raise SplitError("inputs that are read along the axis", "none", ", ".join(fold.group.names))
    seeds = [(param, chunked.along[param.name]) for param in fold.program.params if param.name in chunked.along]
    return _along(rows_of(fold.program, seeds), name or names[0])


def rows_named(fold: SingleFold, name: str) -> Along:
    """The rows of a fold that a loop of this name runs over."""
    frame = fold.group.frame
    names = {var.name: var for var in frame.extents if var not in {*frame.axis}}
    if name not in names:
        raise OptionError(f"rows among {', '.join(sorted(names))}", repr(name), "shard(rows=…)")
    seeds = [
        (member.stage.buffer, d)
        for member in fold.group.members
        for d, index in enumerate(member.dims)
        if isinstance(index, ir.Var) and index.same_as(names[name])
    ]
    rows = rows_of(fold.program, seeds)
    if not rows.variables.isdisjoint(stage_var for member in fold.group.members for stage_var in member.stage.reduce):
        raise SplitError(
            f"rows {name} that are not the axis", "tensors that are read along both", f"shard(rows={name!r})"
        )
    if rows.summed:
        raise SplitError("independent rows", f"{rows.summed[0].name}, a sum over them", f"shard(rows={name!r})")
    return _along(rows, name)


def _along(rows: Rows, name: str) -> Along:
    dimensions = _dimensions(rows)
    one = next(param for param in rows.program.params if param.name in dimensions)
    return Along(name, int(extent_of(one.ty.shape[dimensions[one.name]])), dimensions)


def _dimensions(rows: Rows) -> dict[str, int]:
    found = {param.name: rows.dimension(param) for param in rows.program.params}
    return {name: d for name, d in found.items() if d is not None}
