"""The rewrite: program and groups in, fused function out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import s_tir, tirx

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.order import access_of, among, sources_of
from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.statements import block_names
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.devices.device import Device
from tvm_cascade.errors import RewriteError
from tvm_cascade.options import FuseOptions
from tvm_cascade.steps.program import program_of
from tvm_cascade.steps.verify import verify
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
from tvm_cascade.transform.finish import FinishEmitter
from tvm_cascade.transform.guard import GuardEmitter
from tvm_cascade.transform.guarding import guarding, results_asked_for
from tvm_cascade.transform.handoff import FUSED, carried_form
from tvm_cascade.transform.layout import Plan, lay_out, plan_loop
from tvm_cascade.transform.loop import LoopEmitter
from tvm_cascade.transform.merge import MergeEmitter
from tvm_cascade.transform.nest import NestBuilder
from tvm_cascade.transform.scope import Slot, Slots, accumulator_dtype


def rewrite(program: Program, groups: list[Group], options: FuseOptions, device: Device) -> tirx.PrimFunc:
    """The function with each group as one loop, cut for a device.

    rewrite: for l: d₁ ⊕= F₁(x[l]);  for l: d₂ ⊕= F₂(x[l], d₁)
          →  for tile: for l in tile: state = merge(state, lift(x[l]));  d = finish(state)

    Raises
    ------
    RewriteError
        When the result is not well formed: a defect of this package.
    """
    asked_for = {stage.name for stage in live_stages(program, groups, [[] for _ in groups])}
    asked_for |= {member.stage.name for group in groups for member in group.members}
    plans = [plan_loop(program, group, asked_for) for group in groups]
    live = live_stages(program, groups, [plan.reads for plan in plans])
    inlined = absorbed(program, live, [buffer for plan in plans for buffer in plan.reads])
    kept = [stage for stage in live if stage not in inlined]
    whole = [stage for stage in kept if stage is program.together(stage)[0]]
    pieces = [stage_piece(program, stage, inlined, program.position(stage)) for stage in whole]
    pieces += [opaque_piece(program, one, one.position) for one in program.opaque]
    taken = {stage.name for stage in kept} | {name for one in program.opaque for name in block_names(one.nest)}
    nests = NestBuilder(index_dtype(program), taken)
    read = [b for piece in pieces for b, _ in piece.reads] + [b for plan in plans for b in plan.reads]
    fused = [_group_piece(program, plan, options, device, nests, read) for plan in plans]
    func = build_function(program, in_dependency_order([*pieces, *(piece for piece, _ in fused)]))
    if not s_tir.analysis.verify_well_formed(func, assert_mode=False):
        raise RewriteError("a well-formed function", f"one that is not:\n{func.script()}", ", ".join(groups[0].names))
    return func.with_attr(FUSED, [fold for _, fold in fused])


def _group_piece(
    program: Program,
    plan: Plan,
    options: FuseOptions,
    device: Device,
    nests: NestBuilder,
    read: Sequence[tirx.Var],
) -> tuple[Piece, dict[str, Any]]:
    """A group's loop with what follows it, and its fold as the function carries it."""
    asked = results_asked_for(program, plan.group, read)
    guarded = guarding(plan, asked, options.guards, classes=True, loops=True)
    layout = lay_out(plan, guarded.asked, options, device)
    group, elements, dims = layout.group, layout.elements, layout.dims
    slots = Slots(group, layout.tiling, dims, nests.dtype)
    slots.homes.update({} if guarded.results else _homes(program, slots))
    steps = program_of(group.fold, elements.temporaries, elements.lifts)
    verify(steps, {atom.symbol for atom in group.atoms.atoms.values()})
    dims.define_scales(steps)
    statements: list[tirx.Stmt] = []
    if group.fold.units:  # results that are numbers carry nothing
        statements.append(LoopEmitter(slots, nests, elements, steps, plan.producers, layout.dead).run())
        if slots.tiling.segmented:
            statements += MergeEmitter(slots, nests, steps).run()
    finish = FinishEmitter(slots, nests, set(guarded.asked), guarded.results)
    statements += finish.run()
    guards = GuardEmitter(slots, nests, guarded, plan.producers)
    statements += guards.run()
    stages = [member.stage for member in plan.group.members]
    results = tuple((stage.buffer, program.position(stage)) for stage in stages)
    own = [slot.buffer for slot in slots.homes.values()]
    piece = Piece(
        tuple(statements),
        _read_at(program, stages, plan.reads),
        results,
        (*slots.buffers, *own, *finish.written, *(member.stage.buffer for member in guards.members)),
        order=min(position for _, position in results),
    )
    return piece, carried_form(group)


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
        whole = not slots.tiling.segmented and slots.tiling.none is None
        if plain and same_dtype and whole and not program.is_param(buffer):
            homes.setdefault(component, Slot(buffer, dims, per_segment=False))
    return homes
