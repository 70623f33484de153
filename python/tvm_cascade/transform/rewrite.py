"""Program and groups in, fused function out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from tvm_cascade.algebra.fold import Component
from tvm_cascade.analysis.domain import Program, Stage, dtype_of, loads_of
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.frame import lookup
from tvm_cascade.analysis.order import access_of, among, sources_of
from tvm_cascade.analysis.statements import block_names
from tvm_cascade.errors import RewriteError
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.assemble import (
    Piece,
    Use,
    absorbed,
    build_function,
    in_dependency_order,
    index_dtype,
    live_stages,
    opaque_piece,
    stage_piece,
)
from tvm_cascade.transform.dead_tiles import dead_positions
from tvm_cascade.transform.dims import Dims
from tvm_cascade.transform.elements import plan_elements
from tvm_cascade.transform.factors import contractions_apart
from tvm_cascade.transform.finish import FinishEmitter
from tvm_cascade.transform.loop import LoopEmitter
from tvm_cascade.transform.merge import MergeEmitter
from tvm_cascade.transform.nest import NestBuilder
from tvm_cascade.transform.producers import Producer, find_producers
from tvm_cascade.transform.scope import Slot, Slots, accumulator_dtype, component_dtype
from tvm_cascade.transform.shifts import plan_shifts
from tvm_cascade.transform.tiling import choose_tiling


@dataclass(frozen=True)
class Plan:
    """What one group's loop will contain.

    Attributes
    ----------
    producers : inner reductions computed within the tile.
    reads : buffers that the loop loads from outside.
    """

    group: Group
    producers: list[Producer]
    reads: list[tirx.Var]


def rewrite(program: Program, groups: list[Group], options: FuseOptions) -> tirx.PrimFunc:
    """The function with each group as one loop.

    rewrite: for l: d₁ ⊕= F₁(x[l]);  for l: d₂ ⊕= F₂(x[l], d₁)
          →  for tile: for l in tile: state = merge(state, lift(x[l]));  d = finish(state)

    Raises
    ------
    RewriteError
        When the result is not well formed: a defect of this package.
    """
    asked_for = {stage.name for stage in live_stages(program, groups, [[] for _ in groups])}
    asked_for |= {member.stage.name for group in groups for member in group.members}
    plans = [_plan(program, group, asked_for) for group in groups]
    live = live_stages(program, groups, [plan.reads for plan in plans])
    inlined = absorbed(program, live, [buffer for plan in plans for buffer in plan.reads])
    kept = [stage for stage in live if not any(stage is other for other in inlined)]
    whole = [stage for stage in kept if stage is program.together(stage)[0]]
    pieces = [stage_piece(program, stage, inlined, program.position(stage)) for stage in whole]
    pieces += [opaque_piece(program, one, one.position) for one in program.opaque]
    taken = {stage.name for stage in kept} | {name for one in program.opaque for name in block_names(one.nest)}
    nests = NestBuilder(index_dtype(program), taken)
    read = [b for piece in pieces for b, _ in piece.reads] + [b for plan in plans for b in plan.reads]
    pieces += [_group_piece(program, plan, options, nests, lambda b: among(b, read)) for plan in plans]
    func = build_function(program, in_dependency_order(pieces))
    if not s_tir.analysis.verify_well_formed(func, assert_mode=False):
        raise RewriteError("a well-formed function", f"one that is not:\n{func.script()}", ", ".join(groups[0].names))
    return func


def _plan(program: Program, group: Group, asked_for: set[str]) -> Plan:
    producers = find_producers(program, group, asked_for)
    elements = [member.element for member in group.members] + [producer.element for producer in producers]
    inside = [member.stage.buffer for member in group.members] + [producer.stage.buffer for producer in producers]
    reads = [load.source for element in elements for load in loads_of(element)]
    return Plan(group, producers, [buffer for buffer in reads if not among(buffer, inside)])


def _group_piece(
    program: Program, plan: Plan, options: FuseOptions, nests: NestBuilder, read: Callable[[tirx.Var], bool]
) -> Piece:
    asked = [
        m.result
        for m in plan.group.members
        if not m.is_slice and (program.is_param(m.stage.buffer) or read(m.stage.buffer))
    ]
    group = contractions_apart(dataclasses.replace(plan.group, fold=plan.group.fold.restricted_to(asked)))
    dims = Dims(group)
    contracts = any(_contracts(component, dims) for component in group.fold.components)
    elements = plan_elements(group.fold.components, list(group.atoms.atoms.values()), dims)
    dead = dead_positions(group)
    widest = _contracted_bytes(group, dims)
    tiling = choose_tiling(group.frame, options, contracts, _bytes_per_position(group), dead is not None, widest)
    slots = Slots(group, tiling, dims, nests.dtype)
    slots.homes.update(_homes(program, slots))
    shifts = plan_shifts(group.fold, dims)
    statements: list[tirx.Stmt] = []
    if group.fold.units:  # results that are numbers carry nothing
        statements.append(LoopEmitter(slots, nests, elements, shifts, plan.producers, dead).run())
        if slots.tiling.segmented:
            statements += MergeEmitter(slots, nests, shifts.decay).run()
    finish = FinishEmitter(slots, nests, set(asked))
    statements += finish.run()
    stages = [member.stage for member in plan.group.members]
    results = tuple((stage.buffer, program.position(stage)) for stage in stages)
    own = [slot.buffer for slot in slots.homes.values()]
    return Piece(
        tuple(statements),
        _read_at(program, stages, plan.reads),
        results,
        (*slots.buffers, *own, *finish.written),
        order=min(position for _, position in results),
    )


def _read_at(program: Program, members: list[Stage], buffers: list[tirx.Var]) -> tuple[Use, ...]:
    """Buffers that a loop loads, with the places at which the stages that it is made of read them."""
    sources = [(program.position(stage), access_of((stage,)).reads) for stage in sources_of(program, members)]
    return tuple((buffer, position) for buffer in buffers for position, reads in sources if among(buffer, reads))


def _homes(program: Program, slots: Slots) -> dict[object, Slot]:
    """Results of the program's own that are components as they stand: the component lives in their buffer.

    One that is another result as it stands (max of what is never above it) has none: finish copies it.
    """
    homes: dict[object, Slot] = {}
    components = {component.symbol for component in slots.group.fold.components}
    for member in slots.group.members:
        component = slots.group.fold.finish.get(member.result)
        if component not in components or member.is_slice:
            continue
        dims, buffer = slots.dims.of(component), member.stage.buffer
        plain = len(dims) == len(member.dims) and all(d.same_as(v) for d, v in zip(member.dims, dims, strict=True))
        same_dtype = accumulator_dtype(dtype_of(buffer)) == dtype_of(buffer)
        if plain and same_dtype and not slots.tiling.segmented and not program.is_param(buffer):
            homes.setdefault(component, Slot(buffer, dims, per_segment=False))
    return homes


def _contracts(component: Component, dims: Dims) -> bool:
    """Whether no part of the lift has all of its axes: a GEMM-like update."""
    own = dims.of(component.lift)
    varying = [s for s in component.lift.free_symbols if dims.varies(s)]
    return not any(dims.of(s) == own for s in varying)


def _contracted_bytes(group: Group, dims: Dims) -> int:
    """Bytes that one position of the widest operand of a contraction holds, over the axes that not every state has."""
    own = [dims.of(component.lift) for component in group.fold.components]
    shared = [v for v in dims.order if all(any(v.same_as(o) for o in other) for other in own)]
    widest = 0
    for component in group.fold.components:
        for symbol in component.lift.free_symbols if _contracts(component, dims) else ():
            free = [v for v in dims.of(symbol) if not any(v.same_as(s) for s in shared)]
            extents = [lookup(group.frame.extents, v) for v in free] if dims.varies(symbol) else [0]
            sizes = [extent for extent in extents if isinstance(extent, int)]
            size = tvm.DataType(component_dtype(group, component)).itemsize
            widest = max(widest, size * math.prod(sizes) if len(sizes) == len(extents) else 0)
    return widest


def _bytes_per_position(group: Group) -> int:
    """Bytes of distinct element loads."""
    loads = [load for atom in group.atoms.atoms.values() if atom.varies for load in loads_of(atom.expression)]
    distinct = {tvm_ffi.StructuralKey(load): load for load in loads}  # type: ignore[call-arg]
    return sum(tvm.DataType(dtype_of(load)).itemsize for load in distinct.values())
