"""A function in chunks of an axis, one after the other, so that what has the axis lives one chunk at a time.

    p[i, k] = f(Σ_d x[i, d]·w[k, d])                       o = 0;  for each chunk of k:
    o[i, d] = Σ_k p[i, k]·v[k, d]                     →        p of the chunk;  o += Σ p·v over the chunk
    g[k, d] = Σ_i p[i, k]·y[i, d]                              g of the chunk, in its place

Sums over the axis merge by +. All else that runs along the axis is its own at each position: of the caller's tensors, a
chunk reads and writes its part.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, TypeAlias

import tvm_ffi
from tvm import ir, tirx

from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.statements import sequence, statements_of
from tvm_cascade.analysis.tir import Extent, dtype_of, extent_of
from tvm_cascade.chunks.part import Dimension, Rows, offset_of, over_a_part, rows_of
from tvm_cascade.errors import SplitError
from tvm_cascade.options import FuseOptions
from tvm_cascade.plan.cuts import Position, behind, map_nest, nests_of, parts_of, with_nests
from tvm_cascade.plan.plan import bytes_of
from tvm_cascade.transform.fuse_function import Outcome, read_function

_AXIS = "chunk"
"""What a chunk's first position is named by."""

_WIDE = 4
"""Bytes of a number that chunks add to, at least: a narrower one would be rounded after each."""


_UNIT = 128
"""Positions that chunks of long axes are multiples of, so that tiles are whole."""

_ALIGNED = 256
"""Bytes that parts of tensors begin at multiples of, as tensors do."""

_MOST_CHUNKS = 64


@dataclass(frozen=True)
class Call:
    """A function of a program in chunks, and what it is called with.

    Attributes
    ----------
    func : the function; a parameter of a chunk's extent is a part of its argument.
    arguments : buffers of the whole, and numbers.
    offset : the number among them that is the chunk's first position.
    times, start, length : chunks that it is called for, the first position of the first, and positions of each. What
        does not run along the axis is called once, for none.
    """

    func: tirx.PrimFunc
    arguments: tuple[tirx.Var, ...]
    offset: tirx.Var | None = None
    times: int = 1
    start: int = 0
    length: int = 0

    def statement(self, called: str) -> tirx.Stmt:
        """The calls, one after the other, of the function by its name."""
        number = tirx.Var(_AXIS, "int64")
        first = number * tirx.const(self.length, "int64") + tirx.const(self.start, "int64")
        views, given = list[tirx.Stmt](), list[ir.Expr]()
        for param, argument in zip(self.func.params, self.arguments, strict=True):
            if argument is self.offset:
                given.append(first.astype(dtype_of(argument)))
            elif not tirx.is_buffer_var(param) or _shape(param) == _shape(argument):
                given.append(argument)
            else:
                view = tirx.decl_buffer(param.ty.shape, dtype_of(param), name=f"{param.name}_part", layout=None)
                along = first * tirx.const(_bytes_of_position(argument), "int64")
                views.append(tirx.DeclBuffer(view, data=tirx.handle_add_byte_offset(argument.data, along)))
                given.append(view)
        body = sequence([*views, tirx.Evaluate(tirx.call_cpacked(called, *given))])
        return tirx.For(number, tirx.const(0, "int64"), tirx.const(self.times, "int64"), tirx.ForKind.SERIAL, body)


def _shape(buffer: tirx.Var) -> list[Extent]:
    return [extent_of(extent) for extent in buffer.ty.shape]


def _outermost(buffer: tirx.Var) -> int:
    """The first dimension of more than one position: parts along it are contiguous."""
    return next((d for d, extent in enumerate(_shape(buffer)) if extent != 1), 0)


def _bytes_of_position(buffer: tirx.Var) -> int:
    inner = math.prod(map(int, buffer.ty.shape[_outermost(buffer) + 1 :]))
    return inner * int(tvm_ffi.dtype(dtype_of(buffer)).itemsize)


@dataclass(frozen=True)
class Serial:
    """The functions of a program in chunks of an axis.

    Attributes
    ----------
    name, extent : of the axis.
    rows : the axis, in the function of all that runs along it.
    before, after : the functions of what does not.
    """

    program: Program
    name: str
    extent: int
    rows: Rows
    before: tuple[tirx.PrimFunc, ...]
    after: tuple[tirx.PrimFunc, ...]

    @property
    def lengths(self) -> list[int]:
        """Of chunks, the longest first: equal ones where there are some, whose tensors begin where whole ones may."""
        unit = _UNIT if self.extent >= 2 * _UNIT else 1
        along = [param for param in self.rows.dimensions if self.program.is_param(param)]
        counts = range(2, min(_MOST_CHUNKS, self.extent // unit) + 1)
        equal = [self.extent // n for n in counts if self.extent % (n * unit) == 0]
        found = equal or list(dict.fromkeys(-(-self.extent // (n * unit)) * unit for n in counts))
        return [n for n in found if all(n * _bytes_of_position(param) % _ALIGNED == 0 for param in along)]

    def calls(self, length: int) -> list[Call]:
        """What computes the function in chunks of so many positions, and a shorter last one, in order."""
        zeros = list(map(_zeros, self.sums))
        started = [with_nests(self.program.func, self.sums, zeros, [])] if zeros else []
        whole, rest = divmod(self.extent, length)
        chunks = [self._chunk(length, 0, whole), *([self._chunk(rest, whole * length, 1)] if rest else [])]
        once = [[Call(func, tuple(func.params)) for func in some] for some in ((*self.before, *started), self.after)]
        return [*once[0], *chunks, *once[1]]

    @cached_property
    def sums(self) -> tuple[tirx.Var, ...]:
        """What every chunk adds to."""
        return self.rows.summed

    @property
    def passed(self) -> tuple[tirx.Var, ...]:
        """The temporaries of the whole: sums, and what is computed before."""
        buffers = [b for func in (*self.before, self.rows.program.func, *self.after) for b in func.params]
        return tuple(dict.fromkeys(b for b in buffers if tirx.is_buffer_var(b) and not self.program.is_param(b)))

    def _chunk(self, length: int, start: int, times: int) -> Call:
        part = _Part(self, over_a_part(self.rows, length, _AXIS))
        params = [*part.given, *part.numbers, *part.results]
        func = with_nests(self.program.func, [param for param, _ in params], part.nests, part.own)
        return Call(func, tuple(argument for _, argument in params), part.offset, times, start, length)


def _zeros(buffer: tirx.Var) -> tirx.Stmt:
    zero: ir.Expr = tirx.const(0, dtype_of(buffer))
    return map_nest(f"{buffer.name}_start", buffer, _shape(buffer), lambda _: zero)


@dataclass
class _Part:
    """The function of a chunk: its parameters, each with the caller's argument, its nests and its own buffers.

    A chunk adds its sums to those before it. Of a tensor that has the axis within others it reads a copy, and writes to
    one.
    """

    serial: Serial
    func: tirx.PrimFunc
    given: list[tuple[tirx.Var, tirx.Var]] = field(default_factory=list)
    results: list[tuple[tirx.Var, tirx.Var]] = field(default_factory=list)

    def __post_init__(self) -> None:
        rows = self.serial.rows
        self.nests, self.own = statements_of(self.func), list(self.func.body.block.alloc_buffers)
        numbers = [param for param in self.func.params if not tirx.is_buffer_var(param)]
        known = (number for number in numbers if number.name == offset_of(_AXIS))
        dtype = dtype_of(next(iter(rows.variables)))
        self.offset = next(known, tirx.Var(offset_of(_AXIS), dtype))
        self.numbers = [(number, number) for number in dict.fromkeys([*numbers, self.offset])]
        buffers = [list(filter(tirx.is_buffer_var, func.params)) for func in (rows.program.func, self.func)]
        for whole, chunk in zip(*buffers, strict=True):
            dimension, written = rows.dimension(whole), rows.program.writer(whole) is not None
            if whole in self.serial.sums:
                self._add(whole)
            elif dimension is None or dimension == _outermost(whole):
                (self.results if written else self.given).append((chunk, whole))
            else:
                self._copy(whole, chunk, dimension, written)

    def _add(self, whole: tirx.Var) -> None:
        """Its own sums, to those so far: the caller passes both in one tensor."""
        so_far, total = (
            tirx.decl_buffer(whole.ty.shape, dtype_of(whole), name=f"{whole.name}_{word}", layout=None)
            for word in ("so_far", "total")
        )

        def added(at: Sequence[tirx.Var]) -> ir.Expr:
            return tirx.BufferLoad(so_far, at) + tirx.BufferLoad(whole, at)

        self.nests.append(map_nest(total.name, total, _shape(whole), added))
        self.own.append(whole)
        self.given.append((so_far, whole))
        self.results.append((total, whole))

    def _copy(self, whole: tirx.Var, chunk: tirx.Var, dimension: int, written: bool) -> None:
        def placed(at: Sequence[tirx.Var]) -> list[ir.Expr]:
            return [v + self.offset.astype(dtype_of(v)) if d == dimension else v for d, v in enumerate(at)]

        self.own.append(chunk)
        (self.results if written else self.given).append((whole, whole))
        if written:
            nest = map_nest(f"{whole.name}_part", whole, _shape(chunk), lambda at: tirx.BufferLoad(chunk, at), placed)
            self.nests.append(nest)
        else:
            nest = map_nest(f"{chunk.name}_part", chunk, _shape(chunk), lambda at: tirx.BufferLoad(whole, placed(at)))
            self.nests.insert(0, nest)


def axes_of(program: Program) -> Iterator[Serial | SplitError]:
    """The axes of a program's temporaries that it may be computed in chunks of, or why it may not."""
    seen = set[frozenset[tirx.Var]]()
    for buffer in program.root.alloc_buffers:
        for seed in ((buffer, d) for d, extent in enumerate(_shape(buffer)) if extent != 1):
            try:
                rows = rows_of(program, [seed])
                if rows.variables and rows.variables not in seen:
                    seen.add(rows.variables)
                    yield _along(rows, seed)
            except SplitError as refusal:
                yield refusal


def _along(rows: Rows, seed: Dimension) -> Serial:
    """A program in chunks of the axis that a dimension of one of its buffers is.

    Raises
    ------
    SplitError
        When something along the axis reads a sum over it, or is neither such a sum nor its own at each position.
    """
    program = rows.program
    own = [(stage, v) for stage in program.stages for v in stage.extents if v in rows.variables]
    name = own[0][1].name.removeprefix("v_")
    lengths = {stage.extents[v] for stage, v in own}
    lengths |= {extent_of(buffer.ty.shape[rows.dimension(buffer)]) for buffer in rows.dimensions}
    extent = lengths.pop()
    if lengths or not isinstance(extent, int) or rows.otherwise is not None:
        found = ", ".join(map(str, {extent, *lengths})) if rows.otherwise is None else rows.otherwise
        raise SplitError(f"tensors of one extent along {name}, read one by one", str(found), name)
    sums = {program.position(stage) for stage, v in own if v in stage.reduce}
    before, along, after = _parts(program, {program.position(stage) for stage, _ in own}, sums, name)
    read = read_function(along, is_canonical=True)
    if not isinstance(read, Program):
        raise SplitError("nests that can be read", str(read), name)
    serial = Serial(program, name, extent, rows_of(read, [seed]), before, after)
    if narrow := [buffer.name for buffer in serial.sums if tvm_ffi.dtype(dtype_of(buffer)).itemsize < _WIDE]:
        raise SplitError(f"sums of at least {_WIDE} bytes over {name}", narrow[0], name)
    return serial


_Funcs: TypeAlias = tuple[tirx.PrimFunc, ...]


def _parts(
    program: Program, along: set[Position], sums: set[Position], name: str
) -> tuple[_Funcs, tirx.PrimFunc, _Funcs]:
    """The functions of what comes before the nests along an axis, of these, and of what comes after.

    Parameters
    ----------
    sums : the nests along it that reduce over it.
    """
    nests, places = nests_of(program), range(len(program.nests))
    after = {k for k in places if k not in along and behind(nests, {k}) & along}
    if again := behind(nests, along) & (after | sums):
        told = nests.stages(min(again))[0].name
        raise SplitError(f"one pass over {name}", f"`{told}`, which needs all of it and is read along it", name)
    before = {*places} - along - after
    made = iter(parts_of(program, [sorted(part) for part in (before, along, after) if part]))
    first, whole = tuple(next(made) for _ in (before,) if before), next(made)
    return first, whole, tuple(made)


# Whether a function is computed in chunks of an axis, and how long these are: memory against time.
#
# d_logits of 4096 tokens × 128256 classes     1002 MiB, 15.6 ms     6 chunks of 21376     231 MiB, 16.0 ms


_LARGE, _MIB = 256, 1 << 20
"""MiB of temporaries from which on memory is worth time, where nobody says."""

MOST_TIME, MOST_BYTES = 1.03, 0.25
"""Time and bytes in chunks over those at once, at most, where nobody asked for less memory."""


def least_bytes(options: FuseOptions) -> int:
    """Bytes of temporaries up to which a function is computed at once in any case."""
    return (_LARGE if options.temporaries is None else options.temporaries) * _MIB


@dataclass(frozen=True)
class Cost:
    """Estimated seconds, 0 where nobody estimates, and bytes of temporaries."""

    seconds: float
    bytes: int


@dataclass(frozen=True)
class Part:
    """What the pass made of a function that is called, and what it is lowered to."""

    outcome: Outcome
    chosen: Any


@dataclass(frozen=True)
class Chunks:
    """A function in chunks of an axis.

    Attributes
    ----------
    calls : of its functions, in order.
    cost, whole : in chunks, and at once.
    each : the functions as they are lowered.
    """

    serial: Serial
    calls: tuple[Call, ...]
    cost: Cost
    whole: Cost
    each: tuple[Part, ...] = ()

    def __str__(self) -> str:
        several = " and ".join(f"{call.times} of {call.length}" for call in self.calls if call.length)
        return f"chunks of {self.serial.name} one after the other, {several}"


Measure = Callable[[tirx.PrimFunc], Cost]


def in_chunks(program: Program, measure: Measure, whole: Cost, limit: int | None) -> Chunks | str:
    """The function in the longest chunks that need little enough memory, or why it is computed at once.

    Parameters
    ----------
    measure : of a function.
    whole : of the program at once.
    limit : bytes of temporaries, at most, whatever the time; where it is left out, a part of those at once.
    """
    most = int(MOST_BYTES * whole.bytes) if limit is None else limit
    found, refusals = list[Chunks](), dict[str, None]()
    for axis in axes_of(program):
        one: Chunks | str
        if isinstance(axis, SplitError):
            one = f"{axis.where}: expected {axis.expected}, found {axis.found}"
        else:
            try:
                one = _of_axis(axis, measure, whole, most, limit is None)
            except Exception as defect:  # a compiler pass must not stop a build
                one = f"{axis.name}: {type(defect).__name__}: {defect}"
        if isinstance(one, Chunks):
            found.append(one)
        else:
            refusals[one] = None
    return min(found, key=lambda one: (one.cost.seconds, one.cost.bytes), default="; ".join(refusals))


def _of_axis(axis: Serial, measure: Measure, whole: Cost, most: int, in_time: bool) -> Chunks | str:
    """The longest chunks of an axis that need so many bytes at most; or why there are none.

    Parameters
    ----------
    in_time : they may take little longer than the whole.
    """
    cost = cache(lambda length: _cost(axis, length, measure))
    lengths = axis.lengths if (bytes_of(axis.passed) or 0) < most else []
    place = bisect_left(lengths, True, key=lambda length: cost(length).bytes <= most)
    if place == len(lengths):
        return f"{axis.name}: all chunks need more than {most // _MIB} MiB"
    if in_time and cost(lengths[place]).seconds > MOST_TIME * whole.seconds:
        return f"{axis.name}: chunks take {cost(lengths[place]).seconds / whole.seconds:.2f} times as long"
    return Chunks(axis, tuple(axis.calls(lengths[place])), cost(lengths[place]), whole)


def _cost(axis: Serial, length: int, measure: Measure) -> Cost:
    calls = axis.calls(length)
    costs = [measure(call.func) for call in calls]
    seconds = sum(call.times * cost.seconds for call, cost in zip(calls, costs, strict=True))
    return Cost(seconds, (bytes_of(axis.passed) or 0) + max(cost.bytes for cost in costs))
