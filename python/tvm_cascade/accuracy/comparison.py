"""One output of a program on one input: exact, unfused and fused values, and whether the fused one passes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import ir

from tvm_cascade.accuracy.ranking import Ranking
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.evaluate import tolerance

Array = NDArray[Any]


@dataclass(frozen=True)
class Compared:
    """One output, by the oracle, the unfused and the fused program.

    Attributes
    ----------
    output : its buffer.
    exact, dropped, unfused, fused : arrays of its shape, exact ones in float64, and those where max and min drop NaN.
    length : positions of the cascade axis.
    ranking : the keys behind it, where a selection decides it: indices are compared by the keys that they name.
    """

    output: ir.Var
    exact: Array
    dropped: Array
    unfused: Array
    fused: Array
    length: int
    ranking: Ranking | None

    @cached_property
    def judged(self) -> tolerance.Comparison:
        """The comparison of the fused output by the rule of `evaluate.tolerance`."""
        given = (self.exact, self.dropped, self.unfused, self.fused)
        exact, dropped, unfused, fused = (self._as_compared(values) for values in given)
        defined = _where_defined(fused, unfused, exact, dropped)
        return tolerance.check(defined, exact, unfused, length=self.length, dtype=self._dtype)

    def blind_to(self, dropped: Array | None = None) -> tuple[str, ...]:
        """The wrong answers that the comparison fails to reject (`tolerance.rejects`); an empty list shows its power.

        Parameters
        ----------
        dropped : the output where a segment of the axis is left out, if that is known.
        """
        without = None if dropped is None else self._as_compared(dropped)
        return self._passing(self._as_compared(self.unfused), without)

    def hidden_by_the_unfused(self) -> tuple[str, ...]:
        """The wrong answers that pass only because twice the unfused program's error is allowed."""
        strictly = self._passing(None)
        return tuple(name for name in self._passing(self._as_compared(self.unfused)) if name not in strictly)

    def _passing(self, baseline: Array | None, dropped: Array | None = None) -> tuple[str, ...]:
        exact = self._as_compared(self.exact)
        return tuple(tolerance.rejects(exact, self.length, self._dtype, baseline=baseline, dropped=dropped))

    @cached_property
    def _by_key(self) -> bool:
        return self.ranking is not None and self.exact.dtype.kind in "iu" and self.ranking.explains(self.exact)

    @property
    def _dtype(self) -> str:
        return self.ranking.dtype if self.ranking is not None and self._by_key else dtype_of(self.output)

    def _as_compared(self, values: Array) -> Array:
        """Values for comparison: without those that have no order, and keys in place of indices."""
        if self.ranking is None:
            return values
        defined = np.where(self.ranking.undefined(self.exact), self.exact, values)
        return self.ranking.named(defined) if self._by_key else defined


def _where_defined(fused: Array, unfused: Array, exact: Array, dropped: Array) -> Array:
    """The fused result, without elements that only the order of evaluation defines.

    TVM's max and min drop a NaN, and with it some of the numbers, by where it stands. Where an exact result is NaN
    that is none if every NaN is dropped, and the unfused result is none either, only the class is compared.
    """
    by_order = np.isnan(exact) & ~np.isnan(dropped) & ~np.isnan(unfused)
    return np.where(by_order & (tolerance.kinds(fused) == tolerance.kinds(unfused)), unfused, fused)
