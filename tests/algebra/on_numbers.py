"""Folds in float64 against the cascade's definition in balls, over segments of every kind."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from campaigns.numeric_fold import NumericFold, Rows
from tvm_cascade.algebra.cascade import LENGTH as N
from tvm_cascade.algebra.cascade import Cascade
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.obligations.definition import definition
from tvm_cascade.obligations.derive import derive
from tvm_cascade.steps.arithmetic import Balls
from tvm_cascade.symbolic.balls import workprec

LENGTH = 23
SPLITS = [[], [1], [11], [0, 0, 5], [4, 8, 12, 16, 20], list(range(1, LENGTH))]
EPS = float(np.finfo("float64").eps)

Columns = Mapping[sp.Symbol, NDArray[Any]]


@cache
def folded(source: Cascade) -> Fold:
    """The fold of a cascade that has one."""
    fold = derive(source)
    assert isinstance(fold, Fold), str(fold)
    return fold


def assert_exact(fold: Fold, columns: Columns, ulps: float = 200, splits: list[list[int]] = SPLITS) -> None:
    """The last result keeps its digits: its error is at most some units in the last place of its own value."""
    rows: Rows = [{e: float(values[k]) for e, values in columns.items()} for k in range(LENGTH)]
    last = fold.cascade.results[-1]
    balls = Balls()
    with workprec(512):
        wide = [{e: balls.number(value) for e, value in row.items()} for row in rows]
        exact = definition(fold.cascade, wide, balls, {N: balls.number(LENGTH)})[last]
    for cuts in splits:
        found = NumericFold(fold, LENGTH).split(rows, cuts)[last]
        assert abs(found - exact) <= ulps * EPS * abs(exact), (found, float(exact), cuts)
