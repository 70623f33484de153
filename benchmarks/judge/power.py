"""Wrong answers that a check would not have caught on its data: they show what it is worth."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tvm_cascade.accuracy.comparison import Compared
from tvm_cascade.evaluate.tolerance import check


def rejects(
    exact: ArrayLike,
    length: int,
    dtype: str,
    *,
    baseline: ArrayLike | None = None,
    dropped: ArrayLike | None = None,
) -> list[str]:
    """The wrong answers that the rule of `evaluate.tolerance` fails to reject; an empty list shows its power.

    The mutants are `zeros`, `constant` (the mean), `shuffle` (of all elements; both from two elements on), and
    `dropped`.

    Parameters
    ----------
    exact, length, dtype, baseline : as for `check`.
    dropped : the exact result when one segment of the cascade axis is left out.

    Returns
    -------
    names : the mutants that pass, in the order above.
    """
    want = np.asarray(exact).astype(np.float64)
    mutants = {"zeros": np.zeros_like(want)}
    if want.size > 1:
        finite = want[np.isfinite(want)]
        mutants["constant"] = np.full_like(want, finite.mean() if finite.size else 0.0)
        mutants["shuffle"] = np.random.default_rng(0).permutation(want.ravel()).reshape(want.shape)
    if dropped is not None:
        mutants["dropped"] = np.asarray(dropped).astype(np.float64)
    return [name for name, mutant in mutants.items() if check(mutant, want, baseline, length=length, dtype=dtype).ok]


def blind_to(one: Compared, dropped: ArrayLike | None = None) -> list[str]:
    """The wrong answers that the comparison of an output fails to reject.

    Parameters
    ----------
    dropped : the output where a segment of the axis is left out, if that is known.
    """
    return _passing(one, one.as_compared(one.unfused), dropped)


def hidden_by_the_unfused(one: Compared) -> list[str]:
    """The wrong answers that pass only because twice the unfused program's error is allowed."""
    strictly = _passing(one, None)
    return [name for name in blind_to(one) if name not in strictly]


def _passing(one: Compared, baseline: ArrayLike | None, dropped: ArrayLike | None = None) -> list[str]:
    exact = one.as_compared(one.exact)
    without = None if dropped is None else one.as_compared(np.asarray(dropped))
    return rejects(exact, one.length, one.dtype, baseline=baseline, dropped=without)
