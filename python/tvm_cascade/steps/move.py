"""The one rule of a reference's move, for every kind of value: high precision, arrays, TIR.

    c′ = value          of the components combined so far
       | stay           where the move is guarded and the value unusable: not finite, or a scale without a reciprocal
       | stay           where it is lazy, the state is not empty, and the value is near enough
    Δ  = c′ − stay      0 for an empty state, which stands wherever it moves to

*stay* is where the state stands; of several, the least of where those with positions stand, so that merging is
commutative; the start where all are empty. A state is *empty* when it has folded no position: it holds the identity of
every ⊕, and shifting it changes nothing. As the merge is associative, the axis may be cut at every level alike
(G. Blelloch, Prefix sums and their applications, 1990).
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from tvm_cascade.algebra.policy import LAZY_DISTANCE
from tvm_cascade.algebra.policy import Move as Rule
from tvm_cascade.steps.program import Move

Value = TypeVar("Value")


class Kind(Protocol[Value]):
    """The operations that the rule needs of a kind of value; conditions have a type of their own."""

    def number(self, value: float) -> Value:
        """A constant."""

    def usable(self, value: Value, scale: bool) -> Any:
        """Whether a value is usable as a reference: finite, and for a scale with a finite reciprocal."""

    def near(self, value: Value, other: Value, distance: int) -> Any:
        """Whether |value − other| ≤ distance."""

    def but_not(self, condition: Any, excluded: Any) -> Any:
        """The first condition without the second."""

    def choose(self, condition: Any, value: Value, otherwise: Value) -> Value:
        """One of two values."""

    def difference(self, new: Value, old: Value, decay: float | None) -> Value:
        """new − old; under a decay exp(±k·Δ), no further from zero than where that vanishes."""


def may_stay(move: Move) -> bool:
    """Whether the current reference takes part in the choice of the new one."""
    return move.guarded or move.rule is Rule.LAZY


def destination(move: Move, value: Value, stay: Value, empty: Any, kind: Kind[Value]) -> Value:
    """c′, the new reference: `value` where it is usable and a move is due, else `stay`, the current one.

    Parameters
    ----------
    empty : the condition that no position was folded in before.
    """
    if move.guarded:
        value = kind.choose(kind.usable(value, move.scale), value, stay)
    if move.rule is Rule.LAZY:
        near = kind.near(value, stay, LAZY_DISTANCE)
        value = kind.choose(kind.but_not(near, empty), stay, value)
    return value


def departure(new: Value, stay: Value, empty: Any, kind: Kind[Value]) -> Value:
    """c, the old reference; that of an empty state is the new one."""
    return kind.choose(empty, new, stay)


def displacement(move: Move, new: Value, old: Value, kind: Kind[Value], empty: Any = False) -> Value:
    """Δ of the move from `old` to `new`; 0 of an empty state, also where `old` is not its departure."""
    return kind.choose(empty, kind.number(0), kind.difference(new, old, move.decay))
