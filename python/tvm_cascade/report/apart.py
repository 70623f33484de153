"""Operators of a graph that were looked at together and stay functions of their own, as data and text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Apart:
    """Operators of a graph that stay functions of their own, though one reads what another reduces.

    Attributes
    ----------
    operators : their functions before they were grouped.
    why : they are not merged.
    """

    operators: tuple[str, ...]
    why: str

    @property
    def heading(self) -> str:
        """The operators and the verdict."""
        return f"{' and '.join(self.operators)}: left apart"

    def __str__(self) -> str:
        return f"{self.heading}\n  why  {self.why}"
