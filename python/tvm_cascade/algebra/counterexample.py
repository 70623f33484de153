"""Counterexamples: numbers on which a law fails, so that an element has no fold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Numbers: TypeAlias = tuple[tuple[str, tuple[float, ...]], ...]
"""Values by the name of their symbol."""


@dataclass(frozen=True)
class Counterexample:
    """Numbers on which a law fails.

    Attributes
    ----------
    claim : what they show, with the numbers.
    at : the values of each symbol.
    outcomes : the two numbers that would have to agree.
    data : for each of the shown values of earlier results, the elements that give them: by symbol, the last one
        repeated until there are N.
    """

    claim: str
    at: Numbers
    outcomes: tuple[float, float]
    data: tuple[Numbers, ...] = ()

    def __str__(self) -> str:
        return self.claim
