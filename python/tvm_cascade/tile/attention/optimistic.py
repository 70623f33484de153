"""Optimistic rescaling: a tile is folded at the reference as it stands, and redone with its maximum on overflow.

A state may be at any reference: rescaling is exact, and only the range of the weights asks that it follows the running
maximum. So a tile's weights are taken at the reference that there is, and their sum, which is computed anyway, tells
afterwards whether one of them was too large. Only then is the tile done again, with its maximum. (FlashAttention-4,
2026, skips the rescaling of accumulators by a like condition on each tile's maximum.)

    exact        m = max r;  c′ = max(c, m);  p = exp(r − c′);  T = T·exp(c − c′) + Σ p
    optimistic   p = exp(r − c);              T = T + Σ p       where Σ p ≤ most, in every lane
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import sympy as sp
from tvm import ir
from tvm.ir import prim

from tvm_cascade.algebra.fold import Reference
from tvm_cascade.algebra.policy import Move, Policy
from tvm_cascade.algebra.reducer import MAX, MIN, SUM
from tvm_cascade.analysis.expression import Forms, NotExpressible
from tvm_cascade.analysis.tir import dtype_of, loads_of
from tvm_cascade.steps.program import Element, Reduce, Shift, Step
from tvm_cascade.symbolic.functions import Round
from tvm_cascade.symbolic.rounding import FORMATS
from tvm_cascade.tile.attention.shape import Stream
from tvm_cascade.tile.attention.steps import Accumulate
from tvm_cascade.tile.output import Output, member_at

_LARGEST_SUM = 2.0**14
"""Of a lane's weights in a tile, or less where a narrow dtype would not hold each of them then."""


_MOST_LOADS = 64
"""Of an output whose formula is looked at: that of the merge of nine states, which has more, takes seconds to write."""


@dataclass(frozen=True)
class Optimistic:
    """How a tile is folded at the current reference.

    Attributes
    ----------
    extreme : the component that the reference follows, which is not computed then.
    guard : the component to which a tile adds the sum of its weights.
    most : that sum in a lane, at which every weight fits its dtype.
    """

    extreme: sp.Symbol
    guard: sp.Symbol
    most: float

    def __str__(self) -> str:
        return f"optimistic without {self.extreme}, where {self.guard} gains {self.most:.0f} a lane at most"


def free_extreme(stream: Stream, steps: Sequence[Step], accumulations: Sequence[Accumulate]) -> sp.Symbol | None:
    """The extreme that one running reference follows, where nothing else reads it; None where there is none.

    Every output is then the same at whatever reference the state is: the extreme may be of some positions only.
    """
    references = stream.fold.references
    if len(references) != 1 or not _follows_an_extreme(references[0], stream):
        return None
    extreme: sp.Symbol = references[0].value
    shifts = [step.expression for step in steps if isinstance(step, Shift)] + [a.shift for a in accumulations]
    if any(shift != extreme and extreme in shift.free_symbols for shift in shifts):
        return None
    return extreme if all(_same_at_any_reference(output, stream, references[0]) for output in stream.outputs) else None


def find_optimistic(
    extreme: sp.Symbol | None, steps: Sequence[Step], accumulations: Sequence[Accumulate]
) -> Optimistic | None:
    """How tiles of a program may be folded optimistically, at the current reference; None where they may not.

    They may where the extreme that the reference follows is free, and no weight is larger than the sum of all.
    """
    if extreme is None:
        return None
    weights: dict[sp.Symbol, sp.Expr] = {}
    for step in steps:
        if isinstance(step, Element):
            weights[step.symbol] = step.expression.xreplace(weights)
    sums = [s for s in steps if isinstance(s, Reduce) and s.component != extreme]
    guards = [s for s in sums if s.reducer is SUM and s.lift in weights and weights[s.lift].is_nonnegative]
    if not guards or any(s.lift != guards[0].lift and s.lift.free_symbols & weights.keys() for s in sums):
        return None
    if any(a.weight != guards[0].lift for a in accumulations):
        return None
    rounded = {str(r.args[1]) for weight in weights.values() for r in weight.atoms(Round)}
    return Optimistic(extreme, guards[0].component, _most(rounded | {a.dtype for a in accumulations}))


def _most(dtypes: Collection[str]) -> float:
    """The largest power of two that the dtypes hold, or what is enough."""
    largest = min((FORMATS[dtype].largest for dtype in dtypes if dtype in FORMATS), default=math.inf)
    return min(_LARGEST_SUM, math.ldexp(1.0, math.frexp(largest)[1] - 1))


def _follows_an_extreme(reference: Reference, stream: Stream) -> bool:
    component = next((c for c in stream.row_components if c.symbol == reference.value), None)
    if component is None or component.reducer not in (MAX, MIN) or component.moves:
        return False
    return (
        reference.policy is Policy.RUNNING and reference.move is Move.EXACT and not (reference.scale or reference.free)
    )


def _same_at_any_reference(output: Output, stream: Stream, reference: Reference) -> bool:
    """Whether an output, computed from a state at c and from c in place of the extreme, does not depend on c."""
    form = _in_components(output, stream) if len(loads_of(output.value)) <= _MOST_LOADS else None
    if form is None:
        return False
    here, there = reference.symbol, reference.moved
    place = {reference.step: there - here}
    state = {c.symbol: c.shift.xreplace(place) for c in stream.fold.components} | {reference.value: there}
    before, after = form.xreplace({reference.value: here}), form.xreplace(state)
    return all(_equal(old, new) for old, new in _branches(before, after))


def _branches(before: sp.Expr, after: sp.Expr) -> Iterator[tuple[sp.Expr, sp.Expr]]:
    """Pairs all of which have to be equal for two expressions to be: each branch, and what decides between them."""
    choices = [sorted(e.atoms(sp.Piecewise), key=sp.count_ops) for e in (before, after)]
    if not choices[0] or len(choices[0]) != len(choices[1]):
        yield before, after
        return
    old, new = choices[0][-1], choices[1][-1]
    for (value, condition), (moved_value, moved_condition) in zip(old.args, new.args, strict=True):
        yield from _branches(before.xreplace({old: value}), after.xreplace({new: moved_value}))
        if isinstance(condition, sp.Eq) and isinstance(moved_condition, sp.Eq):
            # a is zero where a·e is, for any positive e
            scale = moved_condition.lhs / condition.lhs
            positive = scale.is_positive or sp.simplify(scale).is_positive
            decided = condition.rhs == moved_condition.rhs == 0 and positive
            yield (sp.S.Zero, sp.S.Zero) if decided else (condition.lhs, moved_condition.lhs)
        elif condition != moved_condition:
            yield sp.S.Zero, sp.S.One


def _equal(before: sp.Expr, after: sp.Expr) -> bool:
    return before == after or bool(sp.simplify(sp.expand_log(sp.simplify(after - before), force=True)) == 0)


def _in_components(output: Output, stream: Stream) -> sp.Expr | None:
    """An output, not rounded, as an expression in the components of the state; None where it cannot be written so."""
    table = _Unrounded()
    try:
        form = table.form(output.value)
    except NotExpressible:
        return None
    finish: dict[sp.Symbol, sp.Expr] = {}
    for result, expression in stream.fold.finish.items():
        finish[result] = expression.xreplace(finish)
    results: dict[sp.Symbol, sp.Expr] = {}
    for symbol in form.free_symbols & table.sources.keys():
        source = table.sources[symbol]
        member = member_at(stream.group, source) if isinstance(source, ir.TensorLoad) else None
        if member is not None:
            results[symbol] = finish[member.result]
        elif any(member_at(stream.group, load) is not None for load in loads_of(source)):
            return None
    return form.xreplace(results)


class _Unrounded(Forms):
    """Forms in which floats are real numbers."""

    def passes(self, cast: prim.Cast) -> bool:
        return all("float" in dtype_of(e) for e in (cast, cast.value)) or super().passes(cast)
