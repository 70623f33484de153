"""Elements of a tensor that is cut, at an index that is no position of the axis: sums of which one term is not 0.

    loss[i] = … − x[i, label[i]]     →     own[i] = Σ_j (j = label[i] ? x[i, j] : 0);   loss[i] = … − own[i]

The chunk that has the position gives the element, and all others 0: it need not look for it among its positions.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import tvm_ffi
from tvm import ir, tirx

from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.analysis.program import Stage
from tvm_cascade.analysis.reducers import combiner_of, identity_of
from tvm_cascade.analysis.statements import replaced, with_block
from tvm_cascade.analysis.tir import (
    Extent,
    as_index,
    dtype_of,
    is_zero,
    loads_of,
    same,
    simplify_index,
    substitute,
    uses,
)
from tvm_cascade.chunks.part import Rows
from tvm_cascade.transform.assemble import index_dtype, with_statements
from tvm_cascade.transform.nest import Iter, NestBuilder, Values
from tvm_cascade.transform.printer import select

_POSITION = "position"


@dataclass(frozen=True)
class _Pick:
    """One element for each value of the variables that its indices read.

    Attributes
    ----------
    dimension : of the tensor, along the axis.
    """

    stage: Stage
    load: ir.TensorLoad
    dimension: int
    dtype: str

    @cached_property
    def variables(self) -> list[tirx.Var]:
        return [var for var in self.stage.extents if any(uses(index, [var]) for index in self.load.indices)]

    @cached_property
    def buffer(self) -> tirx.Var:
        shape = [as_index(self.stage.extents[var], self.dtype) for var in self.variables]
        name = f"{self.load.source.name}_in_{self.stage.name}"
        return tirx.decl_buffer(shape or [1], dtype_of(self.load), name=name, layout=None)

    def nest(self, nests: NestBuilder) -> tirx.Stmt:
        """The sum over all positions."""
        source, zero = self.load.source, identity_of(SUM, dtype_of(self.load))

        def where(at: Values) -> list[ir.Expr]:
            return [at[var] for var in self.variables] or [tirx.const(0, self.dtype)]

        def value(at: Values) -> ir.Expr:
            own = {var: at[var].astype(dtype_of(var)) for var in self.variables}
            indices = [substitute(index, own) for index in self.load.indices]
            wanted = indices[self.dimension]
            indices[self.dimension] = at[_POSITION]
            element = tirx.BufferLoad(source, indices)
            return select(tirx.EQ(at[_POSITION].astype(dtype_of(wanted)), wanted), element, zero)

        iters = [Iter(var, var.name, self.stage.extents[var]) for var in self.variables]
        iters.append(Iter(_POSITION, _POSITION, source.ty.shape[self.dimension], reduce=True))
        return nests.reduction(self.buffer.name, "", iters, (self.buffer, where), combiner_of(SUM), zero, value)

    def read_in(self, nest: tirx.Stmt) -> tirx.Stmt:
        """The nest of the stage, in which the sum stands for the element."""
        where = list(self.variables) or [tirx.const(0, self.dtype)]
        rule = (ir.TensorLoad, lambda one: tirx.BufferLoad(self.buffer, where) if same(one, self.load) else one)
        block = self.stage.block
        return with_block(nest, block, replaced(block, tvm_ffi.structural_map(block.body, rule), block.init))


def with_picks(axis: Rows, along: Collection[tirx.Var]) -> tirx.PrimFunc | None:
    """The function with such elements as sums; None where it reads none.

    Parameters
    ----------
    along : the inputs that are cut; what is computed along the axis is cut too.
    """
    program, picks = axis.program, dict[Stage, _Pick]()
    for stage in program.stages:
        for load in loads_of(stage.value):
            is_cut = load.source in along or program.writer(load.source) is not None
            for d in axis.dimensions.get(load.source, ()) if is_cut else ():
                if load.indices[d] not in axis.variables:
                    picks.setdefault(stage, _Pick(stage, load, d, index_dtype(program)))
    if not picks:
        return None
    nests, statements = NestBuilder(index_dtype(program), {one.name for one in program.stages}, annotated=False), []
    for one, nest in zip(program.nests, program.statements, strict=True):
        pick = picks.get(one[0]) if isinstance(one, tuple) else None
        statements += [nest] if pick is None else [pick.nest(nests), pick.read_in(nest)]
    return with_statements(program, "main", statements, further=[pick.buffer for pick in picks.values()])


def picked(value: ir.Expr, axis: tirx.Var, length: Extent) -> ir.Expr | None:
    """The sum of a value over an axis from 0 to its length, where one term at most is not 0; None of other sums.

    (j + o = w ? f(j) : 0)     →     (0 ≤ w − o < length ? f(w − o) : 0),  with o and w free of j
    """
    if isinstance(value, tirx.Cast):
        found = picked(value.value, axis, length)
        return None if found is None else found.astype(dtype_of(value))
    if not isinstance(value, tirx.Select) or not isinstance(value.condition, tirx.EQ):
        return None
    sides = value.condition.a, value.condition.b
    here, wanted = sides if uses(sides[0], [axis]) else reversed(sides)
    place = here.value if isinstance(here, tirx.Cast) else here
    offset = simplify_index(place - axis.astype(dtype_of(place)), {axis: length})
    if uses(wanted, [axis]) or uses(offset, [axis]) or not is_zero(value.false_value):
        return None
    found = wanted - offset.astype(dtype_of(wanted))
    within = tirx.And(found >= 0, found < as_index(length, dtype_of(wanted)))
    element = substitute(value.true_value, {axis: found.astype(dtype_of(axis))})
    return select(within, element, value.false_value, lazy=True)
