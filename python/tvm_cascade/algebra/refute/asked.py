"""A question with the data of its cascade at hand."""

from __future__ import annotations

from functools import cached_property

from tvm_cascade.algebra.question import Question
from tvm_cascade.algebra.refute.reached import Earlier


class Asked(Question):
    """A question, and the reductions before it on numbers."""

    @cached_property
    def earlier(self) -> Earlier:
        """The reductions that the element reads."""
        return Earlier(self.reductions, self.elements, self.meaning)
