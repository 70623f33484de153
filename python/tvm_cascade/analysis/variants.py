"""Constant slices of a result that later reductions read separately: centre[b, 0] and centre[b, 1]."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tvm import ir
from tvm.ir import prim

from tvm_cascade.analysis.extent import extent_of, more_than_one
from tvm_cascade.analysis.program import Stage
from tvm_cascade.analysis.tir import loads_of, substitute

Pattern = tuple[int | None, ...]


@dataclass(frozen=True)
class InlinedReduction:
    """A reduction stage and its element in inputs and other reductions alone, over the stage's own variables."""

    stage: Stage
    element: ir.Expr
    pattern: Pattern = ()

    @property
    def is_slice(self) -> bool:
        """Whether it is a constant slice of the stage's result."""
        return any(fixed is not None for fixed in self.pattern)

    @property
    def name(self) -> str:
        """The buffer's name, with the fixed indices of a part."""
        return "_".join([self.stage.buffer.name, *(str(fixed) for fixed in self.pattern if fixed is not None)])

    def holds(self, load: ir.TensorLoad) -> bool:
        """Whether a load reads this result: the same buffer, at the same fixed indices."""
        if not load.source.same_as(self.stage.buffer):
            return False
        own = self.pattern or (None,) * len(load.indices)
        return pattern_of(load) == own


def pattern_of(load: ir.TensorLoad) -> Pattern:
    """The constant index in each dimension of more than one element; None in the others."""
    return tuple(
        int(index) if isinstance(index, prim.IntImm) and more_than_one(extent_of(extent)) else None
        for index, extent in zip(load.indices, load.source.ty.shape, strict=True)
    )


def variants_of(reductions: list[InlinedReduction]) -> list[InlinedReduction]:
    """Each reduction, followed by the parts of it that the others read."""
    found: list[InlinedReduction] = []
    for reduction in reductions:
        loads = [
            load
            for other in reductions
            for load in loads_of(other.element)
            if load.source.same_as(reduction.stage.buffer)
        ]
        patterns = dict.fromkeys(pattern_of(load) for load in loads)
        found.append(reduction)
        found += [_slice(reduction, pattern) for pattern in patterns if any(fixed is not None for fixed in pattern)]
    return found


def _slice(reduction: InlinedReduction, pattern: Pattern) -> InlinedReduction:
    stage = reduction.stage
    at = {
        var: prim.IntImm(str(var.ty.dtype), fixed)
        for var, fixed in zip(stage.indices, pattern, strict=True)
        if fixed is not None
    }
    spatial = tuple(var for var in stage.spatial if not any(var.same_as(key) for key in at))
    indices = tuple(next((value for key, value in at.items() if key.same_as(index)), index) for index in stage.indices)
    sliced = dataclasses.replace(stage, spatial=spatial, indices=indices)
    return InlinedReduction(sliced, substitute(reduction.element, at), pattern)
