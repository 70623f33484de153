"""Packs a buffer into panels: `panel` neighbours along one dimension become contiguous.

x[h, i, d]  ->  x[h, i // 16, d, i % 16]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import s_tir

from tvm_cascade.analysis.extent import Extent, extent_of, product
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.devices.device import Cpu
from tvm_cascade.schedule.nest_schedule import Block, Loop, Nest, known_divisor, power_of_two_divisor
from tvm_cascade.schedule.nests import Access

LINES_OF_A_SET, SET_BYTES = 8, 4096
"""Lines of a first-level cache whose addresses are equal modulo so many bytes: one more pushes another one out."""


def panel_layout(dim: int, extent: Extent, panel: int, before: int | None = None) -> Callable[..., list[Any]]:
    """The index map that moves a dimension last, in panels; unsplit where the panel does not divide it.

    Parameters
    ----------
    before : the dimension before which panels are counted; `dim` by default, of which it is none that follows.
    """

    def layout(*dims: Any) -> list[Any]:
        place = dim if before is None else before
        others = [*dims[:place]], [*dims[place:dim], *dims[dim + 1 :]]
        if known_divisor(extent, panel) < panel if not isinstance(extent, int) else extent % panel:
            return [*others[0], *others[1], dims[dim]]
        return [*others[0], dims[dim] // panel, *others[1], dims[dim] % panel]

    return layout


def can_be_laid_out(access: Access) -> bool:
    """Whether TVM lays out a copy of an operand: its indices have to be of one dtype."""
    return len({dtype_of(index) for index in access.indices}) <= 1


def pack_operand(nest: Nest, access: Access, dim: int, panel: int, at: Loop | None, before: int | None = None) -> Block:
    """Copies an operand into panels along one of its dimensions, under a loop or in a separate nest."""
    sch = nest.sch
    # For this block alone: others that read the operand look for it where it was.
    packed = sch.cache_read(nest.block, nest.read_index(access), "global", [nest.block])
    if at is not None:
        sch.compute_at(packed, at)
    lay_out(sch, packed, access, dim, panel, before)
    return packed


def panel_of(cpu: Cpu, dtype: str) -> int:
    """Elements of a panel of an operand: the lanes of a register tile of two vectors."""
    return 2 * cpu.lanes(dtype)


def schedule_panels(nest: Nest, copy: Block, dim: int, panel: int) -> None:
    """Schedules a copy into panels: those of its source in vectors, and in parallel where it is a nest by itself.

    Parameters
    ----------
    dim : of the source, along which panels run.
    """
    sch = nest.sch
    around = sch.get_loops(copy)[: -len(sch.get(copy).iter_vars)]  # of the loop that computes what is copied
    loops = sch.get_loops(copy)[len(around) :]
    extents = [extent_of(sch.get(loop).extent) for loop in loops]
    whole = product(extents[dim + 1 :])
    if dim == len(loops) - 1 or not isinstance(whole, int):
        _, lane = _vector(nest, loops[dim], panel)
        nest.go_parallel([] if around else loops[:dim])
        return
    # Lanes that lie apart: in squares, which are transposed in registers.
    size = min(power_of_two_divisor(int(extents[-1]), nest.cpu.lanes(nest.dtype)), known_divisor(extents[dim], panel))
    outer, lane = _vector(nest, loops[dim], size)
    beside, neighbour = sch.split(loops[-1], [None, size])
    sch.reorder(*loops[:dim], outer, *loops[dim + 1 : -1], beside, neighbour, lane)
    nest.deferred.unrolled.append(neighbour)
    nest.go_parallel([] if around else [*loops[:dim], outer])


def _vector(nest: Nest, loop: Loop, most: int) -> tuple[Loop, Loop]:
    """A loop cut into vectors of whole lanes."""
    extent = extent_of(nest.sch.get(loop).extent)
    width = known_divisor(extent, most)
    outer, lane = nest.sch.split(loop, [None, width])
    nest.deferred.vector += [lane] if width > 1 else []
    return outer, lane


def lines_at_hand(step: int) -> int:
    """Lines, so many bytes apart, that a first-level cache holds at once."""
    return LINES_OF_A_SET * (SET_BYTES // math.gcd(step, SET_BYTES))


def lay_out(sch: s_tir.Schedule, copy: Block, access: Access, dim: int, panel: int, before: int | None = None) -> None:
    """Lays out a copy of what an access reads in panels along a dimension."""
    sch.transform_layout(copy, ("write", 0), panel_layout(dim, extent_of(access.buffer.ty.shape[dim]), panel, before))


def lay_out_in_panels(nest: Nest, dim: int, panel: int) -> None:
    """Lays out the nest's output in panels along one of its dimensions."""
    shape = nest.plan.stores[0].buffer.ty.shape
    if dim != len(shape) - 1:
        nest.sch.transform_layout(nest.block, ("write", 0), panel_layout(dim, extent_of(shape[dim]), panel))
