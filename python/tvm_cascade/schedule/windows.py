"""Reductions that read an operand through windows, over an image whose axes are one.

    y[f, i, j] += w[f, c, a, b] * x[c, s·i + a, s·j + b]
    ->  image[c, a', b', q·i + j] = x[c, s·i + a', s·j + b'],  or 0 past its end;  a', b' < s
        flat[f, p] += w[f, c, a, b] * image[c, a % s, b % s, p + q·(a // s) + b // s]
        y[f, i, j] = flat[f, q·i + j]

A window is an offset, the same at all positions, so that vectors run on from row to row and start at any element: of a
product they are the lanes of register tiles. A row of the image is as much longer than one of the result as windows
reach; what is computed there nobody reads. With weights of each channel's own, rows of the result stay apart where that
takes less time: those whose windows meet then share what they read. Windows that move by one along rows of many whole
vectors are read where they lie, and so is what is read once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce

import tvm_ffi
from tvm import ir, sym, tirx
from tvm.ir import prim

from tvm_cascade.analysis.index_sets import greatest
from tvm_cascade.analysis.statements import LoopNest, read_nests
from tvm_cascade.analysis.tir import Extent, as_index, dtype_of, loads_of, substitute, uses, variables_of, within
from tvm_cascade.devices.device import Cpu
from tvm_cascade.schedule.microkernel import LATENCY_CYCLES, row_block, tile_cycles
from tvm_cascade.schedule.nests import Access, BlockPlan, Written, rewritten
from tvm_cascade.schedule.row_fold import MOST_PLACES, TILE_SUMS, sums_together
from tvm_cascade.transform.nest import Iter, NestBuilder, Values, load, store
from tvm_cascade.transform.printer import select

VECTORS = 2
"""Of a row that is long."""

MORE_VECTORS = 5
"""Of an image beyond those that it needs, at most, for a number of them that register tiles divide."""


UNALIGNED_CYCLES = 1.0
"""Of a vector load that starts at any element."""


def windows_as_offsets(func: tirx.PrimFunc, cpu: Cpu) -> tirx.PrimFunc:
    """The function with such images in place of what is read through windows; the same object where there are none.

    Parameters
    ----------
    func : not scheduled.
    cpu : whose vectors lanes are for.
    """
    builder = NestBuilder(names={nest.block.name_hint for nest in read_nests(func)}, annotated=False)

    def over_images(nest: LoopNest, plan: BlockPlan) -> Written | None:
        if (found := _windows(nest, plan, cpu)) is None:
            return None
        builder.dtype = dtype_of(nest.loops[0].loop_var)
        builder.names.discard(plan.name)
        return found.nests(builder), [found.image, found.flat]

    return rewritten(func, over_images)


@dataclass(frozen=True)
class _Moving:
    """An axis along which windows move.

    Attributes
    ----------
    axis, extent : of the result.
    dim, stride : of the operand, and its elements between two windows.
    offset, most : the place within a window, in reduced variables, and the greatest one.
    """

    axis: int
    extent: int
    dim: int
    stride: int
    offset: ir.Expr
    most: int

    @property
    def reach(self) -> int:
        """Windows over which one reaches."""
        return self.most // self.stride

    @property
    def phases(self) -> int:
        """Places of an element among those that windows step over."""
        return min(self.stride, self.most + 1)


def _windows(nest: LoopNest, plan: BlockPlan, cpu: Cpu) -> _Windows | None:
    """The windows of a reduction; None where it has none, or reads them well where they lie."""
    if not nest.loops or not plan.is_plain or not plan.reduce:
        return None
    whole = len(plan.own) == len(nest.block.iter_vars) and len({dtype_of(var) for var in plan.variables.values()}) == 1
    last = plan.last_axis() if whole else None
    read = [access for access in plan.loads if last is not None and plan.step(access, last) != 0]
    if last is None or len(read) != 1 or last in plan.reduce:
        return None
    (access,) = read
    others = [other for other in plan.loads if other is not access]
    if any(access.buffer.same_as(other.buffer) for other in others):
        return None
    moving = _moving(plan, access, frozenset[int]().union(*map(plan.axes_of, others)))
    if not moving or _lies_well(plan, access, moving, cpu):
        return None
    found = _Windows(nest, plan, access, moving, cpu)
    joined = [plan.variables[one.axis] for one in found.joined]
    read_once = found.shared == 1 and not any(one.reach for one in moving)
    return None if read_once or uses(found.value, joined) else found


def _moving(plan: BlockPlan, access: Access, others: frozenset[int]) -> tuple[_Moving, ...]:
    """The last axes of the result along which only this operand is read, each in one dimension, outermost first."""
    ends = {
        var: (as_index(0, dtype_of(var)), as_index(plan.extents[a], dtype_of(var)) - 1)
        for a, var in plan.variables.items()
    }
    found: list[_Moving] = []
    for index in reversed(plan.stores[0].indices):
        axis = plan.axis_at(index)
        if axis is None or axis in plan.reduce or axis in others:
            break
        one = _moving_along(plan, access, axis, ends)
        if one is None or any(one.dim == other.dim for other in found):
            break
        found.insert(0, one)
    return tuple(found)


def _moving_along(
    plan: BlockPlan, access: Access, axis: int, ends: dict[tirx.Var, tuple[ir.Expr, ir.Expr]]
) -> _Moving | None:
    var, extent = plan.variables[axis], plan.extents[axis]
    dims = [dim for dim, index in enumerate(access.indices) if uses(index, [var])]
    if len(dims) != 1 or not isinstance(extent, int):
        return None
    index, (dim,) = access.indices[dims[0]], dims
    analyzer, zero = sym.Analyzer(), as_index(0, dtype_of(var))
    stride = analyzer.simplify(substitute(index, {var: var + 1}) - index)
    offset = analyzer.simplify(substitute(index, {var: zero}))
    reduced = [plan.variables[a] for a in plan.reduce]
    free = [v for v in variables_of(offset) if not any(v.same_as(r) for r in reduced)]
    most = None if free or loads_of(index) else greatest(offset, ends)
    least = None if most is None else greatest(-offset, ends)
    numbers = [analyzer.simplify(one) for one in (stride, most, least, access.buffer.ty.shape[dim]) if one is not None]
    if len(numbers) != 4 or not all(isinstance(one, prim.IntImm) for one in numbers):
        return None
    step, top, bottom, _ = map(int, numbers)
    return _Moving(axis, extent, dim, step, offset, top) if step > 0 and bottom <= 0 else None


def _lies_well(plan: BlockPlan, access: Access, moving: Sequence[_Moving], cpu: Cpu) -> bool:
    """Whether there are no windows, or rows of many whole vectors along which they move by one."""
    last, lanes = moving[-1], cpu.lanes(plan.dtype)
    if len(moving) == 1 and last.stride == 1 and last.most == 0:
        return True
    return last.extent % lanes == 0 and last.extent >= VECTORS * lanes and plan.step(access, last.axis) == 1


class _Windows:
    """One reduction that reads windows.

    Attributes
    ----------
    image, flat : the operand and the result along joined axes.
    value : that is stored, in the block's own variables and the position.
    """

    def __init__(self, nest: LoopNest, plan: BlockPlan, access: Access, moving: tuple[_Moving, ...], cpu: Cpu) -> None:
        self.nest, self.plan, self.access, self.moving, self.cpu = nest, plan, access, moving, cpu
        self.place, self.dtype = plan.stores[0], dtype_of(plan.variables[moving[-1].axis])
        self.position = tirx.Var("position", self.dtype)
        rows = [one.extent + one.reach for one in moving[1:]]
        self.steps = [math.prod(rows[k:]) for k in range(len(moving))]
        self.others = [dim for dim in range(len(access.indices)) if all(dim != one.dim for one in moving)]
        self.phased = [one for one in moving if one.phases > 1]
        self.blocks = self._blocks()
        kept, self.length, tall = self._cut()
        self.joined, self.extents = moving[kept:], dict(plan.extents)
        if kept:
            self.extents[moving[kept - 1].axis] = -(-moving[kept - 1].extent // tall) * tall
        reach = sum(
            (one.reach + int(self.extents[one.axis]) - 1) * step for one, step in zip(moving, self.steps, strict=True)
        )
        joined = sum((one.extent - 1) * step for one, step in zip(self.joined, self.steps[kept:], strict=True))
        self.rows = [-(-(reach - joined + self.length) // self.steps[0]), *rows]
        shape = [access.buffer.ty.shape[dim] for dim in self.others]
        sizes = [*(one.phases for one in self.phased), math.prod(self.rows)]
        name, dtype = str(access.buffer.name), access.buffer.ty.dtype
        self.image = tirx.decl_buffer([*shape, *self._indices(sizes)], dtype, name=f"{name}_image", layout=None)
        extents = [extent for index in self._leading for extent in self._extents(index)]
        shape = [as_index(extent, self.dtype) for extent in (*extents, self.length)]
        self.flat = tirx.decl_buffer(shape, plan.dtype, name=f"{self.place.buffer.name}_flat", layout=None)
        self.value = tvm_ffi.structural_map(self.place.value, (ir.TensorLoad, self._at))

    @property
    def _leading(self) -> list[ir.Expr]:
        """Indices of the result before those that are joined."""
        return list(self.place.indices)[: -len(self.joined)]

    def _indices(self, numbers: Sequence[int]) -> list[ir.Expr]:
        return [as_index(number, self.dtype) for number in numbers]

    def _blocks(self) -> dict[int, int]:
        """Axes of the result that the operand is read at in blocks, such as the channels of a group, and their size."""
        found: dict[int, int] = {}
        for node in (one for index in self.access.indices for one in within(index, prim.FloorDiv)):
            axis = self.plan.axis_at(node.a)
            extent = self.plan.extents.get(axis) if axis is not None else None
            divides = isinstance(node.b, prim.IntImm) and isinstance(extent, int) and extent % int(node.b) == 0
            found.update({axis: int(node.b)} if axis is not None and divides else {})
        return found

    def _extents(self, index: ir.Expr) -> list[Extent]:
        """Of the dimensions of the flat result for an index: two where it is in blocks."""
        axis = self.plan.axis_at(index)
        if axis is None:
            return [1]
        extent, size = self.extents[axis], self.blocks.get(axis)
        return [extent] if size is None else [int(extent) // size, size]

    @cached_property
    def shared(self) -> int:
        """Results for which an element of the image is read at one place of a window: rows of register tiles."""
        own, plan = self.plan.axes_of(self.access), self.plan
        sizes = [self.blocks.get(a, plan.extents[a]) for a in plan.spatial if a in self.blocks or a not in own]
        return max((size for size in sizes if isinstance(size, int)), default=1)

    def _cut(self) -> tuple[int, int, int]:
        """The cut that takes the least time: axes that are not joined, positions of the others, and rows of a tile."""
        lanes, shared, last = self.cpu.lanes(self.plan.dtype), self.shared, self.moving[-1]
        end = sum((one.extent - 1) * step for one, step in zip(self.moving, self.steps, strict=True))
        least = end // lanes + 1

        def cycles(vectors: int) -> float:
            if shared > 1:
                return tile_cycles(vectors * lanes, row_block(shared), self.cpu, self.plan.dtype)
            together = sums_together(vectors)
            return vectors / together * max(LATENCY_CYCLES, together * UNALIGNED_CYCLES)

        cuts = [(cycles(n), 0, n * lanes, 1) for n in range(least, least + MORE_VECTORS + 1)]
        if shared == 1 and len(self.moving) > 1 and last.stride == 1 and self._meets(self.moving[-2]):
            vectors, rows = -(-last.extent // lanes), self.moving[-2].extent
            outside = math.prod(one.extent for one in self.moving[:-2])
            together = sums_together(vectors, TILE_SUMS)
            cuts += [
                (
                    outside * vectors / together * -(-rows // tall) * max(LATENCY_CYCLES, tall * together / 2),
                    len(self.moving) - 1,
                    vectors * lanes,
                    tall,
                )
                for tall in range(2, TILE_SUMS // together + 1)
            ]
        return min(cuts)[1:]

    def _meets(self, one: _Moving) -> bool:
        """Whether neighbouring windows read the same rows, at neighbouring places."""
        return one.stride == 1 and one.most < MOST_PLACES and self.plan.axis_at(one.offset) in self.plan.reduce

    def _at(self, one: ir.TensorLoad) -> ir.TensorLoad:
        """What is read at a position in place of what the block reads."""
        if one.source.same_as(self.place.buffer):
            return load(self.flat, [*self._split(self._leading), self.position])
        if not one.source.same_as(self.access.buffer):
            return one
        offset, phases = self.position, list[ir.Expr]()
        for moving, step in zip(self.moving, self.steps, strict=True):
            offset = offset + moving.offset // moving.stride * step
            offset = offset if moving in self.joined else offset + self.plan.variables[moving.axis] * step
            phases += [moving.offset % moving.stride] if moving.phases > 1 else []
        return load(self.image, [*(one.indices[dim] for dim in self.others), *phases, offset])

    def _split(self, indices: Sequence[ir.Expr]) -> list[ir.Expr]:
        """Indices of the flat result for those of the result."""
        sizes = [self.blocks.get(axis) if (axis := self.plan.axis_at(index)) is not None else None for index in indices]
        pairs = zip(indices, sizes, strict=True)
        return [part for index, size in pairs for part in ([index] if size is None else [index // size, index % size])]

    def nests(self, builder: NestBuilder) -> list[tirx.Stmt]:
        """The image, the reduction over it, and what is kept of that."""
        return [self._copied(builder), self._reduced(builder), self._kept(builder)]

    def _joined(self, at: Sequence[ir.Expr]) -> ir.Expr:
        """The position of an element along the last axes of the image."""
        steps = self.steps[len(self.moving) - len(at) :]
        return reduce(lambda a, b: a + b, (index * step for index, step in zip(at, steps, strict=True)))

    def _copied(self, builder: NestBuilder) -> tirx.Stmt:
        shape = self.access.buffer.ty.shape
        iters = [Iter(("dim", dim), f"d{dim}", shape[dim]) for dim in self.others]
        iters += [Iter(("phase", one.axis), f"phase{one.dim}", one.phases) for one in self.phased]
        iters += [Iter(one.axis, f"q{one.dim}", rows) for one, rows in zip(self.moving, self.rows, strict=True)]

        def body(at: Values) -> list[tirx.Stmt]:
            where: dict[int, ir.Expr] = {dim: at["dim", dim] for dim in self.others}
            inside: list[ir.Expr] = []
            for one, rows in zip(self.moving, self.rows, strict=True):
                where[one.dim] = at[one.axis] * one.stride + at.get(("phase", one.axis), as_index(0, self.dtype))
                if (rows - 1) * one.stride + one.phases > int(shape[one.dim]):
                    inside.append(prim.LT(where[one.dim], as_index(int(shape[one.dim]), self.dtype)))
            value = load(self.access.buffer, [where[dim] for dim in range(len(shape))])
            if inside:
                value = select(reduce(tirx.And, inside), value, tirx.const(0, dtype_of(value)), lazy=True)
            at_phases = [at["phase", one.axis] for one in self.phased]
            target = [*(at["dim", dim] for dim in self.others), *at_phases]
            return [store(self.image, value, [*target, self._joined([at[one.axis] for one in self.moving])])]

        return builder.nest(str(self.image.name), "", iters, body)

    def _reduced(self, builder: NestBuilder) -> tirx.Stmt:
        plan, images = self.plan, [one.axis for one in self.joined]
        iters: list[Iter] = []
        for axis in plan.own:
            name, extent, size = str(plan.variables[axis].name), self.extents[axis], self.blocks.get(axis)
            if axis == images[-1]:
                iters.append(Iter("position", "position", self.length))
            elif size is not None:
                iters += [Iter(("block", axis), f"{name}_block", int(extent) // size), Iter(axis, name, size)]
            elif axis not in images:
                iters.append(Iter(axis, name, extent, axis in plan.reduce))

        def written(value: ir.Expr, at: Values) -> list[tirx.Stmt]:
            values = {plan.variables[axis]: at[axis] for axis in plan.own if axis in at}
            values |= {plan.variables[a]: at["block", a] * size + at[a] for a, size in self.blocks.items()}
            values[self.position] = at["position"]
            analyzer = sym.Analyzer()
            for one in iters:
                analyzer.bind(at[one.key], ir.Range(as_index(0, self.dtype), as_index(one.extent, self.dtype)))

            def simple(one: ir.TensorLoad) -> ir.TensorLoad:
                return load(one.source, [analyzer.simplify(index) for index in one.indices])

            place = [analyzer.simplify(substitute(index, values)) for index in self._split(self._leading)]
            value = tvm_ffi.structural_map(substitute(value, values), (ir.TensorLoad, simple))
            return [store(self.flat, value, [*place, at["position"]])]

        start = self.nest.block.init
        assert isinstance(start, tirx.BufferStore)
        body, init = (partial(written, value) for value in (self.value, start.value))
        return builder.nest(plan.name, "", iters, body, init)

    def _kept(self, builder: NestBuilder) -> tirx.Stmt:
        plan = self.plan
        iters = [Iter(axis, str(plan.variables[axis].name), plan.extents[axis]) for axis in plan.spatial]

        def body(at: Values) -> list[tirx.Stmt]:
            values = {plan.variables[axis]: at[axis] for axis in plan.spatial}
            position = self._joined([at[one.axis] for one in self.joined])
            found = [substitute(index, values) for index in (*self._split(self._leading), position)]
            return [
                store(self.place.buffer, load(self.flat, found), [substitute(i, values) for i in self.place.indices])
            ]

        return builder.nest(f"{plan.name}_kept", "", iters, body)
