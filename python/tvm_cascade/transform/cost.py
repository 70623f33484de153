"""A first cost model for CPUs: time of the stages along the axis, unfused against fused, on one core.

A stage takes the larger of its arithmetic and its traffic, with traffic priced by the level of memory that what it
reads and writes fits in. Fused, the elements are read once; a pass that remains after the loop (the division of a
softmax) has to compute again what is no longer stored. Contractions cost the same arithmetic either way.
The prices were fitted on an AMD Zen 3 core; only their ratios matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import sympy as sp
import tvm
import tvm_ffi
from tvm import ir
from tvm.ir import prim

from tvm_cascade.analysis.domain import Program, Stage, dtype_of, loads_of
from tvm_cascade.analysis.expression import function_name
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.inline import Inliner
from tvm_cascade.analysis.passes import passes_of
from tvm_cascade.transform.dims import Dims

LEVELS: tuple[tuple[float, float], ...] = ((256e3, 64.0), (16e6, 24.0), (math.inf, 9.0))
"""(bytes that fit, bytes per ns) of each level of memory, nearest first."""

OPERATIONS_PER_NS = 32.0
CONTRACTION_OPERATIONS_PER_NS = 64.0
FUNCTION_OPERATIONS = 10
MARGIN = 1.1
"""How much slower the fused form must look before it is declined: the model is no better than that."""

LEAST_LOSS_NS = 50e3
"""A predicted loss below this is not worth a refusal: starting the threads of one call costs as much."""

TILE_NS = 25.0
"""Moving one row's references and state between tiles."""


@dataclass(frozen=True)
class Estimate:
    """Predicted cost of both forms.

    Attributes
    ----------
    passes_before, passes_after : passes over the cascade axis.
    bytes_before, bytes_after : of intermediates that grow with the cascade axis, outputs left out.
    ns_before, ns_after : predicted time on one core, in nanoseconds.
    """

    passes_before: int
    passes_after: int
    bytes_before: int
    bytes_after: int
    ns_before: float
    ns_after: float

    @property
    def slower(self) -> bool:
        """Whether the fused form is predicted to be slower, beyond the model's own error."""
        return self.ns_after > MARGIN * self.ns_before and self.ns_after - self.ns_before > LEAST_LOSS_NS

    def __str__(self) -> str:
        return f"estimated {self.ns_before / 1e3:.1f} us unfused, {self.ns_after / 1e3:.1f} us fused (one core)"


def estimate(program: Program, group: Group) -> Estimate:
    """Both forms' passes, intermediates and time."""
    passes = passes_of(program, group)
    intermediates = [s for s in passes.inside if not program.is_param(s.buffer) and not _is_result(s, group)]
    after = passes.after
    kept = [s for s in intermediates if any(_reads(a, s) for a in after) and s.reducer is not None]
    inline = Inliner(program)
    before = sum(_stage_ns(stage, stage.value) for stage in (*passes.inside, *after))
    contractions = sum(_stage_ns(stage, stage.value) for stage in passes.inside if _contracts(stage))
    remaining = sum(_stage_ns(stage, inline(stage.value, stage.extents)) for stage in after)
    return Estimate(
        len(passes.inside) + len(after),
        1 + len(after),
        sum(_bytes(stage) for stage in intermediates),
        sum(_bytes(stage) for stage in kept),
        before,
        remaining + contractions + _loop_ns(program, group, after),
    )


def _is_result(stage: Stage, group: Group) -> bool:
    return any(stage is member.stage for member in group.members)


def _reads(stage: Stage, other: Stage) -> bool:
    return any(load.source.same_as(other.buffer) for load in loads_of(stage.value))


def _bytes(stage: Stage) -> int:
    shape = [int(extent) for extent in stage.buffer.ty.shape]
    return math.prod(shape) * tvm.DataType(dtype_of(stage.buffer)).itemsize


def _size(load: ir.TensorLoad) -> int:
    shape = [int(extent) for extent in load.source.ty.shape]
    return math.prod(shape) * tvm.DataType(dtype_of(load)).itemsize


def _traffic_ns(sizes: list[int]) -> float:
    """Time to move buffers once: together they stay in the first level that holds them all."""
    total = sum(sizes)
    speed = next(speed for fits, speed in LEVELS if total <= fits)
    return total / speed


def _stage_ns(stage: Stage, value: ir.Expr) -> float:
    points = math.prod(stage.extents.values())
    if _contracts(stage):
        return 2.0 * points / CONTRACTION_OPERATIONS_PER_NS
    sizes = [_size(load) for load in _distinct(loads_of(value))]
    written = [] if stage.reducer is not None else [_bytes(stage)]
    arithmetic = points * (_operations(value) + (stage.reducer is not None)) / OPERATIONS_PER_NS
    return max(arithmetic, _traffic_ns(sizes + written))


def _contracts(stage: Stage) -> bool:
    """Whether a stage runs over more points than its operands have: a contraction."""
    points = math.prod(stage.extents.values())
    return all(points > 2 * math.prod(int(e) for e in load.source.ty.shape) for load in loads_of(stage.value))


def _loop_ns(program: Program, group: Group, after: Sequence[Stage]) -> float:
    """The fused loop: every element read once, every lift computed once, state moved once a tile."""
    fold, dims = group.fold.restricted_to(_asked_for(program, group, after)), Dims(group)
    axis, length = group.frame.axis, group.frame.length
    extents = {var: extent for var, extent in group.frame.extents.items() if not any(var.same_as(a) for a in axis)}
    results = {m.result for m in group.members if not _contracts(m.stage)}
    points: dict[sp.Expr, int] = {}
    for component in fold.components:
        if component.owner in results:
            points[component.lift] = length * math.prod(extents[var] for var in dims.of(component.lift))
    operations = sum(count * (_sympy_operations(lift) + 1) for lift, count in points.items())
    loads = _distinct([load for a in group.atoms.atoms.values() if a.varies for load in loads_of(a.expression)])
    tiles = -(-length // 4096) * max(1, max(points.values(), default=0) // max(length, 1))
    moving = tiles * (len(fold.references) + len(points)) * TILE_NS if extents else 0.0
    return max(operations / OPERATIONS_PER_NS, _traffic_ns([_size(load) for load in loads])) + moving


def _asked_for(program: Program, group: Group, after: Sequence[Stage]) -> list[sp.Symbol]:
    """The results that the loop has to give: of one that is read in slices alone, the slices."""
    slices = [member.stage.block for member in group.members if member.is_slice]
    return [
        member.result
        for member in group.members
        if not member.is_slice
        and (
            program.is_param(member.stage.buffer)
            or any(_reads(stage, member.stage) for stage in after)
            or not any(member.stage.block.same_as(block) for block in slices)
        )
    ]


def _distinct(loads: list[ir.TensorLoad]) -> list[ir.TensorLoad]:
    found: list[ir.TensorLoad] = []
    for load in loads:
        if not any(load.source.same_as(other.source) for other in found):
            found.append(load)
    return found


def _sympy_operations(lift: sp.Expr) -> int:
    functions = {f for f in lift.atoms(sp.Function) if not isinstance(f, (sp.Abs, sp.sign))}
    return int(sp.count_ops(lift)) + FUNCTION_OPERATIONS * len(functions)


def _operations(value: ir.Expr) -> int:
    """Arithmetic of one point, functions weighted."""
    total = 0

    def count(node: ir.Expr) -> None:
        nonlocal total
        total += FUNCTION_OPERATIONS if function_name(node) else 1

    kinds = (prim.Add, prim.Sub, prim.Mul, prim.Div, prim.Max, prim.Min, ir.Call)
    tvm_ffi.structural_walk(value, [(kind, count) for kind in kinds])
    return total
