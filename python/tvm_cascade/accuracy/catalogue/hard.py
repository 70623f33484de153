"""Hard data for cascades: the named inputs, and offsets, magnitudes and equal rows beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tvm_cascade.evaluate.inputs import INPUTS

Array = NDArray[np.generic]
Drawn = Callable[[np.random.Generator, tuple[int, ...]], Array]


def _about(offset: float, deviation: float, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return offset + deviation * rng.standard_normal(shape)


def _equal(value: float, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.full(shape, value)


def _infinite_row(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    values = rng.standard_normal(shape)
    values[(0,) * (len(shape) - 1)] = np.inf
    return values


def _named(name: str, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return INPUTS[name](rng, shape, "float32")


HARD: Mapping[str, Drawn] = {
    **{name: partial(_named, name) for name in INPUTS},
    "offset_1e4": partial(_about, -1e4, 1.0),
    "offset_1e6": partial(_about, 1e6, 10.0),
    "magnitude_1e30": partial(_about, 0.0, 1e30),
    "magnitude_1e-30": partial(_about, 0.0, 1e-30),
    "deviation_50": partial(_about, 0.0, 50.0),
    "equal": partial(_equal, 3.25),
    "infinite_row": _infinite_row,
}
"""Data along the last axis, by name."""
