"""Packs a buffer into panels: `panel` neighbours along one dimension become contiguous.

x[h, i, d]  ->  x[h, i // 16, d, i % 16]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import s_tir

from tvm_cascade.analysis.extent import Extent, extent_of
from tvm_cascade.schedule.nest_schedule import Block, Loop, Nest, known_divisor
from tvm_cascade.schedule.nests import Access


def panel_layout(dim: int, extent: Extent, panel: int) -> Callable[..., list[Any]]:
    """The index map that moves a dimension last, in panels; unsplit where the panel does not divide it."""

    def layout(*dims: Any) -> list[Any]:
        others = [*dims[:dim]], [*dims[dim + 1 :]]
        if known_divisor(extent, panel) < panel if not isinstance(extent, int) else extent % panel:
            return [*others[0], *others[1], dims[dim]]
        return [*others[0], dims[dim] // panel, *others[1], dims[dim] % panel]

    return layout


def pack_operand(nest: Nest, access: Access, dim: int, panel: int, at: Loop | None) -> Block:
    """Copies an operand into panels along one of its dimensions, under a loop or in a separate nest."""
    sch = nest.sch
    # For this block alone: others that read the operand look for it where it was.
    packed = sch.cache_read(nest.block, nest.read_index(access), "global", [nest.block])
    if at is not None:
        sch.compute_at(packed, at)
    lay_out(sch, packed, access, dim, panel)
    return packed


def lay_out(sch: s_tir.Schedule, copy: Block, access: Access, dim: int, panel: int) -> None:
    """Lays out a copy of what an access reads in panels along a dimension."""
    sch.transform_layout(copy, ("write", 0), panel_layout(dim, extent_of(access.buffer.ty.shape[dim]), panel))


def lay_out_in_panels(nest: Nest, dim: int, panel: int) -> None:
    """Lays out the nest's output in panels along one of its dimensions."""
    shape = nest.plan.stores[0].buffer.ty.shape
    if dim != len(shape) - 1:
        nest.sch.transform_layout(nest.block, ("write", 0), panel_layout(dim, extent_of(shape[dim]), panel))
