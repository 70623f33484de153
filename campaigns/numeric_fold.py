"""A fold on rows of numbers, over random splits into segments."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import pairwise

import sympy as sp

from tvm_cascade.algebra.cascade import LENGTH
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.steps.arithmetic import Arithmetic, Float64, Number, Numbers
from tvm_cascade.steps.numbers import EMPTY, NumericSteps, State
from tvm_cascade.steps.program import program_of

Rows = Sequence[Mapping[sp.Symbol, Number]]


class NumericFold:
    """A fold of `length` positions in an arithmetic; `parameters` are the symbols that do not vary along the axis."""

    def __init__(
        self, fold: Fold, length: int, arithmetic: Arithmetic | None = None, parameters: Mapping[sp.Symbol, Number] = {}
    ) -> None:
        arithmetic = arithmetic or Float64()
        self.steps = NumericSteps(program_of(fold), arithmetic, {**parameters, LENGTH: arithmetic.number(length)})

    def serial(self, rows: Rows) -> State:
        """The rows folded in one after the other."""
        return reduce(lambda state, row: self.steps.fold_in(state, [row]), rows, EMPTY)

    def split(self, rows: Rows, cuts: Sequence[int]) -> Numbers:
        """The results with the axis cut into segments, each folded in order, and all merged at once."""
        segments = [self.serial(rows[start:stop]) for start, stop in pairwise([0, *cuts, len(rows)])]
        return self.steps.finish(self.steps.merge(*segments))

    def scattered(self, rows: Rows, source: random.Random) -> Numbers:
        """The results over random segments, some of them empty, merged in random grouping and order."""
        cuts = sorted(source.randint(0, len(rows)) for _ in range(source.randint(0, 4)))
        states = [self.serial(rows[start:stop]) for start, stop in pairwise([0, *cuts, len(rows)])]
        while len(states) > 1:
            left, right = (states.pop(source.randrange(len(states))) for _ in range(2))
            states.append(self.steps.merge(left, right))
        return self.steps.finish(states[0])
