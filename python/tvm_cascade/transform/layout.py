"""The contents of a group's loop: producers, temporaries of tiles, and the tiling of the axis."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import sympy as sp
import tvm
import tvm_ffi
from tvm import ir, tirx

from tvm_cascade.algebra.fold import Component
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.inline import inliner_of, plain_indices
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.tir import dtype_of, extent_of, loads_of, same_extent
from tvm_cascade.devices.device import Device
from tvm_cascade.options import FuseOptions
from tvm_cascade.symbolic.elementary import COSTLY
from tvm_cascade.transform.dead_tiles import DeadPositions, LiveTiles, dead_positions, live_tiles_of
from tvm_cascade.transform.elements import Dims, ElementPlan, contractions_apart, plan_elements
from tvm_cascade.transform.nest_cost import distinct, size_of
from tvm_cascade.transform.scope import component_dtype
from tvm_cascade.transform.tiling import Streams, Tiling, choose_tiling


@dataclass(frozen=True)
class Plan:
    """The contents of one group's loop.

    Attributes
    ----------
    producers : inner reductions computed within the tile.
    reads : buffers that the loop loads from outside.
    """

    group: Group
    producers: list[Producer]
    reads: list[tirx.Var]


@dataclass(frozen=True)
class Layout:
    """The layout of one group's loop.

    Attributes
    ----------
    group : with the fold of the results that are asked for, and contractions as products.
    dims : of its symbols.
    elements : temporaries of a tile, and the lifts in terms of them.
    dead : positions that a mask takes out, where that is known.
    tiling : how the axis is cut.
    streams : what is read along the axis.
    live : the tiles that masks leave; None where there are none, or an extent is symbolic.
    """

    group: Group
    dims: Dims
    elements: ElementPlan
    dead: DeadPositions | None
    tiling: Tiling
    streams: Streams
    live: LiveTiles | None

    @property
    def rows(self) -> tuple[tirx.Var, ...]:
        """The row variables, on which every component and temporary depends: parallel loops."""
        parts = [c.symbol if c.parts else c.lift for c in self.group.fold.components]
        parts += [temporary.symbol for temporary in self.elements.temporaries]
        own = [{*self.dims.of(part)} for part in parts]
        return tuple(v for v in self.dims.order if all(v in other for other in own))


def plan_loop(program: Program, group: Group, asked_for: set[str]) -> Plan:
    """The producers and inputs of a group's loop; named stages stay outside."""
    producers = find_producers(program, group, asked_for)
    elements = [member.element for member in group.members] + [producer.element for producer in producers]
    inside = [member.stage.buffer for member in group.members] + [producer.stage.buffer for producer in producers]
    reads = [load.source for element in elements for load in loads_of(element)]
    return Plan(group, producers, [buffer for buffer in reads if not among(buffer, inside)])


def lay_out(plan: Plan, asked: Sequence[sp.Symbol], options: FuseOptions, device: Device) -> Layout:
    """The loop of a group for the results that are asked for, under the options, cut for a device."""
    group = contractions_apart(dataclasses.replace(plan.group, fold=plan.group.fold.restricted_to(asked)))
    dims = Dims(group)
    contracting = any(contracts(component, dims) for component in group.fold.components)
    elements = plan_elements(group.fold.components, list(group.atoms.atoms.values()), dims)
    dead = dead_positions(group)
    widest = _contracted_bytes(group, dims)
    live = live_tiles_of(dead, group.frame)
    streams = _streams(group, elements)
    tiling = choose_tiling(group.frame, options, device, contracting, streams, widest, live)
    return Layout(group, dims, elements, dead, tiling, streams, live)


def contracts(component: Component, dims: Dims) -> bool:
    """Whether no part of the lift has all of its axes: a GEMM-like update."""
    own = dims.of(component.lift)
    varying = [s for s in component.lift.free_symbols if dims.varies(s)]
    return bool(varying) and not any(dims.of(s) == own for s in varying)


def _contracted_bytes(group: Group, dims: Dims) -> int:
    """Bytes that one position of the widest operand of a contraction holds, over the axes that not every state has."""
    own = [{*dims.of(component.lift)} for component in group.fold.components]
    shared = {v for v in dims.order if all(v in other for other in own)}
    widest = 0
    for component in group.fold.components:
        for symbol in component.lift.free_symbols if contracts(component, dims) else ():
            free = [v for v in dims.of(symbol) if v not in shared]
            extents = [group.frame.extents[v] for v in free] if dims.varies(symbol) else [0]
            sizes = [extent for extent in extents if isinstance(extent, int)]
            size = tvm.DataType(component_dtype(group, component)).itemsize
            widest = max(widest, size * math.prod(sizes) if len(sizes) == len(extents) else 0)
    return widest


def _streams(group: Group, elements: ElementPlan) -> Streams:
    """What the elements load, each once."""
    loads = [load for atom in group.atoms.atoms.values() if atom.varies for load in loads_of(atom.expression)]
    each = {tvm_ffi.StructuralKey(load): load for load in loads}  # type: ignore[call-arg]
    sources = [load.source for load in distinct(each.values())]
    sizes = [
        sum(tvm.DataType(dtype_of(load)).itemsize for load in each.values() if load.source.same_as(source))
        for source in sources
    ]
    static = all(isinstance(extent_of(extent), int) for source in sources for extent in source.ty.shape)
    functions = any(lift.atoms(*COSTLY) for lift in elements.lifts.values()) or any(
        temporary.expression.atoms(*COSTLY) for temporary in elements.temporaries
    )
    return Streams(sum(sizes), max(sizes, default=0), sum(map(size_of, sources)) if static else 0, functions)


# Producers: inner reductions that are elements of a cascade (the scores Q·Kᵀ), computed tile by tile.


@dataclass(frozen=True)
class Producer:
    """A reduction whose result is read at the cascade axis, kept for one tile only.

    Attributes
    ----------
    stage : the reduction as it was written.
    element : its element with elementwise stages inlined, over its own variables.
    variables : its own spatial variables -> the frame's.
    """

    stage: Stage
    element: ir.Expr
    variables: dict[tirx.Var, tirx.Var]


def find_producers(program: Program, group: Group, keep: set[str]) -> list[Producer]:
    """Producers of a group's elements, each before those that read it.

    Those whose buffer the caller or another stage asks for (`keep`, by block name) stay as they are, and so do those
    read at anything but plain frame variables.
    """
    inline, members = inliner_of(program), [member.stage for member in group.members]
    loads = [load for member in group.members for load in loads_of(member.element)]
    found: list[Producer] = []
    for buffer in dict.fromkeys(load.source for load in loads):
        stage = program.writer(buffer)
        if stage is None or stage.reducer is None or stage.is_part or stage.name in keep or stage in members:
            continue
        reads = [_plain_read(stage, load, group) for load in loads if load.source.same_as(buffer)]
        if reads[0] is not None and all(read == reads[0] for read in reads):
            found.insert(0, Producer(stage, inline.of(stage), reads[0]))
    return found


def _plain_read(stage: Stage, load: ir.TensorLoad, group: Group) -> dict[tirx.Var, tirx.Var] | None:
    """The producer's variables in the frame's, where it is read at plain and distinct ones."""
    if not plain_indices(stage):
        return None
    variables: dict[tirx.Var, tirx.Var] = {}
    for written, index in zip(stage.indices, load.indices, strict=True):
        if isinstance(written, ir.prim.IntImm):
            continue
        if index not in group.frame.extents or index in {*variables.values()}:
            return None
        if not same_extent(stage.extents[written], group.frame.extents[index]):
            return None
        variables[written] = index
    return variables if {*group.frame.axis} <= {*variables.values()} else None
