"""Inlines elementwise stages: their values as functions of the indices at which they are read."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.expression import RELATIONS, with_decided
from tvm_cascade.analysis.program import RECENT_PROGRAMS, Program, Stage
from tvm_cascade.analysis.tir import Extent, dtype_of, more_than_one, simplify_index, substitute


def plain_indices(stage: Stage) -> bool:
    """Whether the stage writes at its own variables, each once (constants and absent variables: unit dimensions)."""
    written = [index for index in stage.indices if not isinstance(index, ir.prim.IntImm)]
    if len({*written}) < len(written) or not {*written} <= {*stage.spatial}:
        return False
    return not any(more_than_one(stage.extents[var]) for var in stage.spatial if var not in {*written})


@lru_cache(RECENT_PROGRAMS)
def inliner_of(program: Program) -> Inliner:
    """What inlines the maps of a program."""
    return Inliner(program)


class Inliner:
    """Replaces loads of elementwise stages, but of some buffers, by their values at the load's indices."""

    def __init__(self, program: Program, but: Collection[tirx.Var] = ()) -> None:
        self.program = program
        maps = (stage for stage in program.stages if stage.reducer is None and stage.buffer not in but)
        self._maps = {stage.buffer: stage for stage in maps if plain_indices(stage)}
        self._known: dict[Stage, ir.Expr] = {}

    def of(self, stage: Stage) -> ir.Expr:
        """A stage's value in inputs and reductions alone."""
        if stage not in self._known:
            self._known[stage] = self(stage.value, stage.extents)
        return self._known[stage]

    def __call__(self, expression: ir.Expr, extents: dict[tirx.Var, Extent]) -> ir.Expr:
        """The expression in inputs and reductions alone; index expressions are simplified over `extents`."""

        def replace(load: ir.TensorLoad) -> ir.Expr:
            stage = self._maps.get(load.source)
            if stage is None:
                indices = [simplify_index(index, extents) for index in load.indices]
                return tirx.BufferLoad(load.source, indices)
            # A constant written index has nothing to bind; the others are plain variables.
            at = {var: index for var, index in zip(stage.indices, load.indices, strict=True) if isinstance(var, ir.Var)}
            absent = [var for var in stage.spatial if var not in {*stage.indices}]
            at |= {var: tirx.const(0, dtype_of(var)) for var in absent}
            return self(substitute(stage.value, at), extents)

        inlined = without_numbers_for_truth(tvm_ffi.structural_map(expression, (ir.TensorLoad, replace)))
        return simplify_conditions(inlined, extents)


def simplify_conditions(expression: ir.Expr, extents: dict[tirx.Var, Extent]) -> ir.Expr:
    """Conditions that always hold, or never do, over the domain are decided (reshape and padding leave many)."""

    def holds(condition: ir.Expr) -> bool | None:
        simplified = simplify_index(condition, extents) if dtype_of(condition) == "bool" else condition
        return bool(int(simplified)) if isinstance(simplified, prim.IntImm) else None

    return with_decided(expression, holds)


# Booleans that a program encodes as numbers, recovered as conditions.
#
# 0 < Cast(int64, c)                     →  c
# Cast(int8, c) == 0                     →  not c
# Cast(bool, Cast(int8, c))              →  c


def without_numbers_for_truth(expression: ir.Expr) -> ir.Expr:
    """The expression with comparisons of a boolean with an integer replaced by the boolean condition."""
    rules = [(kind, _compared) for kind in RELATIONS]
    return tvm_ffi.structural_map(expression, [*rules, (prim.Cast, _as_condition)])


def _compared(relation: ir.Expr) -> ir.Expr:
    """c, not c, or a constant: what the comparison says at c = 0 and at c = 1."""
    compare = RELATIONS[type(relation)]
    left, right = _condition_of(relation.a), _condition_of(relation.b)
    if left is not None and isinstance(relation.b, prim.IntImm):
        condition, number = left, int(relation.b)
        fails, holds = compare(0, number), compare(1, number)
    elif right is not None and isinstance(relation.a, prim.IntImm):
        condition, number = right, int(relation.a)
        fails, holds = compare(number, 0), compare(number, 1)
    else:
        return relation
    if fails == holds:
        return tirx.const(bool(holds), "bool")
    return condition if holds else tirx.Not(condition)


def _as_condition(cast: prim.Cast) -> ir.Expr:
    condition = _condition_of(cast.value) if dtype_of(cast) == "bool" else None
    return cast if condition is None else condition


def _condition_of(number: ir.Expr) -> ir.Expr | None:
    """c where an integer is c as 0 or 1, through any further integer dtypes; None for any other number."""
    while isinstance(number, prim.Cast) and dtype_of(number).startswith(("int", "uint")):
        number = number.value
        if dtype_of(number) == "bool":
            return number
    return None
