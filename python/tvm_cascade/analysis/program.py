"""A PrimFunc as a list of stages: one block, one buffer, one value per point of its iteration domain.

A block that reduces a tuple is several stages, one for each buffer, that share the block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from numpy.typing import NDArray
from tvm import ir, s_tir, tirx
from tvm.ir import prim

from tvm_cascade.algebra.reducer import Reducer
from tvm_cascade.analysis.opaque import Opaque
from tvm_cascade.analysis.statements import statements_of
from tvm_cascade.analysis.tir import DATA_PARALLEL, REDUCTION, Extent, dtype_of, extent_of, loads_of
from tvm_cascade.errors import InputError

RECENT_PROGRAMS = 64
"""Programs of which is remembered what was found out: plans of one function read it again and again."""


@dataclass(frozen=True, eq=False)
class Stage:
    """buffer[indices] = value, or buffer[indices] ⊕= value over the reduction variables.

    Attributes
    ----------
    name : the block's name.
    buffer : what it writes.
    block : the block itself; `nest` is the statement that holds it with its loops.
    spatial, reduce : its iteration variables, with `extents` for each.
    indices : where it writes, in its spatial variables.
    value : the stored value, or the element of the reduction.
    reducer : ⊕, None for an elementwise stage.
    """

    name: str
    buffer: tirx.Var
    block: s_tir.SBlock
    nest: tirx.Stmt
    spatial: tuple[tirx.Var, ...]
    reduce: tuple[tirx.Var, ...]
    extents: dict[tirx.Var, Extent]
    indices: tuple[ir.Expr, ...]
    value: ir.Expr
    reducer: Reducer | None
    init: ir.Expr | None

    @staticmethod
    def of(
        nest: tirx.Stmt,
        block: s_tir.SBlock,
        buffer: tirx.Var,
        indices: Sequence[ir.Expr],
        value: ir.Expr,
        reducer: Reducer | None = None,
        init: ir.Expr | None = None,
    ) -> Stage:
        """The stage of a block of plain loops."""
        spatial, reduce = (
            tuple(iv.var for iv in block.iter_vars if iv.iter_type == kind) for kind in (DATA_PARALLEL, REDUCTION)
        )
        extents = {iv.var: extent_of(iv.dom.extent) for iv in block.iter_vars}
        name = block.name_hint
        return Stage(name, buffer, block, nest, spatial, reduce, extents, tuple(indices), value, reducer, init)

    @cached_property
    def reads(self) -> tuple[tirx.Var, ...]:
        """The buffers that it loads, for each load; but its accumulator."""
        return tuple(load.source for e in (self.value, *self.indices) for load in loads_of(e))

    @property
    def is_part(self) -> bool:
        """Whether it is one part of a reduction of tuples."""
        return self.reducer is not None and self.reducer.whole is not None


@dataclass(frozen=True, eq=False)
class Program:
    """The stages of a function, in order, and the nests that cannot be read; `params` are buffers and numbers."""

    func: tirx.PrimFunc
    root: s_tir.SBlock
    stages: tuple[Stage, ...]
    opaque: tuple[Opaque, ...] = ()

    @cached_property
    def params(self) -> tuple[tirx.Var, ...]:
        """The function's parameters, in order."""
        return tuple(self.func.params)

    @cached_property
    def nests(self) -> tuple[tuple[Stage, ...] | Opaque, ...]:
        """The statements of the root block, in order: the stages of each, or what it touches where it is not read."""
        unread = {one.position: one for one in self.opaque}
        return tuple(
            unread.get(position) or tuple(stage for stage in self.stages if stage.nest.same_as(nest))
            for position, nest in enumerate(self.statements)
        )

    def position(self, stage: Stage) -> int:
        """The place of a stage's nest among all nests."""
        return next(k for k, nest in enumerate(self.statements) if nest.same_as(stage.nest))

    @cached_property
    def statements(self) -> list[tirx.Stmt]:
        """The statements of the root block, in order."""
        return statements_of(self.root)

    @cached_property
    def _writers(self) -> dict[tirx.Var, Stage]:
        return {stage.buffer: stage for stage in reversed(self.stages)}

    def writer(self, buffer: tirx.Var) -> Stage | None:
        """The stage that writes a buffer; None for an input, and for one that nests that are not read write."""
        return self._writers.get(buffer)

    def together(self, stage: Stage) -> tuple[Stage, ...]:
        """The stages of the same block, in order: the parts of a tuple, or the stage alone."""
        return tuple(other for other in self.stages if other.block.same_as(stage.block))

    def is_param(self, buffer: tirx.Var) -> bool:
        """Whether the caller passed the buffer, so that its contents are asked for."""
        return buffer in {*self.params}


def is_static(program: Program) -> bool:
    """Whether every extent is a number, of loops and of buffers: a cache may have more pages than a loop visits."""
    buffers = [*filter(tirx.is_buffer_var, program.params), *program.root.alloc_buffers]
    loops = [extent for stage in program.stages for extent in stage.extents.values()]
    shapes = [extent_of(extent) for buffer in buffers for extent in buffer.ty.shape]
    return all(isinstance(extent, int) for extent in (*loops, *shapes))


# Substitutes given sizes for symbolic extents, so that inputs can be drawn.


DEFAULT_SIZE = 64
"""A symbolic extent of which nothing is said."""


def at_sizes(
    func: tirx.PrimFunc, sizes: Mapping[str, int] | None = None, example: Sequence[NDArray[Any]] | None = None
) -> tirx.PrimFunc:
    """The function with a number for every symbolic extent of its buffers: (n, 10) → (64, 10).

    Parameters
    ----------
    func : any function of blocks; it is not modified.
    sizes : extents by name; the others are those of `example`, or else `DEFAULT_SIZE`.
    example : arrays for the first parameters.

    Returns
    -------
    func : the same object where no extent is symbolic.

    Raises
    ------
    InputError
        When a size is no positive integer, or of no extent.
    """
    buffers = [param for param in func.params if tirx.is_buffer_var(param)]
    named = {extent.name: extent for buffer in buffers for extent in buffer.ty.shape if isinstance(extent, ir.Var)}
    given = dict(sizes or {})
    if unknown := [name for name in given if name not in named]:
        expected = f"names among {', '.join(named)}" if named else "no sizes, as every extent is a number"
        raise InputError(expected, ", ".join(map(repr, unknown)), "sizes")
    for name, size in given.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise InputError("a positive integer", repr(size), f"sizes[{name!r}]")
    for buffer, array in zip(buffers, example or (), strict=False):
        for extent, size in zip(buffer.ty.shape, array.shape, strict=False):
            if isinstance(extent, ir.Var):
                given.setdefault(extent.name, size)
    known = {extent: prim.IntImm(dtype_of(extent), given.get(name, DEFAULT_SIZE)) for name, extent in named.items()}
    params = list(dict.fromkeys([*func.params, *known]))  # a function is specialised by parameters alone
    return tirx.PrimFunc(params, func.body, func.ret_type, attrs=func.attrs).specialize(known) if named else func
