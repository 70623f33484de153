"""What is asked of a refutation, whether numbers show that an element has no fold, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import sympy as sp

from tvm_cascade.algebra.cascade import Reduction
from tvm_cascade.algebra.reducer import Reducer
from tvm_cascade.algebra.verdict import Counterexample


@dataclass(frozen=True)
class Question:
    """An element F that has no fold.

    Attributes
    ----------
    reducer : of its reduction.
    function : F, over elements, handles and parameters.
    handles : what each symbol stands for that is made of earlier results.
    reductions : those before, whole ones, which F reads.
    elements : the symbols that vary along the axis.
    meaning : what symbols stand for: N where it is fixed, elements in terms of others, numbers.
    names : what a symbol is called; itself where it is not among them.
    where : the condition on elements under which F is the element.
    """

    reducer: Reducer
    function: sp.Expr
    handles: Mapping[sp.Symbol, sp.Expr]
    reductions: Sequence[Reduction]
    elements: Sequence[sp.Symbol]
    meaning: Mapping[sp.Symbol, sp.Expr]
    names: Mapping[sp.Symbol, sp.Expr] = field(default_factory=dict)
    where: sp.Basic = sp.true

    def name(self, symbol: sp.Symbol) -> str:
        """The expression that a symbol replaces."""
        return str(self.names.get(symbol, symbol))


Search: TypeAlias = Callable[[str, Question], Counterexample | None]
"""Looks for numbers on which the law behind a code fails."""
