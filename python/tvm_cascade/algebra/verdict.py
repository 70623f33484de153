"""What the algebra answers where there is no fold: a code of `codes`, what it concerns, and the numbers shown.

What it asks a refutation for is a question: whether numbers show that an element has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import sympy as sp

from tvm_cascade.algebra.cascade import Reduction
from tvm_cascade.algebra.reducer import Reducer
from tvm_cascade.codes import CODES
from tvm_cascade.codes import Verdict as Verdict

Values: TypeAlias = tuple[tuple[str, tuple[float, ...]], ...]
"""Values by the name of their symbol."""


@dataclass(frozen=True)
class Counterexample:
    """Numbers on which a law fails.

    Attributes
    ----------
    claim : what they show, with the numbers.
    at : the values of each symbol.
    outcomes : the two numbers that would have to agree.
    data : for each of the shown values of earlier results, the elements of the positions that give them, by symbol.
    """

    claim: str
    at: Values
    outcomes: tuple[float, float]
    data: tuple[Values, ...] = ()

    def __str__(self) -> str:
        return self.claim


@dataclass(frozen=True)
class Reason:
    """Why a verdict was reached.

    Attributes
    ----------
    code : a key of `CODES`; stable between releases.
    detail : the buffers, expression or estimate concerned, in the user's own names.
    counterexample : numbers on which the law fails, where the checker found some.
    """

    code: str
    detail: str = ""
    counterexample: Counterexample | None = None

    @property
    def verdict(self) -> Verdict:
        """The verdict that goes with the code."""
        return CODES[self.code][0]

    @property
    def law(self) -> str:
        """The law that fails, or the limit that was reached."""
        return CODES[self.code][1]

    @property
    def hint(self) -> str:
        """What would make it fuse; empty when there is nothing to do."""
        return CODES[self.code][2]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Further facts as (label, sentence) rows: the counterexample, and what would help."""
        rows = [("counterexample", str(self.counterexample))] if self.counterexample is not None else []
        return [*rows, ("to make it fuse", self.hint)] if self.hint else rows

    def __str__(self) -> str:
        return f"[{self.code}] {self.law}" + (f": {self.detail}" if self.detail else "")


@dataclass(frozen=True)
class Refusal:
    """The answer of `derive` where there is no fold: which reduction, and why.

    Attributes
    ----------
    reduction : name of the result whose reduction has no fold.
    reason : the code, the law that fails, and the expression.
    """

    reduction: str
    reason: Reason

    def __repr__(self) -> str:
        return f"<Refusal of {self.reduction}: {self.reason.code}; print it for the law that fails>"

    def __str__(self) -> str:
        facts = [f"  {label}: {sentence}" for label, sentence in self.reason.facts]
        return "\n".join([f"{self.reduction}: {self.reason}", *facts])


@dataclass(frozen=True)
class Question:
    """An element F that has no fold.

    Attributes
    ----------
    reducer : of its reduction.
    function : F, over elements, invariants and parameters.
    invariants : what each symbol stands for that is made of earlier results.
    reductions : those before, whole ones, which F reads.
    elements : the symbols that vary along the axis.
    meaning : what symbols stand for: N where it is fixed, elements in terms of others, numbers.
    names : what a symbol is called; itself where it is not among them.
    where : the condition on elements under which F is the element.
    """

    reducer: Reducer
    function: sp.Expr
    invariants: Mapping[sp.Symbol, sp.Expr]
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
