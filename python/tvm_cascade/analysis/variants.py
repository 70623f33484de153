"""Parts of a result that later reductions read separately: centre[b, 0] and centre[b, 1], or mean[i] and mean[j].

Of a covariance matrix Σ (x[k, i] − mean[i])·(x[k, j] − mean[j]) the means of its rows and those of its columns are one
result to the program, and two to the loop: each has a value for a row variable of its own.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.extent import extent_of, more_than_one
from tvm_cascade.analysis.program import Stage
from tvm_cascade.analysis.tir import loads_of, same, substitute

Pattern = tuple[int | None, ...]


@dataclass(frozen=True)
class InlinedReduction:
    """A reduction stage and its element in inputs and other reductions alone, over the stage's own variables.

    Attributes
    ----------
    pattern : the fixed indices of a slice.
    further : it is the result once more, for the loads that read it at another row than their element's first.
    elsewhere : those loads, of which the result itself has none.
    """

    stage: Stage
    element: ir.Expr
    pattern: Pattern = ()
    further: bool = False
    elsewhere: tuple[ir.TensorLoad, ...] = ()

    @property
    def is_slice(self) -> bool:
        """Whether it is a constant slice of the stage's result, or the result once more."""
        return self.further or any(fixed is not None for fixed in self.pattern)

    @property
    def name(self) -> str:
        """The buffer's name, with the fixed indices of a part."""
        return "_".join([self.stage.buffer.name, *(str(fixed) for fixed in self.pattern if fixed is not None)])

    def holds(self, load: ir.TensorLoad) -> bool:
        """Whether a load reads this result: the same buffer, at the same fixed indices or the same other row."""
        if not load.source.same_as(self.stage.buffer):
            return False
        own = self.pattern or (None,) * len(load.indices)
        return pattern_of(load) == own and self.further == any(same(load, other) for other in self.elsewhere)

    def over(self, variables: dict[tirx.Var, tirx.Var]) -> InlinedReduction:
        """The same, for elements over other variables."""
        return dataclasses.replace(self, elsewhere=tuple(substitute(load, variables) for load in self.elsewhere))


def pattern_of(load: ir.TensorLoad) -> Pattern:
    """The constant index in each dimension of more than one element; None in the others."""
    return tuple(
        int(index) if isinstance(index, prim.IntImm) and more_than_one(extent_of(extent)) else None
        for index, extent in zip(load.indices, load.source.ty.shape, strict=True)
    )


def variants_of(reductions: list[InlinedReduction]) -> list[InlinedReduction]:
    """Each reduction, followed by the parts of it that the others read, and by itself for each further row."""
    found: list[InlinedReduction] = []
    for reduction in reductions:
        loads = [
            load
            for other in reductions
            for load in loads_of(other.element)
            if load.source.same_as(reduction.stage.buffer)
        ]
        patterns = dict.fromkeys(pattern_of(load) for load in loads)
        further = [load for other in reductions for load in _further(reduction, other)]
        reduction = dataclasses.replace(reduction, elsewhere=tuple(further))
        found += [reduction, *(dataclasses.replace(reduction, further=True, elsewhere=(load,)) for load in further)]
        found += [_slice(reduction, pattern) for pattern in patterns if any(fixed is not None for fixed in pattern)]
    return found


def _further(reduction: InlinedReduction, reader: InlinedReduction) -> list[ir.TensorLoad]:
    """The loads that read a result at another row of the reader than the first that does."""
    rows: list[ir.TensorLoad] = []
    for load in loads_of(reader.element):
        plain = all(isinstance(i, ir.Var) and any(i.same_as(v) for v in reader.stage.spatial) for i in load.indices)
        if load.source.same_as(reduction.stage.buffer) and plain and not any(same(load, other) for other in rows):
            rows.append(load)
    return rows[1:]


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
