"""Named adversarial inputs.

A generator is called as `INPUTS[name](rng, shape, dtype)`, optionally with `axis=`, the cascade axis (the last by
default); a *row* is what runs along it. Float values are drawn in float64 and rounded to `dtype` once. Integers get
four times the value, rounded and clipped to what the dtype and 32 bits hold (NaN: 0); booleans get `value > 0`, so
that an all −inf row is a row of False. Floats of fewer than 16 bits, and shapes without that axis, are an InputError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tvm_cascade.errors import InputError

Array = NDArray[Any]


INPUTS: dict[str, Callable[..., Array]] = {}

_FLOATS = ("float16", "bfloat16", "float32", "float64")

# Gives float64 values; the pattern runs along the last axis.
_Pattern = Callable[[np.random.Generator, tuple[int, ...], str], Array]


def _named(pattern: _Pattern) -> _Pattern:
    """Register `pattern` under its own name, with the axis moved and the dtype taken care of."""

    @wraps(pattern)
    def generate(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, *, axis: int = -1) -> Array:
        _check(shape, dtype, axis)
        position = axis % len(shape)
        moved = (*shape[:position], *shape[position + 1 :], shape[position])
        return np.ascontiguousarray(np.moveaxis(_to_dtype(pattern(rng, moved, dtype), dtype), -1, axis))

    INPUTS[pattern.__name__] = generate
    return pattern


def _check(shape: tuple[int, ...], dtype: str, axis: int) -> None:
    if dtype not in _FLOATS and (dtype.startswith("float") or np.dtype(dtype).kind not in "iub"):
        raise InputError(f"one of {', '.join(_FLOATS)}, an integer dtype or bool", dtype, "dtype of a named input")
    if not -len(shape) <= axis < len(shape):
        raise InputError(
            "a shape that has the cascade axis", f"shape {shape} and axis {axis}", "shape of a named input"
        )


def _to_dtype(values: Array, dtype: str) -> Array:
    target = np.dtype(dtype)
    if dtype in _FLOATS:
        return values.astype(target)
    if target.kind == "b":
        return np.asarray(values > 0)
    limits = np.iinfo(target)
    low, high = max(limits.min, -(2**31)), min(limits.max, 2**31 - 1)
    return np.clip(np.rint(np.nan_to_num(4 * values)), low, high).astype(target)


def _limits(dtype: str) -> ml_dtypes.finfo:
    """The float limits of `dtype`; float32's for integers and booleans, which round such values away."""
    return ml_dtypes.finfo(dtype if dtype in _FLOATS else "float32")


@_named
def normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    return rng.standard_normal(shape)


@_named
def large_offset(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Mean 1000, deviation 1: raw moments cancel."""
    return 1000.0 + rng.standard_normal(shape)


@_named
def nearly_equal(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """About 1, in each row with a deviation from 1 to 1e-4: what differs from a location of the row is small."""
    return 1.0 + 10.0 ** rng.uniform(-4.0, 0.0, (*shape[:-1], 1)) * rng.standard_normal(shape)


@_named
def rising(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """From −8 to 8 along the row: a running maximum moves at every tile."""
    return np.linspace(-8.0, 8.0, shape[-1]) + 0.1 * rng.standard_normal(shape)


@_named
def falling(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """From 8 to −8 along the row: a running maximum never moves again."""
    return rising(rng, shape, dtype)[..., ::-1]


@_named
def late_spike(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Normal, but the last element of every row is 50: all that came before is rescaled to almost nothing."""
    values = rng.standard_normal(shape)
    values[..., -1:] = 50.0
    return values


@_named
def ties(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Integers from −2 to 2: every maximum and every minimum is attained many times."""
    return rng.integers(-2, 3, shape).astype(np.float64)


@_named
def all_neg_inf_row(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Normal, but the first row is −inf throughout, as a fully masked row is."""
    values = rng.standard_normal(shape)
    values[(0,) * (len(shape) - 1)] = -np.inf
    return values


@_named
def neg_inf_first_segment(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Normal, but the first half of every row (rounded down) is −inf: whole tiles are masked before any value."""
    values = rng.standard_normal(shape)
    values[..., : shape[-1] // 2] = -np.inf
    return values


@_named
def pos_inf(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Normal, but for one +inf in the middle of the first row."""
    return _with_middle(rng.standard_normal(shape), np.inf)


@_named
def nan(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Normal, but for one NaN in the middle of the first row."""
    return _with_middle(rng.standard_normal(shape), np.nan)


def _with_middle(values: Array, special: float) -> Array:
    row = values[(0,) * (values.ndim - 1)]
    row[len(row) // 2 : len(row) // 2 + 1] = special
    return values


@_named
def denormals(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Subnormal numbers of either sign; hardware may flush them to zero."""
    limits = _limits(dtype)
    steps = rng.integers(1, 1 << limits.nmant, shape)
    return _signs(rng, shape) * steps * float(limits.smallest_subnormal)


@_named
def zeros(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    return np.zeros(shape)


@_named
def tiny(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """One to sixteen times the smallest normal number, of either sign: squares underflow."""
    return _signs(rng, shape) * rng.uniform(1.0, 16.0, shape) * float(_limits(dtype).smallest_normal)


@_named
def alternating_sign(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Near 100 and −100 in turn along the row: sums cancel."""
    return np.where(np.arange(shape[-1]) % 2 == 0, 1.0, -1.0) * (100.0 + rng.standard_normal(shape))


def _signs(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.choice(np.array([-1.0, 1.0]), shape)


def poisoned(shape: Iterable[int], dtype: str | np.dtype[Any]) -> Array:
    """What an output holds before a program is to write all of it: NaN, the least integer, or True."""
    kind = np.dtype(dtype)
    poison = np.nan if kind.kind not in "iub" else np.iinfo(kind).min if kind.kind in "iu" else True
    return np.full(tuple(shape), poison, kind)
