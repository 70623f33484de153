"""A fold run on plain float64 numbers: `testing.numeric_fold`, with each cascade's own number of positions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from tvm_cascade.algebra.cascade import Cascade
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.testing import numeric_fold
from tvm_cascade.testing.numeric_fold import Arithmetic, Numbers, NumericFold, State

__all__ = ["Numbers", "State", "definition", "finish", "fold_split", "lift", "merge"]


@cache
def _float64() -> Arithmetic:
    return Arithmetic()


def lift(fold: Fold, element: Numbers, length: int) -> State:
    """The state of one position."""
    return NumericFold(fold, length, _float64()).lift(element)


def merge(fold: Fold, first: State, second: State, length: int) -> State:
    """Both states at one reference, combined."""
    return NumericFold(fold, length, _float64()).merge(first, second)


def finish(fold: Fold, state: State, length: int) -> Numbers:
    """The results of a state that has folded everything."""
    return NumericFold(fold, length, _float64()).finish(state)


def fold_split(fold: Fold, rows: Sequence[Numbers], cuts: Sequence[int]) -> Numbers:
    """The results with the axis cut into segments, each folded in order and then merged in order."""
    return NumericFold(fold, len(rows), _float64()).split(rows, cuts)


def definition(cascade: Cascade, rows: Sequence[Numbers]) -> Numbers:
    """The results as the cascade is written: one pass over the rows for each reduction."""
    return numeric_fold.definition(cascade, rows, _float64())
