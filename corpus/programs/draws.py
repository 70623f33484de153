"""Input distributions of arguments, by role in the program and by kind of data.

Draws return float32 (or bool, or int64) and are cast afterwards, so that one seed gives every dtype the same data
up to that dtype's own rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from tvm_cascade.evaluate.inputs import INPUTS

Extents = tuple[int, ...]
Values = NDArray[Any]
Draw = Callable[[Generator, Extents, str], Values]

_LARGE_OFFSET = 1000.0
_LATE_SPIKE = 30.0
_RAMP_STEPS = 8.0


def _normal(rng: Generator, extents: Extents) -> Values:
    return rng.standard_normal(extents, dtype=np.float32)


def _ramp(extents: Extents, first: float, last: float) -> Values:
    return np.broadcast_to(np.linspace(first, last, extents[-1], dtype=np.float32), extents)


def _late_spike(rng: Generator, extents: Extents) -> Values:
    values = _normal(rng, extents)
    values[..., -1] += _LATE_SPIKE
    return values


# Every kind varies along the last axis, which `folded` then moves to where the cascade runs.
_KINDS: Mapping[str, Callable[[Generator, Extents], Values]] = {
    "normal": _normal,
    "large_offset": lambda rng, extents: _normal(rng, extents) + np.float32(_LARGE_OFFSET),
    "rising": lambda rng, extents: _normal(rng, extents) + _ramp(extents, -_RAMP_STEPS, _RAMP_STEPS),
    "falling": lambda rng, extents: _normal(rng, extents) + _ramp(extents, _RAMP_STEPS, -_RAMP_STEPS),
    "late_spike": _late_spike,
    "ties": lambda rng, extents: rng.integers(-2, 3, extents).astype(np.float32),
    "zeros": lambda rng, extents: np.zeros(extents, np.float32),
    **{
        name: partial(INPUTS[name], dtype="float32")
        for name in (
            "nearly_equal",
            "alternating_sign",
            "all_neg_inf_row",
            "neg_inf_first_segment",
            "pos_inf",
            "nan",
            "denormals",
            "tiny",
        )
    },
}

KINDS = tuple(_KINDS)
"""Finite data first; from `all_neg_inf_row` on, some or all values are infinite, NaN or tiny."""


def folded(axis: int = -1) -> Draw:
    """Values of the asked kind, varying along `axis`, the argument's axis that the cascade folds."""

    def draw(rng: Generator, extents: Extents, kind: str) -> Values:
        moved = list(extents)
        moved.append(moved.pop(axis))
        return np.moveaxis(_KINDS[kind](rng, tuple(moved)), -1, axis)

    return draw


def ranked(rng: Generator, extents: Extents, kind: str) -> Values:
    """Values of the asked kind along the last axis; normal ones up to 4096 that are distinct in half precision too.

    Libraries differ in which of equal values they choose.
    """
    if kind != "normal":
        return _KINDS[kind](rng, extents)
    return rng.permuted(_ramp(extents, -4.0, 4.0), axis=-1)


def steady(rng: Generator, extents: Extents, kind: str) -> Values:
    """Standard normal values whatever the kind: queries, weights, gains."""
    return _normal(rng, extents)


def positive(rng: Generator, extents: Extents, kind: str) -> Values:
    """Values in [0.5, 1.5) whatever the kind: masses, whose sum is a divisor."""
    return rng.random(extents, dtype=np.float32) + np.float32(0.5)


def mostly_true(rng: Generator, extents: Extents, kind: str) -> Values:
    """A boolean mask that keeps four in five, and the first of every row, so that no row is empty."""
    mask = rng.random(extents, dtype=np.float32) < 0.8
    mask[..., 0] = True
    return mask


def alibi_slopes(rng: Generator, extents: Extents, kind: str) -> Values:
    """The geometric slopes 2^(-8 (h + 1) / heads) of ALiBi."""
    (heads,) = extents
    return np.exp2(-8.0 * np.arange(1, heads + 1) / heads).astype(np.float32)


def class_indices(classes: int) -> Draw:

    def draw(rng: Generator, extents: Extents, kind: str) -> Values:
        return rng.integers(0, classes, extents, dtype=np.int64)

    return draw


def class_indices_or(nothing: int, classes: int) -> Draw:
    """Indices in [0, classes), and a number that stands for none of them in every fourth place."""

    def draw(rng: Generator, extents: Extents, kind: str) -> Values:
        found = rng.integers(0, classes, extents, dtype=np.int64)
        found[..., ::4] = nothing
        return found

    return draw


def words(rng: Generator, extents: Extents, kind: str) -> Values:
    """Any 32 bits, as int64."""
    return rng.integers(-(2**31), 2**31, extents, dtype=np.int64)


def ancestors(rng: Generator, extents: Extents, kind: str) -> Values:
    """Masks of random trees of tokens, [..., token, token]: a token sees itself and those on its way from the root."""
    *batch, count, _ = extents
    mask = np.zeros((math.prod(batch), count, count), np.bool_)
    for tree in mask:
        for token in range(count):
            if token > 0:
                tree[token] = tree[rng.integers(token)]
            tree[token, token] = True
    return mask.reshape(extents)
