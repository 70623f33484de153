"""The rule for right results: error against the oracle, relative to that of the unfused program.

For element i, with exact value e_i and computed value a_i:

    scale_i  = |e_i| + RMS of the finite exact values of its row
    error_i  = max(0, |a_i − e_i| − u) / scale_i                 u: what hardware may flush to zero
    floor    = 4·eps(dtype) + √length · eps(accumulator)
    allowed  = 2 · max error of the unfused program at the same dtypes + floor

A *row* is the last axis where an array of two or more axes has at least 16 elements there, and the whole array
otherwise; a row of zeros takes the scale of the whole array. The accumulator is float32 for narrower floats, else the
dtype itself. √length is how rounding errors of a sum of `length` terms grow. u is the smallest normal number, but
float16's smallest subnormal one, since no hardware that we know flushes float16. Integers and booleans have
eps = u = 0: the floor asks for equality.

Where scale_i ≤ u there is nothing to be relative to: the dtype holds no digit of what is exact there. Each of the
`length` terms may have been flushed then, and u grows by √length times the accumulator's smallest normal number. Such
an element passes as zero in any case, so that no wrong answer is let through that was not before.

Before any error is looked at, non-finite elements have to match: NaN where the oracle has NaN, and infinities of the
same sign. Where the unfused program itself differs from the oracle in that (float16 overflows; a NaN is lost by max),
the result may follow either of the two, and is compared with the one that it follows. An exact value beyond the dtype's
largest number is also followed by the infinity of its sign, whatever the unfused program makes of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tvm_cascade.errors import InputError
from tvm_cascade.evaluate.expression import accumulator_of, is_float

_ROW = 16  # from this extent on, the last axis is a row with a scale of its own

_FINITE, _NAN, _POSITIVE, _NEGATIVE = range(4)
_KIND_NAMES = ("finite", "NaN", "+inf", "-inf")

_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """The outcome of `check`.

    Attributes
    ----------
    ok : whether the result passes.
    max_error : the largest scaled error among finite elements; inf where non-finite elements do not match.
    allowed : the largest scaled error that passes.
    baseline_error : the largest scaled error of the unfused program; 0 without one.
    rms : root mean square of the finite exact values.
    worst : index of the element with the largest error; None for an array without elements.
    message : one sentence that says all this.
    """

    ok: bool
    max_error: float
    allowed: float
    baseline_error: float
    rms: float
    worst: tuple[int, ...] | None
    message: str


def floor(length: int, dtype: str) -> float:
    """The scaled error that passes whatever the unfused program does: 4·eps(dtype) + √length · eps(accumulator).

    Parameters
    ----------
    length : how many elements each result is folded from.
    dtype : the result's dtype.
    """
    if not is_float(dtype):
        return 0.0
    return 4.0 * float(ml_dtypes.finfo(dtype).eps) + float(np.sqrt(length)) * float(
        ml_dtypes.finfo(accumulator_of(dtype)).eps
    )


def check(
    actual: ArrayLike, exact: ArrayLike, baseline: ArrayLike | None = None, *, length: int, dtype: str
) -> Comparison:
    """Compare a result with the oracle by the rule at the top of this module.

    Parameters
    ----------
    actual : the result to judge.
    exact : what the oracle gives, of the same shape.
    baseline : what the unfused program gives at the same dtypes; None allows the floor alone.
    length : how many elements each result is folded from (the extent of the cascade axis).
    dtype : the dtype of the result, such as "bfloat16".

    Raises
    ------
    InputError
        When the shapes differ.
    """
    got, want = _floats(actual), _floats(exact)
    usual = want if baseline is None else _floats(baseline)
    if not got.shape == want.shape == usual.shape:
        raise InputError(f"arrays of one shape, {want.shape}", f"{got.shape} and {usual.shape}", "tolerance.check")
    scale = _scale(want)
    underflow = _flushed(scale, length, dtype)
    baseline_error = float(
        np.max(_errors(usual, want, scale, underflow), initial=0.0, where=kinds(usual) == kinds(want))
    )
    allowed = 2.0 * baseline_error + floor(length, dtype)
    # An element whose kind differs from the oracle's, at its own dtype too, is compared with the unfused program.
    stored = _as_stored(want, dtype)
    reference = np.where(kinds(got) == kinds(want), want, np.where(kinds(got) == kinds(stored), stored, usual))
    errors = _errors(got, reference, scale, underflow)
    max_error = float(np.max(errors, initial=0.0))
    ok = max_error <= allowed
    worst = tuple(int(k) for k in np.unravel_index(np.argmax(errors), errors.shape)) if errors.size else None
    message = _message(ok, got, reference, max_error, allowed, baseline_error, worst)
    return Comparison(ok, max_error, allowed, baseline_error, _rms(want).item(), worst, message)


def worst(comparisons: Iterable[Comparison]) -> Comparison:
    """The deciding comparison of several outputs: a failing one if there is one, of the largest error."""
    return max(comparisons, key=lambda one: (not one.ok, one.max_error))


def assert_close(
    actual: ArrayLike, exact: ArrayLike, baseline: ArrayLike | None = None, *, length: int, dtype: str
) -> Comparison:
    """`check`, as an assertion.

    Raises
    ------
    AssertionError
        When the result does not pass, with the comparison's message.
    """
    comparison = check(actual, exact, baseline, length=length, dtype=dtype)
    if not comparison.ok:
        raise AssertionError(comparison.message)
    return comparison


def _floats(values: ArrayLike) -> _Floats:
    return np.asarray(values).astype(np.float64)


def _flushed(scale: _Floats, length: int, dtype: str) -> _Floats:
    """u for each element: what flushing to zero may have taken from it."""
    if not is_float(dtype):
        return np.zeros_like(scale)
    limits = ml_dtypes.finfo(dtype)
    u = float(limits.smallest_subnormal if dtype == "float16" else limits.smallest_normal)
    terms = float(np.sqrt(length)) * float(ml_dtypes.finfo(accumulator_of(dtype)).smallest_normal)
    return np.where(scale <= u, u + terms, u)


def kinds(values: ArrayLike) -> NDArray[Any]:
    """The class of each element: 0 finite, 1 NaN, 2 +inf, 3 −inf."""
    floats = _floats(values)
    found = np.where(np.isposinf(floats), _POSITIVE, np.where(np.isneginf(floats), _NEGATIVE, _FINITE))
    return np.where(np.isnan(floats), _NAN, found)


def _as_stored(exact: _Floats, dtype: str) -> _Floats:
    """Exact values, infinite where they are beyond the largest number of a float dtype."""
    if not is_float(dtype):
        return exact
    beyond = np.abs(exact) > float(ml_dtypes.finfo(dtype).max)
    return np.where(beyond, np.copysign(np.inf, exact), exact)


def _rms(values: _Floats, axis: int | None = None) -> _Floats:
    """Root mean square of the finite elements along `axis`, which is kept with extent 1; 0 where there are none."""
    finite = np.isfinite(values)
    finite_values = np.where(finite, values, 0.0)
    largest = np.max(np.abs(finite_values), axis=axis, initial=0.0, keepdims=True)
    # Scaled before squaring, so that neither end of the range is lost.
    squares = np.sum(np.square(finite_values / np.where(largest > 0.0, largest, 1.0)), axis=axis, keepdims=True)
    count = np.maximum(np.sum(finite, axis=axis, keepdims=True), 1)
    return np.asarray(largest * np.sqrt(squares / count))


def _scale(exact: _Floats) -> _Floats:
    rms = _rms(exact)
    if exact.ndim >= 2 and exact.shape[-1] >= _ROW:
        rows = _rms(exact, axis=-1)
        rms = np.where(rows > 0.0, rows, rms)
    return np.where(np.isfinite(exact), np.abs(exact), 0.0) + rms


def _errors(values: _Floats, reference: _Floats, scale: _Floats, underflow: _Floats) -> _Floats:
    """Scaled errors of finite elements; elsewhere 0 where the kinds match and inf where they do not."""
    found, expected = kinds(values), kinds(reference)
    with np.errstate(all="ignore"):
        distance = np.maximum(np.abs(values - reference) - underflow, 0.0)
        scaled = np.where(distance > 0.0, distance / scale, 0.0)
    return np.where(found != expected, np.inf, np.where(found == _FINITE, scaled, 0.0))


def _message(
    ok: bool,
    got: _Floats,
    reference: _Floats,
    max_error: float,
    allowed: float,
    baseline_error: float,
    worst: tuple[int, ...] | None,
) -> str:
    if worst is None:
        return "equal: no elements"
    place = f"at {list(worst)}: {got[worst]!s}, expected {reference[worst]!s}"
    found, expected = (_KIND_NAMES[int(kinds(values)[worst])] for values in (got, reference))
    if found != expected:
        return f"non-finite elements differ, {found} for {expected} {place}"
    verdict, relation = ("close", "<=") if ok else ("not close", ">")
    return f"{verdict}: error {max_error:.3g} {relation} {allowed:.3g} (unfused {baseline_error:.3g}) {place}"
